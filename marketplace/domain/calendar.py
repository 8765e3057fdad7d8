"""Who holds which GPU when: the one place where capacity is taken and given back."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ledger.domain.ids import LeaseId
from marketplace.domain.moments import Millis


class Taken(NamedTuple):
    """A half-open span of one GPU. lease_id None: its owner took it back and keeps it."""

    starts: Millis
    ends: Millis
    lease_id: LeaseId | None


class Calendar:
    """The taken spans of every GPU, by UUID: in order, never overlapping.

    A fork sees what its parent has and keeps its own changes to itself: that is how a round is
    tried out. The parent must not change while a fork is in use.
    """

    def __init__(self, parent: Calendar | None = None) -> None:
        self._parent = parent
        self._taken: dict[str, tuple[Taken, ...]] = {}
        self.changes = 0
        """Counts what was taken and given back here."""

    def fork(self) -> Calendar:
        """Return a calendar that starts as this one."""
        return Calendar(self)

    def of(self, uuid: str) -> tuple[Taken, ...]:
        """Return the taken spans of a GPU, in order of time."""
        spans = self._taken.get(uuid)
        if spans is None:
            spans = () if self._parent is None else self._parent.of(uuid)
        return spans

    def gpus(self) -> Iterator[str]:
        """Yield every GPU of which something is taken, in order."""
        assert self._parent is None, "ask the calendar that the fork came from"
        yield from sorted(uuid for uuid, spans in self._taken.items() if spans)

    def is_free(self, uuid: str, starts: int, ends: int) -> bool:
        """Tell if nobody holds the GPU at any instant of [starts, ends)."""
        return not any(span.starts < ends and starts < span.ends for span in self.of(uuid))

    def take(self, uuid: str, span: Taken) -> None:
        """Give a span of a GPU to somebody; it must be free."""
        assert span.starts < span.ends
        spans = self.of(uuid)
        place = bisect_left(spans, span[:1])  # no tuple is shorter, so the start decides
        assert place == 0 or spans[place - 1].ends <= span.starts, f"{uuid} is leased twice"
        assert place == len(spans) or span.ends <= spans[place].starts, f"{uuid} is leased twice"
        self._taken[uuid] = (*spans[:place], span, *spans[place:])
        self.changes += 1

    def drop(self, uuid: str, lease_id: LeaseId | None) -> Sequence[Taken]:
        """Give back all spans that somebody holds of a GPU, and return them."""
        spans = self.of(uuid)
        dropped = [span for span in spans if span.lease_id == lease_id]
        if dropped:
            self._taken[uuid] = tuple(span for span in spans if span.lease_id != lease_id)
            self.changes += 1
        return dropped

    def forget_before(self, millis: int) -> None:
        """Drop what is over, to bound memory."""
        for uuid, spans in list(self._taken.items()):
            if spans and spans[0].ends <= millis:
                kept = tuple(span for span in spans if span.ends > millis)
                if kept:
                    self._taken[uuid] = kept
                else:
                    del self._taken[uuid]


def gaps(
    windows: Iterable[tuple[int, int]], taken: Sequence[Taken]
) -> tuple[tuple[Millis, Millis], ...]:
    """Return what of `windows` is not taken; all in order of time, none overlapping."""
    free: list[tuple[Millis, Millis]] = []
    index = 0
    for starts, ends in windows:
        at = starts
        while index < len(taken) and taken[index].ends <= at:
            index += 1
        look = index
        while look < len(taken) and taken[look].starts < ends:
            if at < taken[look].starts:
                free.append((Millis(at), taken[look].starts))
            at = max(at, taken[look].ends)
            look += 1
        if at < ends:
            free.append((Millis(at), Millis(ends)))
    return tuple(free)
