"""The market's kernels together: named by what they do, compiled once, loaded by who decides.

What is compiled lies in a folder that is named after all that it came from: the kernels' sources,
numba's version, Python's, the processor. So whatever changes finds nothing there, and compiles.
"""

from __future__ import annotations

import hashlib
import importlib
import platform
import shutil
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from marketplace.domain.kernels import jit

DOMAIN = f"{__package__}.domain"
HAVE_KERNELS = (
    "decisions.warm_up",
    "kernels.bid_rows",
    "kernels.cheapest_start",
    "kernels.fill_host",
    "kernels.scan_hosts",
    "solver.warm_up",
)
"""Modules that have a kernel, or import all that have."""
COMPLETE = "complete"
"""Lies in a folder once all kernels do."""
KEPT_MAX = 3
"""Folders that are kept: of this version, and of others that may still run from the same home."""

home: Path | None = None
"""Where the folders are; told once by who composes the site."""

_loading = threading.Lock()


class NotOurs(Exception):
    """Others may write here what this process would run."""


def _small_rounds() -> None:
    from marketplace.domain.kernels.cheapest_start import warm
    from marketplace.domain.solver.warm_up import warm_small

    warm_small()
    warm()


def _large_rounds() -> None:
    from marketplace.domain.solver.warm_up import warm_large

    warm_large()


def _instant_lane() -> None:
    from marketplace.domain.decisions.warm_up import rehearse

    rehearse()


PARTS: dict[str, Callable[[], None]] = {
    "instant-lane": _instant_lane,
    "small-rounds": _small_rounds,
    "large-rounds": _large_rounds,
}
"""What calls every kernel as it is called in use, in parts that share next to no kernel."""


def folder(at: Path) -> Path:
    """Return where this version's kernels lie, or will, on this machine.

    Raises: ImportError, or whatever else numba cannot be loaded for.
    """
    return at / _name()


@cache
def _name() -> str:
    _know_all()
    numba: Any = importlib.import_module("numba")
    llvm: Any = importlib.import_module("llvmlite.binding")
    features = llvm.get_host_cpu_features().flatten()
    made_of = (
        jit.digest(),
        numba.__version__,
        sys.version,
        platform.machine(),
        llvm.get_host_cpu_name(),
        features,
    )
    return hashlib.sha256("\n".join(made_of).encode()).hexdigest()[:16]


def _know_all() -> None:
    """Import every module that has a kernel."""
    for name in HAVE_KERNELS:
        importlib.import_module(f"{DOMAIN}.{name}")


def compiles() -> bool:
    """Tell if this process decides by compiled kernels."""
    return jit.compiles()


def compile_part(at: Path, name: str) -> None:
    """Compile a part of the kernels into their folder, and leave this process with them."""
    into = folder(at)
    if not jit.compiles():
        jit.compile_into(into)
    PARTS[name]()


def finish(at: Path) -> None:
    """Say that all parts are compiled; forget the oldest folders of other versions."""
    into = folder(at)
    (into / COMPLETE).touch(mode=0o600)
    others = [each for each in at.iterdir() if each.is_dir() and each != into]
    others.sort(key=lambda each: each.stat().st_mtime, reverse=True)
    for old in others[KEPT_MAX - 1 :]:
        shutil.rmtree(old, ignore_errors=True)


def are_complete(at: Path) -> bool:
    """Tell if all kernels of this version lie there compiled."""
    return (folder(at) / COMPLETE).exists()


def progress(at: Path) -> tuple[int, int]:
    """Return how many kernels are compiled, and of how many."""
    known = jit.count()
    with suppress(OSError):
        return min(known, sum(1 for _ in folder(at).rglob("*.nbi"))), known
    return 0, known


def load(at: Path) -> Iterator[str]:
    """Load all kernels, one by one; they are used from `go_over` on.

    Raises: NotOurs.
    """
    found = folder(at)
    for each in (at, found):
        _demand_ours(each)
    yield from jit.load(found)


def go_over(at: Path) -> None:
    """From now on decide by the kernels that were loaded."""
    jit.go_over(folder(at))


def use() -> bool:
    """Use compiled kernels in this process if they lie there; say if it does now.

    For who does much of what engines do, such as making an old round again.
    """
    with _loading:
        if jit.compiles():
            return True
        try:
            if home is None or not are_complete(home):
                return False
            for _ in load(home):
                pass
        except (ImportError, OSError, NotOurs):
            return False
        go_over(home)
    return True


def _demand_ours(entry: Path) -> None:
    """Refuse a folder into which others may write: what lies there is run.

    Raises: NotOurs.
    """
    found = entry.stat()
    if stat.S_IMODE(found.st_mode) & (stat.S_IWGRP | stat.S_IWOTH):
        raise NotOurs(f"others may write in {entry}: chmod go-w, as its owner")
