"""The immediate bids that wait, as columns: found by what new supply can serve, best price first.

Tens of thousands wait, and few of them can be served by one host that has room again. One pass of
NumPy finds those; how long it takes hardly depends on how many others wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from ledger.domain.ids import BidId
from marketplace.domain.demand import OpenBid
from marketplace.domain.openings import (
    FAR,
    Ints,
    Levels,
    Seconds,
    level_of,
    seconds_above,
    seconds_below,
)

COLUMNS_START = 64
BATCH = 512
"""Bids that are put in order at once: mostly the first few take all the room there is."""
STEP = 64
"""Bids that are looked at at once, once the room has changed."""

Places = npt.NDArray[np.intp]

SHAPE, LEVEL, DURATION, EARLIEST, DEADLINE = range(5)


class _Group:
    """Bids that ask for the same of a GPU itself. Rows are in no order."""

    def __init__(self) -> None:
        self.bids: list[OpenBid] = []
        self._limits: Ints = np.zeros(COLUMNS_START, np.int64)
        self._since: Ints = np.zeros(COLUMNS_START, np.int64)
        self._asked: Seconds = np.zeros((5, COLUMNS_START), np.int32)

    @property
    def limits(self) -> Ints:
        """Return the most that each bid pays in any of its sizes."""
        return self._limits[: len(self.bids)]

    @property
    def since(self) -> Ints:
        """Return the store position of each bid."""
        return self._since[: len(self.bids)]

    @property
    def asked(self) -> Seconds:
        """Return the columns SHAPE to DEADLINE, in seconds."""
        return self._asked[:, : len(self.bids)]

    def add(self, bid: OpenBid, asked: Sequence[int]) -> int:
        """Append a bid; return its row."""
        row = len(self.bids)
        if row == len(self._limits):
            self._limits = np.concatenate([self._limits, np.zeros_like(self._limits)])
            self._since = np.concatenate([self._since, np.zeros_like(self._since)])
            self._asked = np.concatenate([self._asked, np.zeros_like(self._asked)], axis=1)
        self._limits[row], self._since[row] = bid.reach, bid.since
        self._asked[:, row] = asked
        self.bids.append(bid)
        return row

    def remove(self, row: int) -> OpenBid | None:
        """Take a bid out; return the one that now stands in its row, if there is one."""
        last = len(self.bids) - 1
        moved = self.bids.pop()
        if row == last:
            return None
        self._limits[row], self._since[row] = self._limits[last], self._since[last]
        self._asked[:, row] = self._asked[:, last]
        self.bids[row] = moved
        return moved


class Queue:
    """Bids by what they ask for. number: gives a bid's shape its number."""

    def __init__(self, number: Callable[[OpenBid], int]) -> None:
        self._number = number
        self._groups: dict[tuple[object, ...], _Group] = {}
        self._places: dict[BidId, tuple[_Group, int]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def add(self, bid: OpenBid) -> None:
        """Let a bid wait."""
        request = bid.shape.request
        key = (request.models, request.memory_mib_min, bid.shape.currency)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group()
        alone = bid.terms.placement == "same-host"
        asked = (
            self._number(bid),
            level_of(bid.gpus_min) if alone else 0,
            bid.duration_min // 1_000,
            seconds_below(bid.earliest),
            seconds_above(bid.deadline),
        )
        self._places[bid.bid_id] = group, group.add(bid, asked)

    def remove(self, bid: OpenBid) -> None:
        """Let a bid wait no longer; it need not have waited."""
        place = self._places.pop(bid.bid_id, None)
        if place is not None:
            group, row = place
            moved = group.remove(row)
            if moved is not None:
                self._places[moved.bid_id] = group, row

    def renumber(self) -> None:
        """Ask for the numbers of all shapes again; forget groups without bids."""
        self._groups = {key: group for key, group in self._groups.items() if group.bids}
        for group in self._groups.values():
            group.asked[SHAPE] = [self._number(bid) for bid in group.bids]

    def all(self) -> list[OpenBid]:
        """Return every bid, best price first, then first come."""
        bids = [bid for group in self._groups.values() for bid in group.bids]
        return sorted(bids, key=lambda bid: bid.price_time)

    def served(self, floors: Ints) -> Selection:
        """Return the bids whose limit reaches the floor for their shape.

        floors: by number of shape; more than any limit where nothing fits.
        """
        parts = []
        least = floors.min(initial=1 << 62)
        for group in self._groups.values():
            rows = (group.limits >= least).nonzero()[0]
            rows = rows[group.limits[rows] >= floors[group.asked[SHAPE, rows]]]
            if len(rows):
                parts.append((group, rows))
        return Selection(parts)


class Selection:
    """Some of the bids that wait."""

    def __init__(self, parts: Sequence[tuple[_Group, Places]]) -> None:
        self._parts = parts

    def __len__(self) -> int:
        return sum(len(rows) for _, rows in self._parts)

    def in_order(self) -> list[OpenBid]:
        """Return them, best price first, then first come."""
        bids = [group.bids[row] for group, rows in self._parts for row in rows.tolist()]
        return sorted(bids, key=lambda bid: bid.price_time)

    def with_room(
        self, levels: Callable[[], Sequence[Levels]], changes: Callable[[], int], now: int
    ) -> Iterator[OpenBid]:
        """Yield those for which some host has room, in order, while room is only taken.

        Args:
            levels: gives the room of each host as it is now.
            changes: gives another number once the room may be another.
            now: milliseconds; nothing starts before.
        """
        room = _Room(levels(), now)
        parts = [(group, rows[room.takes(group.asked[:, rows])]) for group, rows in self._parts]
        parts = [(group, rows) for group, rows in parts if len(rows)]
        while parts:
            parts, some = _dearest(parts)
            batch = _Batch(some)
            at, seen = 0, changes()
            while at < len(batch.bids):
                asked = batch.asked[:, at : at + STEP]
                for place in room.takes(asked).nonzero()[0].tolist():
                    yield batch.bids[at + place]
                    if changes() != seen:
                        seen, at = changes(), at + place + 1
                        room = _Room(levels(), now)
                        break
                else:
                    at += STEP
            parts = [(group, rows[room.takes(group.asked[:, rows])]) for group, rows in parts]
            parts = [(group, rows) for group, rows in parts if len(rows)]


Parts = list[tuple[_Group, Places]]


def _dearest(parts: Parts) -> tuple[Parts, Parts]:
    """Split off the highest limits, those that are equal together; return the rest and them."""
    limits = np.concatenate([group.limits[rows] for group, rows in parts])
    if len(limits) <= BATCH:
        return [], parts
    least = np.partition(limits, len(limits) - BATCH)[len(limits) - BATCH]
    rest, some = [], []
    for group, rows in parts:
        high = group.limits[rows] >= least
        rest.append((group, rows[~high]))
        some.append((group, rows[high]))
    return rest, some


class _Batch:
    """Some bids in order of price and time, with what they ask for."""

    def __init__(self, parts: Parts) -> None:
        limits = np.concatenate([group.limits[rows] for group, rows in parts])
        since = np.concatenate([group.since[rows] for group, rows in parts])
        bids = [group.bids[row] for group, rows in parts for row in rows.tolist()]
        order = np.lexsort((since, -limits))
        limits, since = limits[order], since[order]
        if ((limits[1:] == limits[:-1]) & (since[1:] == since[:-1])).any():
            # The id decides, which hardly ever happens: a position is one bid's.
            by_id = sorted(range(len(bids)), key=lambda at: bids[at].price_time)
            order = np.array(by_id, np.intp)
        self.bids = [bids[at] for at in order.tolist()]
        self.asked = np.concatenate([group.asked[:, rows] for group, rows in parts], axis=1)
        self.asked = self.asked[:, order]


class _Room:
    """When some hosts have room at each level; a level's spans are filled up with empty ones."""

    def __init__(self, hosts: Sequence[Levels], now: int) -> None:
        depth = max((len(levels) for levels in hosts), default=0)
        spans: list[list[tuple[int, int]]] = [
            [span for levels in hosts if number < len(levels) for span in levels[number]]
            for number in range(depth)
        ]
        while spans and not spans[-1]:
            spans.pop()
        depth = len(spans)
        width = max((len(some) for some in spans), default=0)
        # One level more, at which nobody has room: for bids that ask for more than there is.
        opens = [[FAR] * (depth + 1) for _ in range(width)]
        closes = [[-FAR] * (depth + 1) for _ in range(width)]
        for number, some in enumerate(spans):
            for at, (first, last) in enumerate(some):
                opens[at][number], closes[at][number] = seconds_below(first), seconds_above(last)
        self._opens = np.array(opens, np.int32)
        self._closes = np.array(closes, np.int32)
        self._depth = depth
        self._now = seconds_below(now)

    def takes(self, asked: Seconds) -> npt.NDArray[np.bool_]:
        """Tell which bids may find room; those it denies find none."""
        found = np.zeros(asked.shape[1], np.bool_)
        if not self._depth:
            return found
        levels = np.minimum(asked[LEVEL], self._depth)
        earliest = np.maximum(asked[EARLIEST], self._now)
        for opens, closes in zip(self._opens, self._closes, strict=True):
            room = np.minimum(closes[levels], asked[DEADLINE])
            room -= np.maximum(opens[levels], earliest)
            found |= room >= asked[DURATION]
        return found
