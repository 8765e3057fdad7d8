"""A small round as a mixed-integer program: one column for each way to serve a bid.

A way is a start and the pools its GPUs come from: one pool, the pools of one host, or all it may
use. Where that is more than one, or a card is divided, more columns say how many GPUs each pool
gives and which memory slices they take. Rows: a bid is served once; no pool, slice or quota is
used beyond what there is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from marketplace.domain.solver.problem import (
    MILLIS_PER_HOUR,
    ONE_HOST,
    ONE_POOL,
    UNLIMITED,
    Problem,
)
from marketplace.domain.solver.solution import Piece, Placed

Terms = list[tuple[int, float]]
"""Columns and what each counts in a row."""


@dataclass(frozen=True, slots=True)
class Part:
    """GPUs of one pool in a way: `gpus` for each unit of the column. cuts: column, slices."""

    column: int
    entry: int
    gpus: int
    cuts: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Way:
    """One way to serve a bid, holding the slots [slot, end)."""

    bid: int
    slot: int
    end: int
    begins: int
    column: int
    parts: tuple[Part, ...]


class Program:
    """Maximise `worth` · x; 0 ≤ x ≤ `most`, whole; low ≤ row · x ≤ high for each of `rows`."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.worth: list[float] = []
        self.most: list[int] = []
        self.rows: list[tuple[Terms, float, float]] = []
        self.ways: list[list[Way]] = []
        self._units: dict[tuple[int, int], Terms] = defaultdict(list)
        self._slices: dict[tuple[int, int, int], Terms] = defaultdict(list)
        self._held: dict[tuple[int, int], Terms] = defaultdict(list)
        self._given: dict[int, Terms] = defaultdict(list)
        for bid in range(problem.bids):
            ways = list(self._ways(bid))
            self.ways.append(ways)
            if ways:
                self.rows.append(([(way.column, 1) for way in ways], -np.inf, 1))
        self._limit()

    # --- columns ---------------------------------------------------------------------------

    def _column(self, worth: float, most: int) -> int:
        self.worth.append(worth)
        self.most.append(most)
        return len(self.worth) - 1

    def _ways(self, bid: int) -> Iterator[Way]:
        problem = self.problem
        places = self._places(bid)
        for slot in range(problem.slots):
            begins = max(int(problem.earliest[bid]), int(problem.grid[slot]))
            over = begins + int(problem.duration[bid])
            if over > min(problem.deadline[bid], problem.grid[-1]):
                break
            if begins >= problem.grid[slot + 1]:
                continue
            end = int(np.searchsorted(problem.grid, over + int(problem.gap[bid])))
            if end > problem.slots:
                break
            for place in places:
                way = self._way(bid, slot, end, begins, place)
                if way is not None:
                    yield way

    def _places(self, bid: int) -> list[list[int]]:
        """Return the entries that the bid affords, those together that may serve it together."""
        problem = self.problem
        kind, spread = int(problem.kind[bid]), int(problem.spread[bid])
        places: dict[int, list[int]] = defaultdict(list)
        for entry in range(int(problem.kind_at[kind]), int(problem.kind_at[kind + 1])):
            pool = int(problem.pool[entry])
            if problem.floor[entry] <= problem.limit[bid]:
                alone = spread == ONE_POOL or problem.gpus[bid] == 1
                host = int(problem.host[pool]) if spread == ONE_HOST else -1
                places[pool if alone else host].append(entry)
        return list(places.values())

    def _way(self, bid: int, slot: int, end: int, begins: int, place: list[int]) -> Way | None:
        problem, gpus = self.problem, int(self.problem.gpus[bid])
        fits = []
        for entry in place:
            free = int(problem.capacity[problem.pool[entry], slot:end].min())
            fit = min(gpus, free // int(problem.units[entry]))
            if fit > 0:
                fits.append((entry, fit))
        if sum(fit for _, fit in fits) < gpus:
            return None
        hours = int(problem.duration[bid]) / MILLIS_PER_HOUR
        gain = int(problem.limit[bid]) + int(problem.weight[bid])
        if len(fits) == 1:
            entry = fits[0][0]
            taken = self._column((gain - int(problem.floor[entry])) * gpus * hours, 1)
            parts = [Part(taken, entry, gpus, self._cuts(taken, gpus, entry, slot, end))]
        else:
            taken = self._column(0.0, 1)
            parts = []
            for entry, fit in fits:
                column = self._column((gain - int(problem.floor[entry])) * hours, fit)
                self.rows.append(([(column, 1), (taken, -fit)], -np.inf, 0))
                parts.append(Part(column, entry, 1, self._cuts(column, 1, entry, slot, end)))
            total: Terms = [(part.column, 1) for part in parts]
            self.rows.append(([*total, (taken, -gpus)], 0, 0))
        way = Way(bid, slot, end, begins, taken, tuple(parts))
        self._use(way)
        return way

    def _cuts(
        self, column: int, gpus: int, entry: int, slot: int, end: int
    ) -> tuple[tuple[int, int], ...]:
        """Add a column for each legal placement of a profile that is free."""
        problem, profile = self.problem, int(self.problem.profile[entry])
        if profile < 0:
            return ()
        busy = int(np.bitwise_or.reduce(problem.taken[problem.pool[entry], slot:end]))
        masks = problem.mask[problem.profile_at[profile] : problem.profile_at[profile + 1]]
        cuts = [(self._column(0.0, 1), int(mask)) for mask in masks if not int(mask) & busy]
        self.rows.append(([*((cut, 1.0) for cut, _ in cuts), (column, -gpus)], 0, 0))
        return tuple(cuts)

    def _use(self, way: Way) -> None:
        """Enter what a way uses into the rows of pools, slices and quotas."""
        problem = self.problem
        for part in way.parts:
            pool = int(problem.pool[part.entry])
            units = part.gpus * int(problem.units[part.entry])
            for slot in range(way.slot, way.end):
                self._units[pool, slot].append((part.column, units))
                for column, mask in part.cuts:
                    for bit in range(8):
                        if mask >> bit & 1:
                            self._slices[pool, slot, bit].append((column, 1))
            for member in range(problem.group_at[way.bid], problem.group_at[way.bid + 1]):
                group = int(problem.group[member])
                each = part.gpus * int(problem.share[member] * problem.counted[group, pool])
                hours = self._counted_hours(way, group)
                if each and hours:
                    self._given[group].append((part.column, each * hours))
                for slot in range(way.slot, way.end if each else way.slot):
                    self._held[group, slot].append((part.column, each))

    def _counted_hours(self, way: Way, group: int) -> float:
        over = way.begins + int(self.problem.duration[way.bid])
        ends = min(over, int(self.problem.until[group]))
        return max(0, ends - max(way.begins, int(self.problem.since[group]))) / MILLIS_PER_HOUR

    # --- rows ------------------------------------------------------------------------------

    def _limit(self) -> None:
        problem = self.problem
        for (pool, slot), terms in self._units.items():
            self._at_most(terms, int(problem.capacity[pool, slot]))
        for terms in self._slices.values():
            self._at_most(terms, 1)
        for (group, slot), terms in self._held.items():
            self._at_most(terms, int(problem.concurrent[group, slot]))
        for group, terms in self._given.items():
            if problem.gpu_ms[group] < UNLIMITED:
                self._at_most(terms, int(problem.gpu_ms[group]) / MILLIS_PER_HOUR)

    def _at_most(self, terms: Terms, top: float) -> None:
        """Add a row, unless all its columns together stay below."""
        summed: dict[int, float] = defaultdict(float)
        for column, counts in terms:
            summed[column] += counts
        if sum(counts * self.most[column] for column, counts in summed.items()) > top:
            self.rows.append((list(summed.items()), -np.inf, top))

    # --- to and fro ------------------------------------------------------------------------

    def columns_of(self, placed: Sequence[Placed | None]) -> list[float] | None:
        """Return the columns that say a clearing; None if one of its grants is no way here."""
        x = [0.0] * len(self.worth)
        for bid, grant in enumerate(placed):
            if grant is not None and not self._say(x, bid, grant):
                return None
        return x

    def _say(self, x: list[float], bid: int, grant: Placed) -> bool:
        wanted = {piece.pool: piece for piece in grant.pieces}
        for way in self.ways[bid]:
            parts = {int(self.problem.pool[part.entry]): part for part in way.parts}
            if way.slot == grant.slot and wanted.keys() <= parts.keys():
                x[way.column] = 1.0
                for pool, piece in wanted.items():
                    part = parts[pool]
                    if part.gpus == 1:
                        x[part.column] = float(piece.gpus)
                    cuts = tile(piece.mask, part.cuts)
                    if cuts is None:
                        return False
                    for column in cuts:
                        x[column] = 1.0
                return True
        return False

    def read(self, x: Sequence[float]) -> tuple[Placed | None, ...]:
        """Return the clearing that columns say."""
        placed: list[Placed | None] = [None] * self.problem.bids
        for way in (way for ways in self.ways for way in ways if round(x[way.column]) == 1):
            pieces = []
            for part in way.parts:
                gpus = part.gpus * round(x[part.column])
                mask = sum(mask for column, mask in part.cuts if round(x[column]) == 1)
                if gpus:
                    pieces.append(Piece(int(self.problem.pool[part.entry]), gpus, mask))
            placed[way.bid] = Placed(way.slot, way.end, way.begins, tuple(pieces))
        return tuple(placed)


def tile(mask: int, cuts: Sequence[tuple[int, int]]) -> list[int] | None:
    """Return columns of placements that together are the slices of `mask`; None: there are none."""
    if mask == 0:
        return []
    low = mask & -mask
    for column, one in cuts:
        if one & low and one & mask == one:
            rest = tile(mask & ~one, cuts)
            if rest is not None:
                return [column, *rest]
    return None
