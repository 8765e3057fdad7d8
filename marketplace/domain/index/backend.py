"""What of the book is compiled, for whoever decides on one fact after the other.

Most processes only look into a book now and then: they never load what this hands out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from marketplace.domain.kernels.jit import compiles

if TYPE_CHECKING:
    from marketplace.domain.index.free_levels import Levels
    from marketplace.domain.index.host_matcher import OneHost


def fast_host() -> Callable[..., OneHost]:
    """Return what makes a `OneHost` that is compiled, where kernels are: it decides the same."""
    if not compiles():
        from marketplace.domain.index.host_matcher import OneHost

        return OneHost
    from marketplace.domain.index.compiled_matcher import Desk, FastHost

    return partial(FastHost, desk=Desk())


def leveller() -> Callable[..., Levels] | None:
    """Return a `compiled_levels.Levelling`, where kernels are compiled."""
    if not compiles():
        return None
    from marketplace.domain.index.compiled_levels import Levelling

    return Levelling()


def row_joiner() -> Callable[..., tuple[int, int]] | None:
    """Return `compiled_rows.join`, where kernels are compiled."""
    if not compiles():
        return None
    from marketplace.domain.index.compiled_rows import join

    return join


def row_placer() -> Callable[..., None] | None:
    """Return `compiled_rows.stand`, where kernels are compiled."""
    if not compiles():
        return None
    from marketplace.domain.index.compiled_rows import stand

    return stand


def room_finder() -> Callable[..., int] | None:
    """Return `scan_hosts.room_on`, where kernels are compiled."""
    if not compiles():
        return None
    from marketplace.domain.kernels.scan_hosts import room_on

    return room_on
