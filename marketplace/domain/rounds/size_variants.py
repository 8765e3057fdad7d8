"""Sizes in which a round searches for a bid that makes do with less: it gets one of them at most.

A bid with ranges stands in the search as several: whole, with its least GPUs, its least length, and
steps between. They share a quota of GPU-time that has room for one of them only. Who gets less
than all is given more afterwards, where what the round left free allows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from uuid import UUID

from ledger.domain.money import MILLIS_PER_HOUR
from marketplace.domain.clearing.own_supply_first import others
from marketplace.domain.clearing.work_budget import Tries
from marketplace.domain.orderbook.calendar import Calendar
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.placement.sizes import SECOND, Found, fit
from marketplace.domain.rounds.ageing import weight_of
from marketplace.domain.rounds.this_round import Round
from marketplace.domain.solver.builder import Quota

SIZES_MAX = 5
"""Of one bid."""
SIZED_MAX = 1_000
"""Bids and their sizes in a round that is searched so; in larger ones all are searched whole."""
ROOM = 1 << 50
"""What one size of a bid counts for, about, and what all may have."""


def sizes_of(bids: Sequence[OpenBid]) -> list[OpenBid]:
    """Return each bid in the sizes it is searched in, the whole one first."""
    sized = [size for bid in bids for size in _sizes(bid)]
    return sized if len(sized) <= SIZED_MAX else list(bids)


def _sizes(bid: OpenBid) -> Iterator[OpenBid]:
    yield bid
    if not bid.has_ranges:
        return
    counts = _steps(bid.gpus_min, bid.gpus)
    lengths = [
        seconds * SECOND for seconds in _steps(bid.duration_min // SECOND, bid.duration // SECOND)
    ]
    wanted = [(counts[0], lengths[0]), (counts[0], bid.duration), (bid.gpus, lengths[0])]
    wanted += [(counts[2], bid.duration), (bid.gpus, lengths[2])]
    if bid.gpus_min == bid.gpus or bid.duration_min == bid.duration:
        wanted = list(zip(counts, lengths, strict=True))
    smaller = [size for size in dict.fromkeys(wanted) if size != (bid.gpus, bid.duration)]
    for gpus, duration in smaller[: SIZES_MAX - 1]:
        yield bid.sized(gpus, duration)


def _steps(least: int, most: int) -> list[int]:
    """Return four steps from the least on, each a quarter of the range more."""
    return [least + (most - least) * step // 4 for step in range(4)]


Counts = tuple[tuple[int, ...], tuple[int, ...]]
"""Quotas that a size counts for, and how much."""


def once(sized: Sequence[OpenBid], first: int) -> tuple[list[Quota], list[Counts]]:
    """Return quotas that let a bid have one of its sizes; and what each size counts there.

    first: the number of the first of these quotas.
    """
    numbers: dict[UUID, int] = {}
    seen: set[UUID] = set()
    for bid in sized:
        if bid.bid_id in seen:
            numbers.setdefault(bid.bid_id, first + len(numbers))
        seen.add(bid.bid_id)
    counts: list[Counts] = [
        ((numbers[bid.bid_id],), (ROOM // (bid.gpus * bid.duration),))
        if bid.bid_id in numbers
        else ((), ())
        for bid in sized
    ]
    return [Quota(gpu_ms=ROOM) for _ in numbers], counts


def grown(
    this: Round,
    given: Iterable[Found],
    whole: Iterable[OpenBid],
    calendar: Calendar,
    tries: Tries,
) -> tuple[list[Found], int]:
    """Give those who got a smaller size more of what is left free, if that is worth more.

    Calendar and gate have the grants, and then what they became.

    Returns:
        The grants, and what they are worth more, in nano-units.
    """
    wishes = {bid.bid_id: bid for bid in whole}
    found, more = [], 0
    for bid, placement in given:
        wish = wishes[bid.bid_id]
        now_has = (bid, placement)
        is_smaller = (bid.gpus, bid.duration) != (wish.gpus, wish.duration)
        if is_smaller and tries.more(bid.bid_id):
            now_has = _grown(this, wish, now_has, calendar)
            more += _worth(now_has, this.at) - _worth((bid, placement), this.at)
        found.append(now_has)
    return found, more


def _grown(this: Round, wish: OpenBid, had: Found, calendar: Calendar) -> Found:
    book, gate, now, lease_id = this.book, this.gate, this.at, this.lease_id(wish)
    this.give_back(calendar, *had)
    entries = list(others(book, wish, book.entries(wish.shape)))
    new = fit(wish, entries, calendar, now=now)
    better = new is not None and _worth(new, now) > _worth(had, now)
    got = new if new is not None and better else had
    if got is not had and gate is not None and not gate.moves(*got, lease_id):
        got = had
    this.take(calendar, *got)
    return got


def _worth(found: Found, now: int) -> int:
    bid, placement = found
    rate = bid.limit + weight_of(bid, now=now)
    gain = sum(rate - listed.floor for listed, _ in placement.gpus)
    return gain * bid.duration // MILLIS_PER_HOUR
