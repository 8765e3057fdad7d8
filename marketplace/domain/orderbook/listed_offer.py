"""An offer as it stands in the book: its floor, its state, its windows, and what of it is free."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from ledger.domain.ids import BidId, OfferId, text_of
from ledger.domain.span import Window
from listings.domain.events import OfferPublished, WeeklyRule
from listings.domain.recurrence import is_unbroken, last_end, occurrences
from listings.domain.windows import windows_of
from marketplace.domain.facts.instants import (
    ONE_MILLI,
    Millis,
    from_above,
    from_below,
    moment,
    whole_second,
)
from marketplace.domain.orderbook.calendar import Calendar, Taken, gaps
from marketplace.domain.orderbook.compatibility import Kind, kind_of
from marketplace.domain.orderbook.host_reliability import Record

KNOWN_AHEAD = timedelta(days=7)
"""Weekly windows are worked out this much further than asked, so that it is seldom done."""

LONG_AGO, FAR_AHEAD = (
    from_above(datetime(1970, 1, 1, tzinfo=UTC)),
    from_below(datetime(2200, 1, 1, tzinfo=UTC)),
)
WEEK = timedelta(days=7) // ONE_MILLI
NEVER = 1 << 62

Spans = tuple[tuple[Millis, Millis], ...]


@dataclass(slots=True, eq=False)
class Listed:
    """One offer. since: store position of its publication or last change of floor or state.

    Whoever came to the book first, offer or bid, sets the price of a trade: `since` decides it.
    """

    terms: OfferPublished
    since: int
    floor: int
    paused: bool = False
    gone: bool = False
    """Whether it is in the book no more."""
    published: int = field(init=False)
    """Store position of the publication."""
    lease_min: int = field(init=False)
    """In milliseconds."""
    cleaning: int = field(init=False)
    """In milliseconds: a GPU stays free so long between two leases."""
    groups: dict[str, str | None] = field(init=False)
    """The NVLink group of each GPU."""
    kind: Kind = field(init=False)
    specs: tuple[int, ...] = field(init=False)
    """For each GPU, the place of its spec in the kind."""
    number: int = field(init=False)
    """Of its kind, in the catalogue that it is in."""
    parted: bool = field(init=False)
    """Whether its GPUs are shares of cards."""
    record: Record = field(init=False)
    """How reliable its host has proved; the book's own, as it is now."""
    text: str = field(init=False)
    """The id, as it is sorted by."""
    fits: dict[int, tuple[tuple[str, ...], frozenset[str]]] = field(default_factory=dict)
    """Which GPUs, of which models, fit each shape of bid (by number) that was asked about."""
    _windows: Spans = ()
    _known_from: int | None = None
    _known_until: int = 0
    _free: dict[str, tuple[tuple[Taken, ...], Spans, Spans]] = field(default_factory=dict)
    """By GPU: what is taken of it, the windows, what is free; under "" where nothing is taken."""

    def __post_init__(self) -> None:
        self.published = self.since
        self.lease_min = self.terms.lease_min_seconds * 1000
        self.cleaning = self.terms.cleaning_seconds * 1000
        self.kind, self.specs = kind_of(self.terms)
        self.text = text_of(self.terms.offer_id)
        self.record = Record()
        self.parted = self.terms.division is not None
        self.groups = {gpu.uuid: gpu.nvlink_group for gpu in self.terms.gpus}

    @property
    def offer_id(self) -> OfferId:
        """Return the offer's id."""
        return self.terms.offer_id

    @property
    def rank(self) -> tuple[int, int, str]:
        """Return the place among offers: cheapest, then oldest, then by id."""
        return (self.floor, self.since, self.text)

    def open_to(self, bid_id: BidId) -> bool:
        """Tell if the offer is for everybody, or for this bid."""
        return self.terms.reserved_for is None or self.terms.reserved_for == bid_id

    @property
    def known(self) -> tuple[int, int]:
        """Return from when until when the windows are known; those of no weekly rule always are."""
        return (NEVER if self._known_from is None else self._known_from, self._known_until)

    def windows(self, since: int, until: int) -> Spans:
        """Return the windows that may share time with [since, until), joined where they touch.

        Each is whole, however far they are worked out: where it ends says how tight a gap is.
        """
        if self._known_from is None or since < self._known_from or until > self._known_until:
            self._work_out(since, until)
        return self._windows

    def _work_out(self, since: int, until: int) -> None:
        if self.terms.weekly is None:
            start, end = min(since, LONG_AGO), max(until, FAR_AHEAD)
            self._windows = joined(self.terms.windows)
        else:
            start = since if self._known_from is None else min(since, self._known_from)
            end = max(until, self._known_until) + KNOWN_AHEAD // ONE_MILLI
            self._windows = whole_windows(self.terms, start, end)
        self._known_from, self._known_until = start, end

    def free(self, uuid: str, calendar: Calendar, *, since: int, until: int) -> Spans:
        """Return the free spans of one GPU within the windows, in order; some may lie outside.

        Each starts on a whole second. Time to clean up after a lease, and before one that is
        granted already, is not free. Kept until windows or calendar change.
        """
        return self._free_of(uuid, self.windows(since, until), calendar)

    def all_free(self, calendar: Calendar, *, since: int, until: int) -> list[tuple[str, Spans]]:
        """Return the same of every GPU, with its UUID."""
        windows, free_of = self.windows(since, until), self._free_of
        if not self.parted and not calendar.has_taken(self.groups):
            free = free_of("", windows, calendar)
            return [(uuid, free) for uuid in self.groups]
        return [(uuid, free_of(uuid, windows, calendar)) for uuid in self.groups]

    def _free_of(self, uuid: str, windows: Spans, calendar: Calendar) -> Spans:
        taken = calendar.of(uuid)
        if self.parted or calendar.parted:
            taken = calendar.with_rivals(uuid, taken)
        known = self._free.get(uuid if taken else "")
        if known is not None and known[0] is taken and known[1] is windows:
            return known[2]
        free = gaps(windows, self._with_cleaning(taken) if self.cleaning else taken)
        spans = tuple([(at, ends) for starts, ends in free if (at := whole_second(starts)) < ends])
        self._free[uuid if taken else ""] = (taken, windows, spans)
        return spans

    def _with_cleaning(self, taken: tuple[Taken, ...]) -> tuple[Taken, ...]:
        """Widen what is leased to both sides; what its owner keeps needs no cleaning."""
        gap = self.cleaning
        widened = [
            span
            if span.lease_id is None
            else span._replace(starts=Millis(span.starts - gap), ends=Millis(span.ends + gap))
            for span in taken
        ]
        return tuple(sorted(widened, key=lambda span: (span.starts, span.ends)))

    def covers(self, starts: int, ends: int) -> bool:
        """Tell if one window holds all of [starts, ends)."""
        return any(
            opens <= starts and ends <= closes for opens, closes in self.windows(starts, ends)
        )


def joined(windows: Iterable[Window]) -> Spans:
    """Return windows in order of time, those that touch as one, in milliseconds."""
    found: list[tuple[Millis, Millis]] = []
    for window in sorted(windows):
        starts, ends = from_above(window.starts_at), from_below(window.ends_at)
        if found and starts <= found[-1][1]:
            found[-1] = (found[-1][0], max(ends, found[-1][1]))
        else:
            found.append((starts, ends))
    return tuple(found)


def whole_windows(terms: OfferPublished, since: int, until: int) -> Spans:
    """Return the windows of a weekly offer that end after `since` and start before `until`.

    The last goes on for as long as one touches the next. How far the first reaches back is not
    looked for: time gone by is not for lease.
    """
    looked = until
    while True:
        looked += WEEK
        found = joined(windows_of(terms, since=moment(since), until=moment(looked)))
        found = tuple([each for each in found if each[0] < until])
        if not found or found[-1][1] < looked:
            return found
        weekly = terms.weekly
        assert weekly is not None
        if is_unbroken(weekly) and _comes(weekly, looked):
            last = None if weekly.last is None else last_end(weekly)
            ends = moment(FAR_AHEAD) if last is None else last
            whole = joined([*terms.windows, Window(moment(found[-1][0]), ends)])
            return (*found[:-1], next(each for each in whole if found[-1][0] < each[1]))


def _comes(weekly: WeeklyRule, at: int) -> bool:
    """Tell if a rule has a window just before an instant: it has begun, and is not over."""
    return any(occurrences(weekly, since=moment(at - 1), until=moment(at)))


class Entry(NamedTuple):
    """The GPUs of one offer that fit one shape of bid. Sorts by the offer's rank."""

    floor: int
    since: int
    offer: str
    listed: Listed
    uuids: tuple[str, ...]
    models: frozenset[str]
