"""The solver as plain Python, and what a search told."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from marketplace.domain.kernels import jit
from marketplace.domain.solver import (
    Problem,
    Solution,
)


def told(solution: Solution) -> tuple[object, ...]:
    """Return everything a solution says, as values that compare."""
    return (
        repr(solution.placed),
        solution.welfare_nanos,
        solution.bound_nanos,
        solution.prices.tobytes(),
        solution.iterations,
    )


@contextmanager
def optimum_as_python() -> Iterator[ModuleType]:
    """Yield the package as it is before it goes over to compiled kernels."""
    name = Problem.__module__.rpartition(".")[0]
    compiled = (name, jit.__name__)

    def is_compiled(key: str) -> bool:
        return key in compiled or key.startswith(name + ".")

    kept = {key: module for key, module in sys.modules.items() if is_compiled(key)}
    for key in kept:
        del sys.modules[key]
    try:
        yield importlib.import_module(name)
    finally:
        for key in filter(is_compiled, list(sys.modules)):
            del sys.modules[key]
        sys.modules.update(kept)
