"""Where numba keeps compiled kernels: in one folder, whatever the path of their sources.

The folder's own name says what was compiled, so a copy of it serves another machine of the kind,
and one that may only be read is read. Imports numba: only who compiles or loads imports this.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numba.core import caching
from numba.core import config as numbas

config: Any = numbas  # its variables are made when it is loaded
STAMP = "see the folder"
_folder = ""


class Located(caching._CacheLocator):
    """The files of one kernel: by its module, its name and its line."""

    def __init__(self, kernel: Callable[..., Any], file: str) -> None:
        self._py_file = file  # named in numba's warnings
        self._path = os.path.join(_folder, kernel.__module__)
        self._line = kernel.__code__.co_firstlineno

    def get_cache_path(self) -> str:
        """Return the folder of its module."""
        return self._path

    def get_source_stamp(self) -> str:
        """Return the same for all: the folder is named after all sources."""
        return STAMP

    def get_disambiguator(self) -> str:
        """Return the line."""
        return str(self._line)

    def ensure_cache_path(self) -> None:
        """Make the folder, where something is written."""
        Path(self._path).mkdir(parents=True, exist_ok=True)

    @classmethod
    def from_function(cls, kernel: Callable[..., Any], file: str) -> Located:
        """Return where the files of a kernel are."""
        return cls(kernel, file)


@contextmanager
def kept_in(folder: Path) -> Iterator[None]:
    """Keep the kernels that are given to numba meanwhile in `folder`."""
    global _folder
    before = config.CACHE_LOCATOR_CLASSES
    _folder, config.CACHE_LOCATOR_CLASSES = str(folder), f"{__name__}.Located"
    try:
        yield
    finally:
        config.CACHE_LOCATOR_CLASSES = before
