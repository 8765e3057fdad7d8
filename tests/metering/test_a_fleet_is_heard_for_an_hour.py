"""Ten thousand simulated GPUs for an hour: what they wait for does not grow."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.soak

HOUR = 3_600
MORE_EACH_MINUTE_MAX = 20.0
"""Milliseconds: a second and a bit in the hour."""


def test_no_wait_of_the_fleet_grows_over_an_hour() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks", "fleet"],
        env={"BENCH_FLEET_SECONDS": str(HOUR), **os.environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * HOUR,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    growth = re.findall(r"^  (.*), more each minute +(-?[\d.,]+) ms", done.stdout, re.MULTILINE)
    assert len(growth) == 3, done.stdout
    assert all(float(ms.replace(",", "")) < MORE_EACH_MINUTE_MAX for _, ms in growth), done.stdout
    assert re.search(r"taken for silent +0 ", done.stdout), done.stdout
    assert re.search(r"behind at the end +0 ", done.stdout), done.stdout
