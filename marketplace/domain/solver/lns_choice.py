"""Moves of the local search in one clearing: quick ones wherever these will do."""

from __future__ import annotations

import numpy as np

from marketplace.domain.solver.arrays import Layout
from marketplace.domain.solver.destroy import desk_for
from marketplace.domain.solver.lns import CHUNK_MOVES, SMALL_MAX, search
from marketplace.domain.solver.lns_scratch import tray_for
from marketplace.domain.solver.lns_single_pool import search_quickly
from marketplace.domain.solver.problem import ONE_POOL, Floats, Ints
from marketplace.domain.solver.scratch import bench_for
from marketplace.domain.solver.state import State

MIXED = 128
"""Where bids may spread but need not, one move in so many is not a quick one: such a move takes as
long as thirty quick ones, and finds less."""
MANY = 0.02
"""Where so many bids need several pools, they are many."""


def _spreads(q: Layout) -> bool:
    """Tell if many bids find no pool that is large enough for them alone."""
    largest = np.zeros(len(q.list_at) - 1, np.int64)
    listed = np.repeat(np.arange(len(largest)), np.diff(q.list_at))
    np.maximum.at(largest, listed, q.most[q.pool] // q.units)
    alone = largest[q.listed] >= q.gpus
    return bool((~alone & (largest[q.listed] > 0)).mean() > MANY) if len(alone) else False


class Mover:
    """Makes moves in one state.

    Quick moves leave bids in one pool. Where some need several, or some pools are cards that are
    divided, every second move is not quick; where some may just spread, one in `MIXED`.
    """

    def __init__(self, layout: Layout, state: State, short: Ints, seed: int) -> None:
        self.layout, self.state = layout, state
        self.bench = bench_for(layout, seed)
        self.desk = desk_for(layout, short)
        plain, self.whole = layout.spread == ONE_POOL, ~layout.divided
        larger = len(layout.row) > SMALL_MAX and not layout.group.size
        quick = larger and bool(self.whole.any())
        self.tray = tray_for(layout) if quick else None
        self.every = 2 if _spreads(layout) or not self.whole.all() else MIXED
        self.mixed = not (plain.all() and self.whole.all())
        self.owed = 0

    def make(self, paid: Floats, least: Floats, moves: int, loss: float, heat: float) -> float:
        """Make so many moves; return how much more the clearing is worth; see `lns`."""
        q, state, bench = self.layout, self.state, self.bench
        desk = None if self.tray is None else self.desk._replace(open=self.desk.open * self.whole)
        if desk is None or self.tray is None or not desk.open.any():
            return float(search(q, state, paid, bench, self.desk, least, moves, loss, heat))
        slow, gained = min(moves, self._owed(moves)), 0.0
        if slow < moves:
            quick = moves - slow
            gained = search_quickly(q, state, paid, bench, desk, self.tray, least, quick, heat)
        if slow:
            gained += search(q, state, paid, bench, self.desk, least, slow, loss, heat)
        return gained

    def _owed(self, moves: int) -> int:
        """Return how many moves that are not quick are due with so many more: whole chunks."""
        if not self.mixed:
            return 0
        self.owed += moves
        chunks = self.owed // (self.every * CHUNK_MOVES)
        self.owed -= chunks * self.every * CHUNK_MOVES
        return chunks * CHUNK_MOVES
