"""What the search of a round knows of the time in which GPUs are cleaned between two leases.

To it a lease holds its GPUs until they are clean, and a pool is free for so long beyond the end of
each span in which it is free: what is cleaned after the last lease of a window keeps nobody out. A
bid for pools that are cleaned for different lengths is searched with the shortest; one that counts
for a quota with none, because it takes quota for the lease alone. Such leases are given the rest of
their distance when their GPUs are named (`pools.named`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ledger.domain.ids import BidId
from marketplace.domain.rounds.pools import Pool
from marketplace.domain.solver.problem import Ints


@dataclass(frozen=True, slots=True)
class Cleaning:
    """In milliseconds. gaps: after the leases of each bid, where any.

    beyond: by pool, how much longer than it is free a lease may hold it, to be cleaned.
    """

    gaps: Mapping[BidId, int] = field(default_factory=dict)
    beyond: Mapping[int, int] = field(default_factory=dict)


def cleaning_of(pools: Sequence[Pool], usable: Mapping[BidId, Ints]) -> Cleaning:
    """Return what is known of cleaning. usable: the pools that each bid may use, by number."""
    gaps: dict[BidId, int] = {}
    lengths = np.array([pool.listed.cleaning for pool in pools], np.int64)
    beyond = np.zeros_like(lengths)
    for bid_id, numbers in usable.items():
        gap = int(lengths[numbers].min()) if numbers.size else 0
        if gap:
            gaps[bid_id] = gap
            beyond[numbers] = np.maximum(beyond[numbers], gap)
    return Cleaning(gaps, {int(n): int(beyond[n]) for n in np.flatnonzero(beyond)})


def cleaned_edges(pools: Sequence[Pool]) -> list[int]:
    """Return when pools are clean after the spans in which they are free, each once."""
    return list(
        dict.fromkeys(
            closes + pool.listed.cleaning
            for pool in pools
            if pool.listed.cleaning
            for _, closes in pool.spans
        )
    )
