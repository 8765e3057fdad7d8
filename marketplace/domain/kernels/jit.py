"""Kernels run as Python at once, and compiled by numba from when their compiled form is there.

Kernels are loops over arrays of whole numbers and doubles: no library calls, no reordering of
sums, random numbers of their own. So both ways give the same bits, and a process may go over from
one to the other between any two calls. Who runs it says when (`marketplace.kernels`): compiling
takes minutes, loading what was compiled before less than a second (ADR 0059).
"""

from __future__ import annotations

import hashlib
import importlib
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

Kernel = TypeVar("Kernel", bound=Callable[..., Any])

PROGRAM = __name__.partition(".")[0] + "."
"""Begins the names of the modules that may hold a kernel."""
WORD = re.compile(r"\w+")


@dataclass(slots=True)
class Registered:
    """A kernel: as Python, and compiled where it is. inlined: into each of those that call it.

    until_then: what is called before, if not the kernel itself.
    """

    plain: Callable[..., Any]
    inlined: bool
    until_then: Callable[..., Any] | None = None
    made: Any = None


_kernels: dict[str, Registered] = {}
_folder: Path | None = None
"""Where kernels are compiled into, or loaded from; None: they run as Python."""


def compiled(kernel: Kernel) -> Kernel:
    """Register a kernel; return it, or its compiled form where kernels are compiled by now."""
    return _registered(kernel, inlined=False)


def compiled_later(kernel: Kernel, until_then: Kernel) -> Kernel:
    """Register a kernel; return what does the same by whole arrays until it is compiled."""
    return _registered(kernel, inlined=False, until_then=until_then)


def woven_in(kernel: Kernel) -> Kernel:
    """Register a kernel that is compiled into each of those that call it.

    For what is called for every pool: handing it the dozens of arrays of a round costs more than
    what it does, and by itself the compiler weaves in small kernels only.
    """
    return _registered(kernel, inlined=True)


def _registered(kernel: Kernel, *, inlined: bool, until_then: Kernel | None = None) -> Kernel:
    each = Registered(kernel, inlined, until_then)
    _kernels[f"{kernel.__module__}.{kernel.__qualname__}"] = each
    if _folder is None:
        return kernel if until_then is None else until_then
    each.made = _dispatcher(each, _folder)
    made: Kernel = each.made
    return made


def compiles() -> bool:
    """Tell if kernels run compiled by now."""
    return _folder is not None


def count() -> int:
    """Return how many kernels are registered."""
    return len(_kernels)


def digest() -> str:
    """Return what changes whenever any registered kernel may do something else.

    That is the source of their modules, and of those that say how what they are given is laid out,
    and the constants that they take from elsewhere.
    """
    said, sources = hashlib.sha256(), dict[str, bytes]()
    for name, each in sorted(_kernels.items()):
        _add_source(sources, each.plain.__module__)
        given: dict[str, Any] = each.plain.__globals__
        words = set(each.plain.__code__.co_names)
        words.update(*(WORD.findall(str(told)) for told in each.plain.__annotations__.values()))
        for word in sorted(words & given.keys()):
            found = given[word]
            if isinstance(found, type) and hasattr(found, "_fields"):
                _add_source(sources, found.__module__)
            elif isinstance(found, int | float | str | tuple):
                said.update(f"{name} {word} {found!r}\n".encode())
    for module, source in sorted(sources.items()):
        said.update(f"{module} {len(source)}\n".encode() + source)
    return said.hexdigest()


def _add_source(sources: dict[str, bytes], module: str) -> None:
    if module not in sources:
        sources[module] = Path(str(sys.modules[module].__file__)).read_bytes()


def compile_into(folder: Path) -> None:
    """From now on compile each kernel on its first call, and keep what comes of it in `folder`."""
    for each in _kernels.values():
        each.made = _dispatcher(each, folder)
    go_over(folder)


def load(folder: Path) -> Iterator[str]:
    """Load what was compiled into `folder`, kernel by kernel; yield the name of each.

    Nothing is used before `go_over`: another thread may decide with the plain kernels meanwhile.
    """
    for name, each in list(_kernels.items()):
        each.made = _dispatcher(each, folder)
        _load(each.made)
        yield name


def go_over(folder: Path) -> None:
    """From now on run what was compiled or loaded, wherever a kernel is called by its name."""
    global _folder
    by_id = {id(each.until_then or each.plain): each for each in _kernels.values()}
    for module in [each for name, each in sys.modules.items() if name.startswith(PROGRAM)]:
        names = vars(module)
        for name, held in list(names.items()):
            found = by_id.get(id(held))
            if found is not None and found.made is not None:
                names[name] = found.made
    _folder = folder


def _dispatcher(each: Registered, folder: Path) -> Any:
    numba = importlib.import_module("numba")
    options = {"forceinline": True} if each.inlined else {}
    files = importlib.import_module(f"{__package__}.compiled_files")
    with files.kept_in(folder):
        return numba.njit(cache=True, nogil=True, _nrt=False, **options)(each.plain)


def _load(made: Any) -> None:
    """Load every form of a kernel that lies in its folder and is for this machine."""
    cache = made._cache
    machine = made.targetctx.codegen().magic_tuple()
    for arguments, compiled_for, _code in cache._cache_file._load_index():
        if compiled_for == machine:
            made.compile(arguments)
    cache.disable()  # what is compiled here later is not kept: the folder may be full, or not ours
