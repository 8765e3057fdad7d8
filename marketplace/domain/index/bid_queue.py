"""The immediate bids that wait, as columns: found by what new supply can serve, best price first.

Tens of thousands wait, and few of them can be served by one host that has room again. Bids that
ask for the same of a GPU itself stand together, in order of price and time. The first few hundred
take most of the room that there is; whom the rest of it can serve is then found by one pass of
NumPy, which compares columns and puts in order only what it finds.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, repeat

import numpy as np

from marketplace.domain.index.availability import Hosts, Room
from marketplace.domain.index.bid_columns import Columns, Group
from marketplace.domain.index.floors import NOTHING, Floors, OneFloor
from marketplace.domain.index.free_levels import level_of, seen
from marketplace.domain.kernels.layout import (
    DEADLINE,
    KEY,
    SHAPE,
    SINCE,
    SLOT,
    Bools,
    Ints,
    Seconds,
)
from marketplace.domain.orderbook.open_bid import NEVER, OpenBid

HEAD = 128
"""Bids of each group that are put in order at once."""
MISSES_MAX = 6
"""Bids in a row that find no room, until which it is not worked out anew who may."""

Part = tuple[Ints, Seconds]
"""Some rows in order: `order` and `asked` of `Columns`."""


@dataclass(frozen=True, slots=True)
class _Alike:
    """Which bids an offer of some kind fits, at any price; as long as it fits the same shapes.

    shapes: how many there were. keys: of the bids of each shape, in order; groups: where those
    stand, numbers: theirs.
    """

    fitting: Sequence[int]
    shapes: int
    keys: tuple[array[int], ...]
    groups: tuple[Group, ...]
    numbers: Ints


def is_plain(bid: OpenBid) -> bool:
    """Tell if a bid asks for nothing but GPUs of one host which fit."""
    return (
        bid.terms.placement == "same-host"
        and not bid.terms.request.nvlink
        and not bid.has_ranges
        and not bid.is_choosy
        and not bid.seeks_soonest
        and not bid.keeps_off
    )


class Queue:
    """Bids by what they ask for. number: gives a bid's shape its number."""

    def __init__(self, number: Callable[[OpenBid], int]) -> None:
        self._number = number
        self.columns = Columns()
        self._groups: dict[tuple[object, ...], Group] = {}
        self._slots: dict[OpenBid, int] = {}
        self._bids: list[OpenBid | None] = []
        self._shapes: list[int] = []
        """By slot: the number of its bid's shape."""
        self._of_shape: dict[int, tuple[array[int], Group]] = {}
        """For each shape, the keys of its bids in order, to count them by, and its group: what a
        group's bids have in common is part of it."""
        self._of_kind: dict[int, _Alike] = {}
        """For each kind of an offer, the bids that it fits."""
        self._waits: Bools = np.zeros(64, np.bool_)
        """By slot: whether its bid still waits."""
        self._waiting = seen(self._waits)
        self._unused: list[int] = []
        self.placeless: set[OpenBid] = set()
        """Bids that found no place anywhere, whatever quotas say: so it stays until a host has
        more room. Where this is not known of a bid, it is tried."""

    def __len__(self) -> int:
        return len(self._slots)

    def add(self, bid: OpenBid) -> None:
        """Let a bid wait."""
        shape, reach = self._number(bid), bid.reach
        known = self._of_shape.get(shape)
        if known is None:
            known = self._of_shape[shape] = (array("q"), self._group(bid))
        keys, group = known
        if group.is_full:
            self._unused += group.tidy(self._waits)
        slot = self._slot(bid, shape)
        alone = bid.terms.placement == "same-host"
        level = level_of(bid.gpus_min) if alone else 0
        gpus = bid.gpus if bid.lapses == NEVER and is_plain(bid) else 0
        asked = (shape, level, bid.duration_min // 1_000, slot, gpus)
        group.insert((-reach, bid.queued, bid.earliest, bid.deadline), asked)
        insort(keys, -reach)

    def _slot(self, bid: OpenBid, shape: int) -> int:
        if self._unused:
            slot = self._unused.pop()
            self._bids[slot], self._shapes[slot] = bid, shape
        else:
            slot = len(self._bids)
            self._bids.append(bid)
            self._shapes.append(shape)
            if slot == len(self._waits):
                self._waits = np.concatenate([self._waits, np.zeros_like(self._waits)])
                self._waiting = seen(self._waits)
        self._slots[bid] = slot
        self._waiting[slot] = True
        return slot

    def _group(self, bid: OpenBid) -> Group:
        request = bid.shape.request
        key = (request.models, request.memory_mib_min, bid.shape.currency)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(self.columns)
        return group

    def waits_but(self, bids: Iterable[OpenBid]) -> Bools:
        """Return by slot whether a bid waits; of these, that they do not."""
        slots = [slot for bid in bids if (slot := self._slots.get(bid)) is not None]
        if not slots:
            return self._waits
        waits = self._waits.copy()
        waits[slots] = False
        return waits

    def remove_each(self, bids: Iterable[OpenBid]) -> None:
        """Let some bids wait no longer; they need not have waited."""
        slots, of_slot, shapes, of_shape = self._slots, self._bids, self._shapes, self._of_shape
        for bid in bids:
            slot = slots.pop(bid, None)
            if slot is None:
                continue
            self.placeless.discard(bid)
            of_slot[slot] = None
            self._waiting[slot] = False
            keys, group = of_shape[shapes[slot]]
            del keys[bisect_left(keys, -bid.reach)]
            group.gone += 1
            if group.gone > group.gone_max:
                self._unused += group.tidy(self._waits)

    def renumber(self) -> None:
        """Ask for the numbers of all shapes again; forget groups without bids."""
        for group in self._groups.values():
            self._unused += group.tidy(self._waits)
            if not group.count:
                group.end()
        self._of_kind.clear()
        self._groups = {key: group for key, group in self._groups.items() if group.count}
        keys = defaultdict[int, list[int]](list)
        of_shape = dict[int, Group]()
        for group in self._groups.values():
            asked = group.early.asked
            for row, slot in enumerate(asked[SLOT].tolist()):
                bid = self._bids[slot]
                assert bid is not None
                asked[SHAPE, row] = self._shapes[slot] = number = self._number(bid)
                of_shape[number] = group
                keys[number].append(-bid.reach)
        self._of_shape = {
            number: (array("q", sorted(keys[number])), group) for number, group in of_shape.items()
        }

    def all(self) -> list[OpenBid]:
        """Return every bid, best price first, then first come."""
        return sorted(
            (bid for bid in self._bids if bid is not None), key=lambda bid: bid.price_time
        )

    def those_that_wait(self, bids: Iterable[OpenBid]) -> Iterator[OpenBid]:
        """Leave out bids that do not wait here."""
        return (bid for bid in bids if bid in self._slots)

    def perhaps_placed(self, floors: Floors, near: Iterable[OpenBid]) -> list[OpenBid]:
        """Return who reaches the floors and may have a place now, best price first.

        near: those for whom there may be more room than before.
        """
        lowest, slots, shapes = seen(floors.by_shape), self._slots, self._shapes
        found = (slots.keys() - self.placeless).union(near)
        paying = (bid for bid in found if bid.reach >= lowest[shapes[slots[bid]]])
        return sorted(paying, key=lambda bid: bid.price_time)

    def served(self, floors: Floors) -> Selection:
        """Return the bids whose limit reaches the floor for their shape."""
        if floors.one is not None:
            return self._served_by_one(floors, floors.one)
        of_shape = self._of_shape
        count, least = 0, dict[Group, int]()
        known = map(of_shape.get, floors.lowest)
        for of_bids, floor in zip(known, floors.lowest.values(), strict=True):
            if of_bids is not None:
                keys, group = of_bids
                count += bisect_right(keys, -floor)
                if least.get(group, NOTHING) > floor:
                    least[group] = floor
        numbers = np.array([group.number for group in least], np.int64)
        return Selection(self.columns, floors, least, numbers, self._bids, count)

    def _served_by_one(self, floors: Floors, one: OneFloor) -> Selection:
        alike = self._of_kind.get(one.kind)
        if alike is None or alike.fitting is not one.fitting or alike.shapes != len(self._of_shape):
            alike = self._of_kind[one.kind] = self._fitting(one.fitting)
        count = sum(map(bisect_right, alike.keys, repeat(-one.floor)))
        least = dict.fromkeys(alike.groups, one.floor)
        return Selection(self.columns, floors, least, alike.numbers, self._bids, count)

    def _fitting(self, shapes: Sequence[int]) -> _Alike:
        known = [self._of_shape[shape] for shape in shapes if shape in self._of_shape]
        groups = tuple(dict.fromkeys(group for _, group in known))
        numbers = np.array([group.number for group in groups], np.int64)
        keys = tuple(keys for keys, _ in known)
        return _Alike(shapes, len(self._of_shape), keys, groups, numbers)


class Selection:
    """Some of the bids that wait: in some groups, those that reach the floors of their shapes.

    least: the lowest floor for any bid of a group; numbers: those of the groups.
    """

    def __init__(
        self,
        columns: Columns,
        floors: Floors,
        least: Mapping[Group, int],
        numbers: Ints,
        bids: Sequence[OpenBid | None],
        count: int,
    ) -> None:
        self.columns = columns
        self.floors = floors
        self.numbers = numbers
        self.bids = bids
        self._least = least
        self._count = count

    def __len__(self) -> int:
        return self._count

    def in_order(self) -> list[OpenBid]:
        """Return them, best price first, then first come."""
        by_shape = self.floors.by_shape
        found = [
            bid
            for order, asked in self.parts
            for slot in asked[SLOT, _pays(order, asked, by_shape)].tolist()
            if (bid := self.bids[slot]) is not None
        ]
        return sorted(found, key=lambda bid: bid.price_time)

    @property
    def parts(self) -> list[Part]:
        """Return the rows of each group that reach its lowest floor."""
        parts = [
            part.reaching(floor)
            for group, floor in self._least.items()
            for part in (group.early, group.late)
        ]
        columns = self.columns
        return [(columns.order[:, a:b], columns.asked[:, a:b]) for a, b in parts if a < b]

    @cached_property
    def furthest(self) -> int:
        """Return the latest deadline of any of them, in milliseconds; or a later one."""
        return max((int(order[DEADLINE].max()) for order, _ in self.parts), default=0)

    def with_room(
        self, free: Callable[[], Hosts], changes: Callable[[], int], now: int
    ) -> Iterator[OpenBid]:
        """Yield those for which some host may have room, in order, while room is only taken.

        Args:
            free: gives the room of the hosts as it is now.
            changes: gives another number once the room may be another.
            now: milliseconds; nothing starts before.
        """
        room, seen = Room(free(), now), changes()
        parts, by_shape = self.parts, self.floors.by_shape
        while parts and not room.is_empty:
            some, parts = _dearest(parts)
            order, asked = _that_fit(*some, room, by_shape)
            bids, keys, asked = self._in_order(order, asked)
            at = misses = 0
            while at < len(bids):
                bid = bids[at]
                at += 1
                if bid is None:
                    continue
                before = changes()
                yield bid
                misses = misses + 1 if changes() == before else 0
                if misses > MISSES_MAX and before != seen:
                    room, seen = Room(free(), now), before
                    misses, kept = 0, room.takes(asked[:, at:], -keys[at:]).nonzero()[0] + at
                    bids, keys, asked = [bids[place] for place in kept], keys[kept], asked[:, kept]
                    at = 0
            if seen != changes():
                room, seen = Room(free(), now), changes()
            parts = self._left(parts, room)

    def _in_order(self, order: Ints, asked: Seconds) -> tuple[list[OpenBid | None], Ints, Seconds]:
        """Return the bids of some rows, by price and time, their keys and what they ask for."""
        by_price = np.lexsort((order[SINCE], order[KEY]))
        order, asked = order[:, by_price], asked[:, by_price]
        bids = [self.bids[slot] for slot in asked[SLOT].tolist()]
        if not (order[:2, 1:] == order[:2, :-1]).all(axis=0).any():
            return bids, order[KEY], asked
        # The id decides, which hardly ever happens: a position is one bid's.
        there = [(bid.price_time, at, bid) for at, bid in enumerate(bids) if bid is not None]
        there.sort(key=lambda each: each[:2])
        places = [at for _, at, _ in there]
        return [bid for _, _, bid in there], order[KEY, places], asked[:, places]

    def _left(self, parts: list[Part], room: Room) -> list[Part]:
        """Return what is left of some parts by the room there is."""
        found = []
        for order, asked in parts:
            places = room.may_take(asked).nonzero()[0]
            if len(places):
                found.append((order[:, places], asked[:, places]))
        if not found:
            return []
        kept = room.takes(
            np.concatenate([asked for _, asked in found], axis=1),
            -np.concatenate([order[KEY] for order, _ in found]),
        )
        ends = np.cumsum([0, *(order.shape[1] for order, _ in found)]).tolist()
        left = []
        for (order, asked), (since, until) in zip(found, pairwise(ends), strict=True):
            places = kept[since:until].nonzero()[0]
            if len(places):
                left.append((order[:, places], asked[:, places]))
        return left


def _pays(order: Ints, asked: Seconds, by_shape: Ints) -> Bools:
    pays: Bools = order[KEY] <= -by_shape[asked[SHAPE]]
    return pays


def _that_fit(order: Ints, asked: Seconds, room: Room, by_shape: Ints) -> Part:
    fits = _pays(order, asked, by_shape)
    fits &= room.takes(asked, -order[KEY])
    places = fits.nonzero()[0]
    return order[:, places], asked[:, places]


def _dearest(parts: list[Part]) -> tuple[Part, list[Part]]:
    """Split off some rows that come before all others; return them, joined, and the rest."""
    bound = min(
        (tuple(order[:2, HEAD].tolist()) for order, _ in parts if order.shape[1] > HEAD),
        default=None,
    )
    cuts = [_before(order, bound) for order, _ in parts]
    if not any(cuts):  # no two rows are equal in both but by mistake
        cuts = [order.shape[1] for order, _ in parts]
    pairs = list(zip(parts, cuts, strict=True))
    head = (
        np.concatenate([order[:, :cut] for (order, _), cut in pairs], axis=1),
        np.concatenate([asked[:, :cut] for (_, asked), cut in pairs], axis=1),
    )
    left = [(part, cut) for part, cut in pairs if cut < part[0].shape[1]]
    return head, [(order[:, cut:], asked[:, cut:]) for (order, asked), cut in left]


def _before(order: Ints, bound: tuple[int, ...] | None) -> int:
    """Return how many rows, of some in order, come before a key and a position."""
    if bound is None:
        return int(order.shape[1])
    low = int(order[KEY].searchsorted(bound[KEY], "left"))
    high = int(order[KEY].searchsorted(bound[KEY], "right"))
    return low + int(order[SINCE, low:high].searchsorted(bound[SINCE], "left"))
