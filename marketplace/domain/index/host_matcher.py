"""The room on a host that has one offer, and where bids go there: what `placement` says, faster.

Most hosts have one offer with GPUs that are all alike. What differs between them is then only when
they are free, and mostly many are free at the same time: they are looked at together. And which of
them are linked: that says whom a bid gets, and nothing else.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator

from marketplace.domain.facts.instants import Millis, whole_second
from marketplace.domain.index.availability import Free, Hosts
from marketplace.domain.index.bid_queue import Selection, is_plain
from marketplace.domain.index.offer_index import Catalogue
from marketplace.domain.orderbook.calendar import Calendar
from marketplace.domain.orderbook.listed_offer import Listed, Spans
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.placement.placement import Placement


def is_uniform(listed: Listed) -> bool:
    """Tell if but two things tell the GPUs of an offer apart: when they are free, and links."""
    named_well = "" not in listed.groups.values()
    return listed.terms.reserved_for is None and not listed.paused and named_well


class OneHost:
    """When the GPUs of the only offer of a host are free, while room is only taken.

    until: nobody is to be placed there who has to be over later than this, in milliseconds.
    """

    placed: Placement | None = None
    """Where the bid that was yielded last goes, if that is known and taken already."""

    def __init__(
        self, listed: Listed, catalogue: Catalogue, calendar: Calendar, *, now: int, until: int
    ) -> None:
        self.listed = listed
        self._changes = 0
        self._catalogue = catalogue
        self._since = whole_second(now)
        self._now, self._until = now, until
        self._linked = any(group is not None for group in listed.groups.values())
        self._look(calendar)

    def _look(self, calendar: Calendar) -> None:
        self._gpus: dict[tuple[int, int], list[str]] = defaultdict(list)
        """The GPUs that are free during a span, by id."""
        for uuid, spans in self._free(calendar):
            for span in spans:
                self._gpus[span].append(uuid)

    def _free(self, calendar: Calendar) -> list[tuple[str, Spans]]:
        """Return the free spans of each GPU from now on, by id."""
        free = self.listed.all_free(calendar, since=self._now, until=self._until)
        of_spans: dict[int, Spans] = {}
        for _, spans in free:  # mostly many GPUs have the very same
            if id(spans) not in of_spans:
                of_spans[id(spans)] = self._coming(spans)
        return sorted((uuid, of_spans[id(spans)]) for uuid, spans in free)

    def _coming(self, spans: Spans) -> Spans:
        since = self._since
        if spans and spans[0][0] >= since:
            return spans
        return tuple([(max(opens, since), closes) for opens, closes in spans if closes > since])

    def serves(self, bid: OpenBid) -> bool:
        """Tell if `place` is to be asked for a bid: nobody else's GPUs, and no choice of them."""
        return (
            is_plain(bid)
            and bid.terms.tenant_id != self.listed.terms.tenant_id
            and self._catalogue.fits_whole(self.listed, bid.shape)
        )

    def bids(self, served: Selection) -> Iterator[OpenBid]:
        """Yield the bids that may find room, in order; who asks takes room for one at a time."""
        return served.with_room(
            lambda: Hosts([Free(self._of_each())]), lambda: self._changes, self._now
        )

    def _of_each(self) -> list[list[tuple[int, int]]]:
        """Return when each of its GPUs is free."""
        gpus: dict[str, list[tuple[int, int]]] = {uuid: [] for uuid in self.listed.groups}
        for span in sorted(self._gpus):
            for uuid in self._gpus[span]:
                gpus[uuid].append(span)
        return list(gpus.values())

    def place(self, bid: OpenBid) -> Placement | None:
        """Find GPUs for a bid that asks for nothing but GPUs of one host which fit, all alike."""
        duration, deadline = bid.duration, bid.deadline
        earliest = max(bid.earliest, self._since)
        listed = self.listed
        if listed.floor > bid.limit or listed.lease_min > duration or self._now > bid.lapses:
            return None
        room = []
        for (opens, closes), uuids in self._gpus.items():
            first = opens if opens > earliest else earliest
            last = (closes if closes < deadline else deadline) - duration
            if first <= last:
                room.append((first, last, closes - opens, uuids))
        at = _earliest(room, bid.gpus)
        if at is None:
            return None
        serving = [
            (length, uuid)
            for first, last, length, uuids in room
            if first <= at <= last
            for uuid in uuids
        ]
        serving.sort()  # tight gaps first
        if self._linked:
            serving = self._by_links(serving, bid.gpus)
        gpus = tuple([(listed, uuid) for _, uuid in serving[: bid.gpus]])
        return Placement(Millis(at), gpus, listed.floor)

    def _by_links(self, serving: list[tuple[int, str]], gpus: int) -> list[tuple[int, str]]:
        """Put one NVLink group that just suffices first, as `placement` does."""
        groups = self.listed.groups
        sizes = Counter(groups[uuid] for _, uuid in serving)

        def preference(one: tuple[int, str]) -> tuple[bool, int, str]:
            group = groups[one[1]]
            size = 1 if group is None else sizes[group]
            return (size < gpus, -size if size < gpus else size, group or "")

        return sorted(serving, key=preference)

    def take(self, uuids: Collection[str], starts: int, ends: int) -> None:
        """Give a span of some GPUs to somebody; those of other hosts are left out."""
        self._changes += 1
        gap = self.listed.cleaning
        before, after = starts - gap, whole_second(ends + gap)
        wanted = set(uuids)
        # Time to clean may reach over the end of a window into the next one.
        for span in [(o, c) for o, c in self._gpus if o < after and before < c]:
            opens, closes = span
            free = self._gpus[span]
            taken = wanted.intersection(free)
            if not taken:
                continue
            kept = [uuid for uuid in free if uuid not in taken]
            if kept:
                self._gpus[span] = kept
            else:
                del self._gpus[span]
            for piece in ((opens, before), (after, closes)):
                if piece[0] < piece[1]:
                    for uuid in taken:
                        insort(self._gpus[piece], uuid)


def _earliest(room: list[tuple[int, int, int, list[str]]], gpus: int) -> int | None:
    """Return the first instant at which so many GPUs can begin.

    room: from when until when, for spans that some GPUs are free; no two spans of one GPU meet.
    """
    if gpus == 1:
        return min([first for first, _, _, _ in room]) if room else None
    room.sort(key=_first)
    for at, _, _, _ in room:
        if sum([len(uuids) for first, last, _, uuids in room if first <= at <= last]) >= gpus:
            return at
    return None


def _first(span: tuple[int, int, int, list[str]]) -> int:
    return span[0]
