"""Folders that are brought and left, and pauses that take no time."""

from __future__ import annotations

import threading
from pathlib import Path

from metering.agent.clock import ManualClock

START_MS = 1_800_000_000_000
FILES = {
    "train.py": b"print('hello')\n",
    "data/a.bin": b"a" * 5_000,
    "data/b.bin": b"b" * 7_000,
    "data/deep/c.bin": b"c" * 100,
    "empty": b"",
}
MORE = {"links": [{"path": "latest", "to": "data/deep"}], "folders": ["out"]}


class NoPause(threading.Event):
    """Pauses take no time here, and as long as they say by the agent's clock."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        self._clock.advance(int((timeout or 0) * 1000) + 1)
        return self.is_set()


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def leave(work: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        path = work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def is_first(what: str, number: int) -> bool:
    return number <= 4


def is_every_second(what: str, number: int) -> bool:
    return number % 2 == 0
