"""Kernels as Python in a process that has them compiled: the plain form says what is right."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from marketplace.domain.kernels import jit


@contextmanager
def kernels_as_python() -> Iterator[None]:
    """Decide by the plain form of every kernel, as an engine does before its kernels are there."""
    compiled = {id(each.made): each for each in jit._kernels.values() if each.made is not None}
    assert jit.compiles() and compiled
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(jit, "_folder", None)
        for key, module in list(sys.modules.items()):
            if key.startswith(jit.PROGRAM):
                for name, held in list(vars(module).items()):
                    if (found := compiled.get(id(held))) is not None:
                        patched.setattr(module, name, found.until_then or found.plain)
        yield
