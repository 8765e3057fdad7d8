"""Bids that make do with less: as many GPUs as can be had, then as long as they can be had.

A size is a number of GPUs and a length. Whatever has room for a size has room for one with fewer
GPUs, and for a shorter one unless an offer asks for a longer lease. So the largest size is found by
halving, between the lengths at which another offer comes in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from marketplace.domain.facts.instants import whole_second
from marketplace.domain.orderbook.calendar import Calendar
from marketplace.domain.orderbook.listed_offer import Entry
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.placement.placement import Placement, place

SECOND = 1_000

Found = tuple[OpenBid, Placement]
"""A bid, in the size it gets, and where it goes."""

Try = Callable[[OpenBid], Placement | None]


def fit(
    bid: OpenBid,
    entries: Iterable[Entry],
    calendar: Calendar,
    *,
    now: int,
    limit: int | None = -1,
) -> tuple[OpenBid, Placement] | None:
    """Find GPUs for a bid: return it in the size it gets and where, or None.

    More GPUs come before a longer lease, a longer lease before a lower price.

    Args: as of `placement.place`.
    """
    several = list(entries) if bid.has_ranges else ()
    whole = place(bid, several or entries, calendar, now=now, limit=limit)
    if whole is not None:
        return bid, whole
    return smaller(bid, several, calendar, now=now, limit=limit)


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

    return largest(bid, (entry.listed.lease_min for entry in entries), attempt)


def largest(bid: OpenBid, lease_mins: Iterable[int], attempt: Try) -> Found | None:
    """Find the largest size of a bid that is possible. lease_mins: of the offers it may go to."""
    steps = _steps(bid, lease_mins)
    gpus = _most(bid.gpus_min, bid.gpus, lambda count: _any_length(bid, count, steps, attempt))
    return None if gpus is None else _longest(bid, gpus, steps, attempt)


def at_home(bid: OpenBid, own: Iterable[Entry], calendar: Calendar, *, now: int) -> Found | None:
    """Find GPUs of a bid's own tenant for all of it, at any floor: they cost it nothing."""
    placement = place(bid, own, calendar, now=now, limit=None)
    return None if placement is None else (bid, replace(placement, floor=0))


def smaller_at_home(
    bid: OpenBid, own: Sequence[Entry], calendar: Calendar, *, now: int
) -> Found | None:
    """Find GPUs of a bid's own tenant for less than all of it."""
    found = smaller(bid, own, calendar, now=now, limit=None)
    return None if found is None else (found[0], replace(found[1], floor=0))


def may_be_sooner_away(bid: OpenBid, home: Found, *, now: int) -> bool:
    """Tell if a bid seeks the soonest start, and its own tenant's GPUs do not begin at once."""
    return bid.seeks_soonest and home[1].starts > max(bid.earliest, whole_second(now))


def home_first(
    bid: OpenBid,
    own: Sequence[Entry],
    others: Sequence[Entry],
    calendar: Calendar,
    *,
    now: int,
) -> Found | None:
    """Find GPUs for a bid among its own tenant's offers, or else among others'; never mixed.

    All of it comes first, at home and then away, or where it begins first if the bid seeks that; of
    smaller sizes the larger, and of equal ones home.
    """
    found = at_home(bid, own, calendar, now=now)
    if found is not None and not may_be_sooner_away(bid, found, now=now):
        return found
    placement = place(bid, others, calendar, now=now)
    if found is not None and (placement is None or found[1].starts <= placement.starts):
        return found
    if placement is not None:
        return bid, placement
    home = smaller_at_home(bid, own, calendar, now=now)
    away = smaller(bid, others, calendar, now=now)
    if home is None or away is None:
        return home or away
    sizes = [(sized.gpus, sized.duration) for sized, _ in (home, away)]
    return away if sizes[1] > sizes[0] else home


def apart(bid: OpenBid, entries: Iterable[Entry]) -> tuple[list[Entry], list[Entry]]:
    """Divide offers into those of the bid's own tenant and those of others."""
    own, others = list[Entry](), list[Entry]()
    for entry in entries:
        is_own = entry.listed.terms.tenant_id == bid.terms.tenant_id
        (own if is_own else others).append(entry)
    return own, others


def _steps(bid: OpenBid, lease_mins: Iterable[int]) -> list[int]:
    """Return the rising lengths at which offers with a minimum lease come in, and one past all."""
    least = bid.duration_min
    inside = {
        -(-lease_min // SECOND) * SECOND
        for lease_min in lease_mins
        if least < lease_min <= bid.duration
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
