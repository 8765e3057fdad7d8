"""`offpeak-agent status | head -1` ends as quietly as any other program does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from metering.agent.listeners import LEFT

AGENT = [sys.executable, "-m", "metering.agent"]


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["at-its-end", "at-once"])
@pytest.mark.parametrize("words", [["status"], ["pause"], ["config", "--print"]], ids=" ".join)
def test_nothing_is_said_of_a_reader_who_left(
    tmp_path: Path, words: list[str], unbuffered: str
) -> None:
    read, write = os.pipe()
    os.close(read)
    options = ["--state-dir", str(tmp_path)] if words[0] != "config" else []
    try:
        done = subprocess.run(
            [*AGENT, *words, *options],
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
            stdout=write,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(write)

    assert (done.stderr, done.returncode) == ("", LEFT)
