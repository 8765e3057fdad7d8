"""What a round can give out, as groups of GPUs that are alike.

GPUs of one offer with the same attributes and the same free spans are one pool: whichever of them
serves a bid is all the same. So a round counts GPUs instead of naming them, and names them when it
is over: with equal free spans, whoever counts right can always be served.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from listings.domain.events import Gpu
from marketplace.domain.book import Book
from marketplace.domain.calendar import Calendar
from marketplace.domain.demand import OpenBid, Shape
from marketplace.domain.moments import Millis
from marketplace.domain.supply import Listed, Spans


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
            if closes > since and opens < until
        )
        if spans:
            alike.setdefault((replace(gpu, uuid=""), spans), []).append(gpu.uuid)
    return [
        Pool(listed, tuple(sorted(uuids)), spans, gpu.nvlink_group)
        for (gpu, spans), uuids in alike.items()
    ]


def named(
    pool: Pool, wanted: Sequence[tuple[OpenBid, int, int, int]]
) -> dict[OpenBid, tuple[str, ...]]:
    """Give each bid its GPUs of one pool.

    Args:
        wanted: bid, how many GPUs, from when, until when (milliseconds); at no instant more than
            the pool has. In order of time each takes GPUs that are idle by then, those first that
            have been idle for the shortest time: so long holes stay long.
    """
    idle_since = dict.fromkeys(pool.uuids, 0)
    given: dict[OpenBid, tuple[str, ...]] = {}
    for bid, gpus, starts, ends in sorted(wanted, key=lambda each: (each[2], each[0].price_time)):
        idle = [uuid for uuid, since in idle_since.items() if since <= starts]
        assert len(idle) >= gpus, "a pool was given out twice"
        chosen = sorted(idle, key=lambda uuid: (-idle_since[uuid], uuid))[:gpus]
        idle_since.update((uuid, ends) for uuid in chosen)
        given[bid] = tuple(chosen)
    return given
