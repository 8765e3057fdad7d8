"""Values of secrets, and where in the host's processes they stand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.marketplace.secrets.hunting import spellings

VALUE = "hunter2-0ff9ea40-Aa%+"
OTHER = "the other value, 1"


def processes_with(*values: str) -> list[str]:
    """Return the files of /proc in which a value stands: command lines, variables, open files."""
    wanted = [spelling for value in values for spelling in spellings(value)]
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        for path in (process / "cmdline", process / "environ", *_open_files(process)):
            try:
                content = path.read_bytes()
            except OSError:
                continue
            if any(each in content for each in wanted):
                found.append(f"{path} of {(process / 'cmdline').read_bytes()[:80]!r}")
    return found


def _open_files(process: Path) -> Iterator[Path]:
    try:
        for link in (process / "fd").iterdir():
            if "memfd:" in str(link.readlink()):
                yield link
    except OSError:
        return
