"""Compile a kernel with numba where wanted and installed; without it the same code runs as Python.

Kernels are loops over arrays of whole numbers and doubles: no library calls, no reordering of
sums, random numbers of their own. So both ways give the same bits.
"""

from __future__ import annotations

import hashlib
import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from marketplace.domain.kernels import switch

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


HAS_KERNELS = re.compile(r"^@(compiled|woven_in)$", re.M)
USED = re.compile(r"^from marketplace\.domain\.([\w.]+) import ", re.M)


def _numba() -> Any:
    try:
        return importlib.import_module("numba")
    except ImportError:
        return None


numba = _numba() if switch.compile_rounds else None
COMPILES = numba is not None
"""Whether kernels are compiled here."""


def _cache_folder() -> str:
    """Return a folder that no other version of the kernels shares.

    numba looks only at the file of a kernel, not at the files of the kernels it calls.
    """
    digest = hashlib.sha256()
    for source in _sources():
        digest.update(source.read_bytes())
    return str(Path(__file__).parent / "__pycache__" / f"kernels-{digest.hexdigest()[:16]}")


def _sources() -> list[Path]:
    """Return the files with kernels in them, and those from which these take constants and types.

    Found by the decorators, so that a file that is new or moved is among them.
    """
    here = Path(__file__).parents[1]
    files = {path: path.read_text() for path in here.rglob("*.py")}
    kernels = {path for path, text in files.items() if HAS_KERNELS.search(text)}
    names = {name for path in kernels for name in USED.findall(files[path])}
    used = {here / f"{name.replace('.', '/')}.py" for name in names}
    return sorted(kernels | used & files.keys())


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
