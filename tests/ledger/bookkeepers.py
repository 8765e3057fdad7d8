"""Other bookkeepers' programs, asked whether they accept what was exported."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SECONDS_MAX = 120


def bean_check(text: str, folder: Path) -> tuple[int, str]:
    """Return what beancount's own check says of a file: its status and words."""
    file = folder / "books.beancount"
    file.write_text(text)
    return _run([str(Path(sys.executable).with_name("bean-check")), "--no-cache", str(file)])


def hledger(text: str, folder: Path) -> tuple[int, str]:
    """Return what hledger's strict check says of a file; skips where there is none."""
    if shutil.which("hledger") is None:
        pytest.skip("hledger is not installed: tests/install-tools.sh")
    file = folder / "books.journal"
    file.write_text(text)
    return _run(["hledger", "-f", str(file), "check", "--strict"])


def _run(command: list[str]) -> tuple[int, str]:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
        env={"LANG": "C.UTF-8", "PATH": "/usr/bin:/bin"},
    )
    return done.returncode, done.stdout + done.stderr
