"""All offers of a market, found by what they are, what they cost and when they have room.

Offers of one host are looked up together, because they may serve a bid together. What is found
are hosts that may have room; whether they do is for `placement` to say, which sees every GPU.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np

from ledger.domain.ids import HostId, OfferId
from marketplace.domain.index.availability import ANYBODY, Free, Hosts
from marketplace.domain.index.bid_queue import Selection
from marketplace.domain.index.floors import Floors
from marketplace.domain.index.free_levels import (
    ALWAYS,
    NO_OFFERS,
    Asked,
    HostColumns,
    Rows,
    level_of,
    levels_of,
)
from marketplace.domain.index.price_levels import Ranking
from marketplace.domain.kernels.layout import KNOWN_FROM, KNOWN_UNTIL, Ints
from marketplace.domain.orderbook.calendar import Calendar
from marketplace.domain.orderbook.listed_offer import Entry, Kinds, Listed, Spans
from marketplace.domain.orderbook.open_bid import OpenBid, Shape
from marketplace.domain.placement.eligibility import CONSTRAINTS, passed

SHAPES_MAX = 2_000
"""Shapes kept; beyond, those that no bid has any more are forgotten."""
KINDS_APART_MAX = 4
"""Kinds of offers on one host, up to which it is looked at whom each set of them fits."""
NOTHING_ASKED: Asked = (-1, 0, 0, 0, 0)


@dataclass(slots=True, eq=False)
class _Host:
    """One host's offers. loose: some come back every week, so not all its time is known.

    described: whether what the columns say of it is so, but for when it is free.
    """

    slot: int
    offers: dict[OfferId, Listed] = field(default_factory=dict)
    rows: list[Rows] = field(default_factory=list)
    loose: bool = False
    described: bool = False


class Catalogue:
    """Changed by `add`, `remove`, `changed`; whoever changes the calendar says so to `touch`."""

    def __init__(self, calendar: Calendar) -> None:
        self.offers: dict[OfferId, Listed] = {}
        self.kinds = Kinds(passed, len(CONSTRAINTS))
        self.columns = HostColumns()
        self._calendar = calendar
        self._hosts: dict[HostId, _Host] = {}
        self._by_slot: list[_Host] = []
        self._stale: dict[_Host, HostId] = {}
        self.of_kind: dict[int, dict[OfferId, Listed]] = defaultdict(dict)
        self._ranking = Ranking(self.offers, self._entry)
        self._asked = NOTHING_ASKED
        self._roomy: dict[int, tuple[Ints, Ints]] = {}
        """By level, what may have room for what was asked last, at any price."""
        self._witnesses: dict[tuple[int, int], Listed] = {}
        """For each shape and level, an offer that had a window long enough the last time."""
        self._enough: dict[tuple[int, int], Listed] = {}
        """For each shape and number of GPUs, an offer of which so many were free the last time."""

    def under(self, calendar: Calendar) -> Catalogue:
        """Return the same offers, with the room that a fork of the calendar leaves.

        Nothing is added to it or removed; whoever changes the fork says so to its `touch`.
        """
        self._bring_up_to_date()
        other = Catalogue(calendar)
        other.offers, other.kinds, other.of_kind = self.offers, self.kinds, self.of_kind
        other.columns = self.columns.copy()
        other._ranking, other._witnesses = self._ranking, dict(self._witnesses)
        other._by_slot = list(self._by_slot)
        changed = calendar.changed_since(self._calendar)
        for host_id, host in self._hosts.items():
            mine = _Host(host.slot, host.offers, [dict(rows) for rows in host.rows], host.loose)
            other._hosts[host_id] = other._by_slot[host.slot] = mine
            if changed is None or any(
                not changed.isdisjoint(listed.groups) for listed in host.offers.values()
            ):
                other._stale[mine] = host_id
        return other

    # --- changing --------------------------------------------------------------------------

    def add(self, listed: Listed) -> None:
        self.offers[listed.offer_id] = listed
        host = self._hosts.get(listed.terms.host_id)
        if host is None:
            host = self._hosts[listed.terms.host_id] = self._new_host()
        host.offers[listed.offer_id] = listed
        self._number(listed)
        self.changed(listed)

    def _number(self, listed: Listed) -> None:
        listed.number = self.kinds.kind(listed.kind)
        self.of_kind[listed.number][listed.offer_id] = listed

    def remove(self, listed: Listed) -> None:
        del self.offers[listed.offer_id]
        listed.gone = True
        del self._hosts[listed.terms.host_id].offers[listed.offer_id]
        alike = self.of_kind[listed.number]
        del alike[listed.offer_id]
        if not alike:
            del self.of_kind[listed.number]
        self.changed(listed)

    def changed(self, listed: Listed) -> None:
        """Take note that an offer's floor or state is another."""
        host_id = listed.terms.host_id
        self._hosts[host_id].described = False
        self.touch(host_id)
        self._ranking.changed(listed)

    def touch(self, host_id: HostId) -> None:
        """Take note that some of a host's capacity was taken or given back."""
        host = self._hosts.get(host_id)
        if host is not None:
            self._stale[host] = host_id

    def _new_host(self) -> _Host:
        host = _Host(self.columns.slot())
        if host.slot == len(self._by_slot):
            self._by_slot.append(host)
        else:
            self._by_slot[host.slot] = host
        return host

    def forget_shapes(self) -> None:
        """Give shapes and kinds new numbers, so that those nobody has any more take no room."""
        self.kinds = Kinds(passed, len(CONSTRAINTS))
        self._ranking.clear()
        self._witnesses.clear()
        self._enough.clear()
        self._asked = NOTHING_ASKED
        self.of_kind.clear()
        for listed in self.offers.values():
            listed.fits.clear()
            self._number(listed)
        for host_id, host in self._hosts.items():
            host.described = False
            self._stale[host] = host_id

    # --- keeping the columns up to date ----------------------------------------------------

    def _bring_up_to_date(self) -> None:
        if not self._stale:
            return
        self._asked = NOTHING_ASKED
        for host, host_id in self._stale.items():
            listed = [each for each in host.offers.values() if not each.paused]
            if host.loose or not host.described:
                if not host.described:  # its floor may be another
                    self.columns.write(host.slot, host.rows, [])
                self.columns.describe(host.slot, self._describe(host, listed))
                host.described = True
            levels = levels_of(_free(listed, self._calendar)) if listed else []
            if host.loose:
                known = [self.columns.fact(host.slot, it) for it in (KNOWN_FROM, KNOWN_UNTIL)]
                unknown = ((-ALWAYS, known[0]), (known[1], ALWAYS))
                depth = level_of(sum([len(each.groups) for each in listed])) + 1
                levels += [[]] * (depth - len(levels))
                levels = [[*spans, *unknown] for spans in levels]
            self.columns.write(host.slot, host.rows, levels)
            if not host.offers:
                del self._hosts[host_id]
                self.columns.give_back(host.slot)
        self._stale.clear()

    def _describe(self, host: _Host, listed: Sequence[Listed]) -> tuple[int, ...]:
        weekly = [each for each in listed if each.terms.weekly is not None]
        self.columns.loose += bool(weekly) - host.loose
        host.loose = bool(weekly)
        if not listed:
            return NO_OFFERS
        windows = [window for each in listed for window in _windows(each)]
        if len(listed) == 1 and windows and not weekly:
            alone = listed[0]
            longest = max([closes - opens for opens, closes in windows])
            ends = (windows[0][0], windows[-1][1], longest)
            return (alone.number, alone.lease_min, alone.floor, -ALWAYS, ALWAYS, *ends)
        return (
            self.kinds.mixed(frozenset([each.number for each in listed])),
            min([each.lease_min for each in listed]),
            min([each.floor for each in listed]),
            max([each.known[0] for each in weekly], default=-ALWAYS),
            min([each.known[1] for each in weekly], default=ALWAYS),
            min([opens for opens, _ in windows], default=ALWAYS),
            max([closes for _, closes in windows], default=-ALWAYS),
            max([closes - opens for opens, closes in windows], default=0),
        )

    def free(
        self,
        hosts: Collection[HostId],
        calendar: Calendar,
        bids: Selection,
        *,
        now: int,
        for_nothing: bool = False,
    ) -> Hosts:
        """Return when some hosts have room for bids, as a calendar has it.

        Who pays the floor of an offer may have it together with the cheaper ones of its host, of
        those that fit. for_nothing: floors do not count.
        """
        found, fits = list[Free](), None
        for host_id in hosts:
            listed = [each for each in self.on(host_id) if not each.paused]
            for each in listed:
                if each.terms.weekly is not None:
                    each.windows(now, bids.furthest)
            kinds = sorted({each.number for each in listed})
            sets = {ANYBODY: kinds}
            if len(hosts) == 1 and 1 < len(kinds) <= KINDS_APART_MAX:
                fits = self.kinds.fitting_sets(kinds)
                sets = {
                    number: [kind for place, kind in enumerate(kinds) if number >> place & 1]
                    for number in np.unique(fits).tolist()
                }
            for number, of_set in sets.items():
                fitting = [each for each in listed if each.number in of_set]
                for floor in {0} if for_nothing else {each.floor for each in fitting}:
                    paid = [each for each in fitting if for_nothing or each.floor <= floor]
                    if paid:
                        found.append(Free(_free(paid, calendar), floor, number))
        return Hosts(found, fits)

    def floors(self, hosts: Collection[HostId]) -> Floors:
        """Return for each shape, by number, the lowest floor of what fits it on some hosts."""
        offers = [each for host_id in hosts for each in self.on(host_id) if not each.paused]
        if len(offers) == 1:
            return self._floor_of(offers[0])
        lowest = dict[int, int]()
        for listed in sorted(offers, key=lambda each: -each.floor):
            lowest.update(dict.fromkeys(self.kinds.fitting(listed.number), listed.floor))
        return Floors(lowest, self.kinds.shapes)

    def _floor_of(self, listed: Listed) -> Floors:
        kind = listed.number
        fitting, fits = self.kinds.fitting(kind), self.kinds.table[kind]
        return Floors.alike(kind, fitting, fits, listed.floor)

    # --- finding ---------------------------------------------------------------------------

    def candidates(
        self,
        bid: OpenBid,
        *,
        earliest: int,
        limit: int,
        gpus: int | None = None,
        longest: int | None = None,
    ) -> Iterable[Entry]:
        """Return the offers of every host that may have room for a bid, cheapest first.

        Whatever is left out could not add anything to serving it.

        Args:
            gpus: the least that a host must have free to be of use; those of the bid, or one
                where several hosts may serve it together.
            longest: how long it may be leased at most, where that is not how long at least.
        """
        if gpus is None:
            gpus = bid.gpus if bid.terms.placement == "same-host" else 1
        slots, floors = self._with_room(bid, level_of(gpus), earliest, longest)
        if not len(slots) or floors[floors.argmin()] > limit:  # `min` takes twice as long
            return ()
        return self._in_order(slots, floors, limit, self._asked[0])

    def perhaps_free(self, bid: OpenBid, *, earliest: int, limit: int) -> Iterator[Entry]:
        """Yield the offers within a limit, in no order, of hosts that may have a GPU for a bid.

        First what was enough for another such bid, then of those that may have all that it asks
        for. Some may come twice.
        """
        shape = self.kinds.shape(bid.shape)
        listed = self._enough.get((shape, bid.gpus))
        if listed is not None and not listed.gone and listed.floor <= limit:
            entry = self._entry(listed, shape)
            assert entry is not None, "it fitted once"
            yield entry
        seen = set[int]()
        for level in {level_of(bid.gpus): None, 0: None}:
            slots, floors = self._with_room(bid, level, earliest, None)
            for slot in slots[floors <= limit].tolist():
                if slot in seen:
                    continue
                seen.add(slot)
                host = self._by_slot[slot]
                try:
                    for listed in host.offers.values():
                        entry = None if listed.paused else self._entry(listed, shape)
                        if entry is not None and entry.floor <= limit:
                            yield entry
                finally:
                    self._note_known(host)

    def note_enough(self, bid: OpenBid, listed: Listed) -> None:
        """Take note that an offer had enough GPUs free for a bid, at some price."""
        self._enough[self.kinds.shape(bid.shape), bid.gpus] = listed

    def _with_room(
        self, bid: OpenBid, level: int, earliest: int, longest: int | None
    ) -> tuple[Ints, Ints]:
        """Return the slots and lowest floors of hosts that may have room at a level.

        Kept while the same is asked: of most bids that come several levels are looked at.
        """
        self._bring_up_to_date()
        shape, longest = self.kinds.shape(bid.shape), longest or bid.duration
        asked = (shape, earliest, bid.deadline, bid.duration, longest)
        if asked != self._asked:
            self._asked = asked
            self._roomy.clear()
        found = self._roomy.get(level)
        if found is None:
            found = self._roomy[level] = self.columns.with_room(level, self.kinds.table, asked)
        return found

    def _in_order(self, slots: Ints, floors: Ints, limit: int, shape: int) -> Iterator[Entry]:
        """Yield the entries of hosts with an offer within a limit, in order of rank."""
        order = floors.argsort(kind="stable")
        order = order[: floors[order].searchsorted(limit, side="right")]
        ahead: list[Entry] = []
        seen = set[int]()
        loose: list[_Host] = []
        try:
            for slot, floor in zip(slots[order].tolist(), floors[order].tolist(), strict=True):
                while ahead and ahead[0].floor < floor:
                    yield heappop(ahead)
                if slot in seen:
                    continue
                seen.add(slot)
                host = self._by_slot[slot]
                for listed in host.offers.values():
                    entry = None if listed.paused else self._entry(listed, shape)
                    if entry is not None:
                        heappush(ahead, entry)
                if host.loose:
                    loose.append(host)
            while ahead:
                yield heappop(ahead)
        finally:
            for host in loose:
                self._note_known(host)

    def _note_known(self, host: _Host) -> None:
        """Take note that who looked at a host may have made more of its windows known."""
        if not host.loose:
            return
        known = self.columns.fact(host.slot, KNOWN_UNTIL)
        for listed in host.offers.values():
            if listed.terms.weekly is not None and listed.known[1] > known:
                self.touch(listed.terms.host_id)

    def entries(self, shape: Shape) -> Sequence[Entry]:
        """Return the offers that fit a shape and are not paused, cheapest first."""
        return self._ranking.entries(self.kinds.shape(shape))

    def with_windows(self, bid: OpenBid, *, earliest: int) -> Iterator[Entry]:
        """Yield what fits a bid on hosts with a window that may be long enough, taken or not.

        First what was enough for another such bid: mostly it is for this one.
        """
        self._bring_up_to_date()
        shape = self.kinds.shape(bid.shape)
        key = (shape, level_of(bid.gpus))
        witness = self._witnesses.get(key)
        if witness is not None and not witness.gone:
            entry = self._entry(witness, shape)
            assert entry is not None, "it fitted once"
            yield entry
        asked = (shape, earliest, bid.deadline, bid.duration, bid.duration)
        for slot in self.columns.with_windows(self.kinds.table, asked):
            for listed in self._by_slot[slot].offers.values():
                entry = self._entry(listed, shape)
                if entry is not None:
                    self._witnesses[key] = listed
                    yield entry

    def passing(self, shape: Shape, constraints: int) -> Iterator[Entry]:
        """Yield the offers with GPUs that pass so many of `CONSTRAINTS`, in no order."""
        number = self.kinds.shape(shape)
        for kind, offers in self.of_kind.items():
            if max(self.kinds.specs(kind, number)) >= constraints:
                for listed in offers.values():
                    fit = self._gpus_passing(listed, number, constraints)
                    yield Entry(*listed.rank, listed, *fit)

    def entries_on(self, shape: Shape, hosts: Collection[HostId]) -> Sequence[Entry]:
        """Return the part of `entries` that is on these hosts."""
        number = self.kinds.shape(shape)
        found = (
            self._entry(listed, number)
            for host_id in hosts
            for listed in self.on(host_id)
            if not listed.paused
        )
        return sorted(entry for entry in found if entry is not None)

    def on(self, host_id: HostId) -> Collection[Listed]:
        host = self._hosts.get(host_id)
        return () if host is None else host.offers.values()

    def _entry(self, listed: Listed, shape: int) -> Entry | None:
        fit = listed.fits.get(shape)
        if fit is None:
            fit = listed.fits[shape] = self._gpus_passing(listed, shape, len(CONSTRAINTS))
        made = (listed.floor, listed.since, listed.text, listed, *fit)
        return tuple.__new__(Entry, made) if fit[0] else None  # quicker than `Entry(…)`

    def _gpus_passing(
        self, listed: Listed, shape: int, least: int
    ) -> tuple[tuple[str, ...], frozenset[str]]:
        specs = self.kinds.specs(listed.number, shape)
        pairs = zip(listed.terms.gpus, listed.specs, strict=True)
        gpus = [gpu for gpu, spec in pairs if specs[spec] >= least]
        return tuple(gpu.uuid for gpu in gpus), frozenset(gpu.model for gpu in gpus)


def _windows(listed: Listed) -> Spans:
    since, until = (0, 0) if listed.terms.weekly is None else listed.known
    return listed.windows(since, until) if since <= until else ()


def _free(listed: Sequence[Listed], calendar: Calendar) -> list[Sequence[tuple[int, int]]]:
    """Return the free spans of every GPU of some offers, as far as their windows are known."""
    found: list[Sequence[tuple[int, int]]] = []
    for each in listed:
        since, until = (0, 0) if each.terms.weekly is None else each.known
        if since <= until:
            found += [free for _, free in each.all_free(calendar, since=since, until=until)]
    return found or [()]
