"""What a round can give out, as groups of GPUs that are alike.

GPUs of one offer with the same attributes and the same free spans are one pool: whichever of them
serves a bid is all the same. So a round counts GPUs instead of naming them, and names them when it
is over: with equal free spans, whoever counts right can always be served.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from listings.domain.events import Gpu
from marketplace.domain.book.book import Book
from marketplace.domain.facts.instants import Millis, whole_second
from marketplace.domain.orderbook.calendar import Calendar
from marketplace.domain.orderbook.listed_offer import Listed, Spans
from marketplace.domain.orderbook.open_bid import OpenBid, Shape


@dataclass(frozen=True, slots=True)
class Pool:
    """GPUs of one offer that are alike and free at the same times. spans: in milliseconds."""

    listed: Listed
    uuids: tuple[str, ...]
    spans: Spans
    link: str | None

    def free(self, starts: int, ends: int) -> bool:
        """Tell if its GPUs are free over all of [starts, ends)."""
        return any(opens <= starts and ends <= closes for opens, closes in self.spans)


def pools_of(
    book: Book, shapes: Iterable[Shape], calendar: Calendar, *, since: int, until: int
) -> tuple[list[Pool], dict[Shape, list[int]]]:
    """Return the pools that may serve any of the shapes, and for each shape which of them do.

    Pools are in the order of their offers' ranks; those without a free span are left out.
    """
    listed: dict[int, Listed] = {}
    served: dict[Shape, dict[int, frozenset[str]]] = {}
    for shape in shapes:
        entries = book.entries(shape)
        served[shape] = {id(entry.listed): frozenset(entry.uuids) for entry in entries}
        listed.update((id(entry.listed), entry.listed) for entry in entries)
    pools = [
        pool
        for offer in sorted(listed.values(), key=lambda offer: offer.rank)
        for pool in _pools(offer, calendar, since, until)
    ]
    fits = {
        shape: [
            number
            for number, pool in enumerate(pools)
            if pool.uuids[0] in by_offer.get(id(pool.listed), ())
        ]
        for shape, by_offer in served.items()
    }
    return pools, fits


def _pools(listed: Listed, calendar: Calendar, since: int, until: int) -> list[Pool]:
    alike: dict[tuple[Gpu, Spans], list[str]] = {}
    for gpu in listed.terms.gpus:
        spans = tuple(
            (Millis(max(opens, since)), Millis(min(closes, until)))
            for opens, closes in listed.free(gpu.uuid, calendar, since=since, until=until)
            if max(opens, since) < min(closes, until)
        )
        if spans:
            alike.setdefault((replace(gpu, uuid=""), spans), []).append(gpu.uuid)
    return [
        Pool(listed, tuple(sorted(uuids)), spans, gpu.nvlink_group)
        for (gpu, spans), uuids in alike.items()
    ]


class Wanted(NamedTuple):
    """Some GPUs of a pool for a bid. last: when it may start at the latest; may it start later."""

    bid: OpenBid
    gpus: int
    starts: int
    last: int


class Named(NamedTuple):
    """The GPUs of one pool that a bid got, and when it starts there."""

    uuids: tuple[str, ...]
    starts: int


def named(pool: Pool, wanted: Sequence[Wanted]) -> dict[OpenBid, Named]:
    """Give each bid its GPUs of one pool, clean ones; who can have none so soon starts later.

    Args:
        wanted: at no instant more than the pool has. In order of time each takes GPUs that are
            idle and clean by then, those first that have been idle for the shortest time: so long
            holes stay long. Where a pool is not cleaned, all start when they want to.

    Returns:
        The GPUs of all that get some.
    """
    cleaning = pool.listed.cleaning
    idle_since = dict.fromkeys(pool.uuids, 0)
    given: dict[OpenBid, Named] = {}
    for bid, gpus, starts, last in sorted(wanted, key=lambda each: (each[2], each[0].price_time)):
        at = max(starts, sorted(idle_since.values())[gpus - 1])
        assert at == starts or cleaning, "a pool was given out twice"
        if at > starts:
            at = whole_second(at)
            if at > last or not pool.free(at, at + bid.duration):
                continue
        idle = [uuid for uuid, since in idle_since.items() if since <= at]
        chosen = sorted(idle, key=lambda uuid: (-idle_since[uuid], uuid))[:gpus]
        idle_since.update((uuid, at + bid.duration + cleaning) for uuid in chosen)
        given[bid] = Named(tuple(chosen), at)
    return given
