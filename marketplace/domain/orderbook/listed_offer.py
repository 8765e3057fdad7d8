"""An offer as it stands in the book: its floor, state, windows, what of it is free, and its kind.

Offers of one kind are alike in all that decides what fits them. A market has thousands of offers
and bids, but few kinds and shapes: which shape of bid fits which kind is worked out once for each
pair of them and kept in a table of booleans that NumPy can filter by.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ledger.domain.ids import BidId, OfferId, text_of
from ledger.domain.span import Window
from listings.domain.events import Gpu, Isolation, OfferPublished, WeeklyRule
from listings.domain.recurrence import is_unbroken, last_end, occurrences
from listings.domain.sandboxes import AgentSays
from listings.domain.sla import NO_LEVEL, ServiceLevel
from listings.domain.windows import windows_of
from marketplace.domain.facts.instants import (
    ONE_MILLI,
    Millis,
    from_above,
    from_below,
    moment,
    whole_second,
)
from marketplace.domain.kernels.layout import Bools
from marketplace.domain.orderbook.calendar import Calendar, Taken, gaps
from marketplace.domain.orderbook.host_reliability import Record
from marketplace.domain.orderbook.open_bid import Shape

KINDS_START, SHAPES_START = 64, 64


class Spec(NamedTuple):
    """What one GPU of an offer is. gpu: without a name; joined: GPUs of its NVLink group here."""

    gpu: Gpu
    joined: int


class Kind(NamedTuple):
    """What an offer is, as far as constraints look at it. specs: each once.

    sandbox, abilities: of its host, as its agent last said. level: of service, as promised.
    """

    specs: tuple[Spec, ...]
    region: str
    labels: tuple[tuple[str, str], ...]
    isolation: Isolation
    workload_kinds: tuple[str, ...]
    currency: str
    sandbox: str = ""
    abilities: tuple[str, ...] = ()
    level: ServiceLevel = NO_LEVEL


NAMES = ("uuid", "nvlink_group", "card_uuid")
"""What of a GPU says which it is, not what it is."""
NO_NAMES: dict[str, Any] = {"uuid": "", "nvlink_group": None, "card_uuid": None}
_SAYS_WHAT = tuple(f.name for f in fields(Gpu) if f.name not in NAMES)
_alike = attrgetter(*_SAYS_WHAT)


@lru_cache(maxsize=4_096)
def _nameless(alike: tuple[Any, ...]) -> Gpu:
    """Return what GPUs are that are alike: the same object, so that it is compared at once."""
    return Gpu(**dict(zip(_SAYS_WHAT, alike, strict=True)), **NO_NAMES)


def kind_of(offer: OfferPublished) -> tuple[Kind, tuple[int, ...]]:
    """Return an offer's kind, and for each of its GPUs the place of its spec there."""
    groups = [gpu.nvlink_group for gpu in offer.gpus if gpu.nvlink_group]
    joined = Counter(groups) if groups else {}
    keys = [
        (_alike(gpu), joined[gpu.nvlink_group] if gpu.nvlink_group else 0) for gpu in offer.gpus
    ]
    # In an order of their own, so that two offers with the same GPUs are of one kind.
    is_one = keys.count(keys[0]) == len(keys)
    distinct = keys[:1] if is_one else sorted(set(keys), key=repr)
    kind = Kind(
        tuple([Spec(_nameless(alike), linked) for alike, linked in distinct]),
        offer.region,
        offer.labels,
        offer.isolation,
        offer.workload_kinds,
        offer.floor.currency,
    )
    return kind, (0,) * len(keys) if is_one else tuple([distinct.index(key) for key in keys])


class Kinds:
    """Numbers for kinds and shapes, and the table of which fit.

    passed: how many constraints each spec of a kind passes for a shape before the first that it
    does not; `all_passed` means that it fits. Numbers are never used again.
    """

    def __init__(self, passed: Callable[[Shape, Kind], tuple[int, ...]], all_passed: int) -> None:
        self._passed = passed
        self._all_passed = all_passed
        self._kinds: dict[Kind | frozenset[int], int] = {}
        self._shapes: dict[Shape, int] = {}
        self._listed_kinds: list[Kind | frozenset[int]] = []
        self._listed_shapes: list[Shape] = []
        self._specs: list[dict[int, tuple[int, ...]]] = []
        self._table: Bools = np.zeros((KINDS_START, SHAPES_START), np.bool_)
        self._last: tuple[Shape | None, int] = (None, 0)
        self._fitting: dict[int, tuple[int, list[int]]] = {}
        """For each kind, the shapes that it fits, of so many."""

    @property
    def table(self) -> Bools:
        """Return which kinds (rows) fit which shapes (columns)."""
        return self._table

    @property
    def shapes(self) -> int:
        """Return how many shapes there are."""
        return len(self._listed_shapes)

    @property
    def kinds(self) -> int:
        """Return how many kinds there are, mixed ones included."""
        return len(self._listed_kinds)

    def kind(self, kind: Kind) -> int:
        """Return a kind's number."""
        number = self._kinds.get(kind)
        return self._new_kind(kind) if number is None else number

    def mixed(self, kinds: frozenset[int]) -> int:
        """Return the number that stands for offers of several kinds: fits what fits any."""
        if len(kinds) == 1:
            return next(iter(kinds))
        number = self._kinds.get(kinds)
        return self._new_kind(kinds) if number is None else number

    def shape(self, shape: Shape) -> int:
        """Return a shape's number."""
        if shape is self._last[0]:  # asked several times for one bid
            return self._last[1]
        number = self._shapes.get(shape)
        if number is None:
            number = self._new_shape(shape)
        self._last = (shape, number)
        return number

    def _new_shape(self, shape: Shape) -> int:
        number = self._shapes[shape] = len(self._listed_shapes)
        self._listed_shapes.append(shape)
        self._make_room()
        for row in range(len(self._listed_kinds)):
            self._fill(row, number)
        return number

    def fitting(self, kind: int) -> list[int]:
        """Return the shapes that a kind fits, in order."""
        shapes = len(self._listed_shapes)
        known = self._fitting.get(kind)
        if known is None or known[0] != shapes:
            found: list[int] = self._table[kind, :shapes].nonzero()[0].tolist()
            known = self._fitting[kind] = (shapes, found)
        return known[1]

    def fitting_sets(self, kinds: Sequence[int]) -> npt.NDArray[np.int64]:
        """Return for each shape which of some kinds fit it: one bit for each, the first lowest."""
        fits = self._table[list(kinds), : len(self._listed_shapes)]
        sets: npt.NDArray[np.int64] = (1 << np.arange(len(kinds))) @ fits.astype(np.int64)
        return sets

    def fitting_specs(self, kinds: Sequence[int]) -> npt.NDArray[np.int64]:
        """Return for each shape which specs of some kinds fit it: one bit for each, in order."""
        shapes = len(self._listed_shapes)
        if len(kinds) == 1 and len(self._specs[kinds[0]].get(0, ())) == 1:
            return self._table[kinds[0], :shapes].astype(np.int64)
        found, bit = np.zeros(shapes, np.int64), 1
        for kind in kinds:
            passed = self._specs[kind]
            for spec in range(len(passed[0]) if passed else 0):
                fits = [passed[shape][spec] == self._all_passed for shape in self.fitting(kind)]
                found[self.fitting(kind)] += bit * np.array(fits, np.int64)
                bit <<= 1
        return found

    def specs(self, kind: int, shape: int) -> tuple[int, ...]:
        """Return for each spec of a kind how many constraints it passes; not of a mixed kind."""
        return self._specs[kind][shape]

    def _new_kind(self, kind: Kind | frozenset[int]) -> int:
        number = self._kinds[kind] = len(self._listed_kinds)
        self._listed_kinds.append(kind)
        self._specs.append({})
        self._make_room()
        for column in range(len(self._listed_shapes)):
            self._fill(number, column)
        return number

    def _fill(self, row: int, column: int) -> None:
        kind = self._listed_kinds[row]
        if isinstance(kind, Kind):
            passed = self._passed(self._listed_shapes[column], kind)
            self._specs[row][column] = passed
            self._table[row, column] = self._all_passed in passed
        else:
            self._table[row, column] = any(self._table[part, column] for part in kind)

    def _make_room(self) -> None:
        rows, columns = self._table.shape
        if len(self._listed_kinds) > rows or len(self._listed_shapes) > columns:
            rows = rows if len(self._listed_kinds) <= rows else rows * 2
            columns = columns if len(self._listed_shapes) <= columns else columns * 2
            grown = np.zeros((rows, columns), np.bool_)
            grown[: self._table.shape[0], : self._table.shape[1]] = self._table
            self._table = grown


KNOWN_AHEAD = timedelta(days=7)
"""Weekly windows are worked out this much further than asked, so that it is seldom done."""

LONG_AGO = from_above(datetime(1970, 1, 1, tzinfo=UTC))
FAR_AHEAD = from_below(datetime(2200, 1, 1, tzinfo=UTC))
WEEK = timedelta(days=7) // ONE_MILLI
NEVER = 1 << 62

Spans = tuple[tuple[Millis, Millis], ...]
_Alike = tuple[Spans, list[tuple[Taken, ...]], Sequence[tuple[Spans, Sequence[str]]]]


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
    one_tenant: bool = False
    """Whether its host cannot keep the works of different tenants apart."""
    text: str = field(init=False)
    """The id, as it is sorted by."""
    fits: dict[int, tuple[tuple[str, ...], frozenset[str]]] = field(default_factory=dict)
    """Which GPUs, of which models, fit each shape of bid (by number) that was asked about."""
    _windows: Spans = ()
    _known_from: int | None = None
    _known_until: int = 0
    _free: dict[str, tuple[tuple[Taken, ...], Spans, Spans]] = field(default_factory=dict)
    """By GPU: what is taken of it, the windows, what is free; under "" where nothing is taken."""
    _alike: dict[tuple[str, ...], _Alike] = field(default_factory=dict)  # what `free_alike` told
    _latest: tuple[tuple[Taken, ...], Spans, Spans] = ((), (), ())
    """What was asked for last."""

    def __post_init__(self) -> None:
        self.published = self.since
        self.lease_min = self.terms.lease_min_seconds * 1000
        self.cleaning = self.terms.cleaning_seconds * 1000
        self.kind, self.specs = kind_of(self.terms)
        self.text = text_of(self.terms.offer_id)
        self.record = Record()
        self.parted = self.terms.division is not None
        self.groups = {gpu.uuid: gpu.nvlink_group for gpu in self.terms.gpus}

    def on_host(self, says: AgentSays, level: ServiceLevel = NO_LEVEL) -> None:
        """Take note of what agent and owner say; not while the offer is in a catalogue."""
        self.kind = self.kind._replace(sandbox=says.sandbox, abilities=says.abilities, level=level)
        self.one_tenant = not says.keeps_tenants_apart

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
        return self._free_of(uuid, calendar.of(uuid), self.windows(since, until), calendar)

    def all_free(self, calendar: Calendar, *, since: int, until: int) -> list[tuple[str, Spans]]:
        """Return the same of every GPU, with its UUID."""
        alike = self.free_alike(tuple(self.groups), calendar, since=since, until=until)
        return [(uuid, spans) for spans, uuids in alike for uuid in uuids]

    def free_alike(
        self, uuids: tuple[str, ...], calendar: Calendar, *, since: int, until: int
    ) -> Sequence[tuple[Spans, Sequence[str]]]:
        """Return the same of some GPUs, once for those next to each other that are free alike."""
        windows, taken = self.windows(since, until), calendar.of_each(uuids)
        if self.parted or calendar.parted:
            each = zip(uuids, taken, strict=True)
            return [(self._free_of(uuid, it, windows, calendar), (uuid,)) for uuid, it in each]
        known = self._alike.get(uuids)
        if known is None or known[0] is not windows or known[1] != taken:
            alike = list[tuple[Spans, list[str]]]()
            for uuid, last, it in zip(uuids, (None, *taken), taken, strict=False):
                if it is not last:
                    alike.append((self._free_of(uuid, it, windows, calendar), []))
                alike[-1][1].append(uuid)
            known = self._alike[uuids] = (windows, taken, alike)
        return known[2]

    def _free_of(
        self, uuid: str, taken: tuple[Taken, ...], windows: Spans, calendar: Calendar
    ) -> Spans:
        if self.parted or calendar.parted:
            taken = calendar.with_rivals(uuid, taken)
        known = self._latest  # GPUs that are leased together are free together
        if known[0] is not taken or known[1] is not windows:
            which = uuid if taken else ""
            kept = self._free.get(which)
            if kept is None or kept[0] is not taken or kept[1] is not windows:
                free = gaps(windows, self._with_cleaning(taken) if self.cleaning else taken)
                spans = [(at, ends) for starts, ends in free if (at := whole_second(starts)) < ends]
                kept = self._free[which] = (taken, windows, tuple(spans))
            known = self._latest = kept
        return known[2]

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
