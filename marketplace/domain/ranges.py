"""Bids that make do with less: as many GPUs as can be had, then as long as they can be had.

A size is a number of GPUs and a length. Whatever has room for a size has room for one with fewer
GPUs, and for a shorter one unless an offer asks for a longer lease. So the largest size is found by
halving, between the lengths at which another offer comes in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from marketplace.domain.calendar import Calendar
from marketplace.domain.demand import OpenBid
from marketplace.domain.packing import Placement, place
from marketplace.domain.supply import Entry

SECOND = 1_000

Try = Callable[[OpenBid], Placement | None]


def fit(
    bid: OpenBid,
    entries: Sequence[Entry],
    calendar: Calendar,
    *,
    now: int,
    limit: int | None = -1,
) -> tuple[OpenBid, Placement] | None:
    """Find GPUs for a bid: return it in the size it gets and where, or None.

    More GPUs come before a longer lease, a longer lease before a lower price.

    Args: as of `packing.place`.
    """
    whole = place(bid, entries, calendar, now=now, limit=limit)
    if whole is not None:
        return bid, whole
    return smaller(bid, entries, calendar, now=now, limit=limit)


def smaller(
    bid: OpenBid,
    entries: Sequence[Entry],
    calendar: Calendar,
    *,
    now: int,
    limit: int | None = -1,
) -> tuple[OpenBid, Placement] | None:
    """Find GPUs for a bid that does not fit in its whole size: as `fit`."""
    if not bid.has_ranges:
        return None

    def attempt(sized: OpenBid) -> Placement | None:
        return place(sized, entries, calendar, now=now, limit=limit)

    steps = _steps(bid, entries)
    gpus = _most(bid.gpus_min, bid.gpus, lambda count: _any_length(bid, count, steps, attempt))
    return None if gpus is None else _longest(bid, gpus, steps, attempt)


def _steps(bid: OpenBid, entries: Sequence[Entry]) -> list[int]:
    """Return the rising lengths at which offers with a minimum lease come in, and one past all."""
    least = bid.duration_min
    inside = {
        -(-entry.listed.lease_min // SECOND) * SECOND
        for entry in entries
        if least < entry.listed.lease_min <= bid.duration
    }
    return [least, *sorted(inside - {least}), bid.duration + SECOND]


def _any_length(bid: OpenBid, gpus: int, steps: Sequence[int], attempt: Try) -> bool:
    return any(attempt(bid.sized(gpus, length)) is not None for length in steps[:-1])


def _longest(
    bid: OpenBid, gpus: int, steps: Sequence[int], attempt: Try
) -> tuple[OpenBid, Placement] | None:
    for starts, ends in reversed(list(pairwise(steps))):
        seconds = _most(
            starts // SECOND,
            ends // SECOND - 1,
            lambda length: attempt(bid.sized(gpus, length * SECOND)) is not None,
        )
        if seconds is not None:
            sized = bid.sized(gpus, seconds * SECOND)
            placement = attempt(sized)
            assert placement is not None
            return sized, placement
    return None


def _most(low: int, high: int, is_possible: Callable[[int], bool]) -> int | None:
    """Return the largest number from `low` to `high` that is possible, as all below it are."""
    if not is_possible(low):
        return None
    while low < high:
        middle = (low + high + 1) // 2
        if is_possible(middle):
            low = middle
        else:
            high = middle - 1
    return low
