"""Agents in processes of their own, and waiting for what they do."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.metering.agent.market import Market

ROOT = Path(__file__).resolve().parents[3]


DEADLINE_SECONDS = 60.0


def until(ask: Callable[[], object], *, what: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not ask():
        assert time.monotonic() < deadline, f"in time: {what}"
        time.sleep(0.02)


def launch(market: Market, state_dir: Path, doom: str) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "tests.metering.agent.doomed",
        market.url,
        str(state_dir),
        doom,
    ]
    with (state_dir.with_suffix(".log")).open("ab") as log:
        return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
