"""What of the book is compiled, for whoever decides on one fact after the other.

Most processes only look into a book now and then: they never load what this hands out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from marketplace.domain.one_host import OneHost
    from marketplace.domain.openings import Levels


def fast_host() -> Callable[..., OneHost]:
    """Return what makes a `OneHost` that is compiled, where kernels are: it decides the same."""
    # Late: what is compiled is said after this is imported.
    from marketplace.domain.optimum.compiling import COMPILES

    if not COMPILES:
        from marketplace.domain.one_host import OneHost

        return OneHost
    from marketplace.domain.fast_host import Desk, FastHost

    return partial(FastHost, desk=Desk())


def leveller() -> Callable[..., Levels] | None:
    """Return a `levelling.Levelling`, where kernels are compiled."""
    from marketplace.domain.optimum.compiling import COMPILES

    if not COMPILES:
        return None
    from marketplace.domain.levelling import Levelling

    return Levelling()


def row_joiner() -> Callable[..., tuple[int, int]] | None:
    """Return `lining_up.join`, where kernels are compiled."""
    from marketplace.domain.optimum.compiling import COMPILES

    if not COMPILES:
        return None
    from marketplace.domain.lining_up import join

    return join


def row_placer() -> Callable[..., None] | None:
    """Return `lining_up.stand`, where kernels are compiled."""
    from marketplace.domain.optimum.compiling import COMPILES

    if not COMPILES:
        return None
    from marketplace.domain.lining_up import stand

    return stand


def room_finder() -> Callable[..., int] | None:
    """Return `finding.room_on`, where kernels are compiled."""
    from marketplace.domain.optimum.compiling import COMPILES

    if not COMPILES:
        return None
    from marketplace.domain.finding import room_on

    return room_on
