"""Compile a kernel with numba where wanted and installed; without it the same code runs as Python.

Kernels are loops over arrays of whole numbers and doubles: no library calls, no reordering of
sums, random numbers of their own. So both ways give the same bits.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from marketplace.domain import extras

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


INSTANT_LANE = (
    "columns.py",
    "finding.py",
    "host_columns.py",
    "levelling.py",
    "lining_up.py",
    "openings.py",
    "room.py",
    "serving.py",
)
"""Files of the instant lane's kernels, and of what they count by."""


def _numba() -> Any:
    try:
        return importlib.import_module("numba")
    except ImportError:
        return None


numba = _numba() if extras.compile_rounds else None
COMPILES = numba is not None
"""Whether kernels are compiled here."""


def _cache_folder() -> str:
    """Return a folder that no other version of the kernels shares.

    numba looks only at the file of a kernel, not at the files of the kernels it calls.
    """
    here = Path(__file__).parent
    digest = hashlib.sha256()
    for source in sorted(here.glob("*.py")):
        text = source.read_bytes()
        if any(mark in text for mark in (b"@compiled\n", b"@woven_in\n", b"NamedTuple")):
            digest.update(text)
    for name in INSTANT_LANE:
        digest.update((here.parent / name).read_bytes())
    return str(here / "__pycache__" / f"kernels-{digest.hexdigest()[:16]}")


FOLDER = _cache_folder() if COMPILES else ""
"""Where compiled kernels are kept; empty where none are compiled."""


def compiled(kernel: Kernel) -> Kernel:
    """Return the kernel, compiled on its first call where numba is installed."""
    return _made(kernel)


def woven_in(kernel: Kernel) -> Kernel:
    """Return the kernel, compiled into each of those that call it.

    For what is called for every pool: handing it the dozens of arrays of a round costs more than
    what it does, and by itself the compiler weaves in small kernels only.
    """
    return _made(kernel, forceinline=True)


def _made(kernel: Kernel, **options: bool) -> Kernel:
    if numba is None:
        return kernel
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = FOLDER
    try:
        made: Kernel = numba.njit(cache=True, nogil=True, _nrt=False, **options)(kernel)
    except RuntimeError:  # no folder that may be written: compile in each process
        made = numba.njit(nogil=True, _nrt=False, **options)(kernel)
    finally:
        numba.config.CACHE_DIR = before
    return made
