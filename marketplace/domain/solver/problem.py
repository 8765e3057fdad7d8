"""A round as numbers: slots, pools of like GPUs, bids, quotas. What `solve` is given.

Times are integer milliseconds, money integer nano-units of one currency; rates are nano-units per
GPU-hour. Every constraint is decided on whole slots of `grid`, which need not be of equal length.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Narrow = NDArray[np.int32]
Floats = NDArray[np.float64]

ONE_POOL, ONE_HOST, ANYWHERE = 0, 1, 2
"""How the GPUs of a bid may spread: in one pool; over the pools of one host; a gang over all."""

UNLIMITED = 2**62
"""A quota that is not set. Zero is a quota too, and admits nothing."""

MASK_WHOLE = 0xFF
"""All eight memory slices of a card."""

MILLIS_PER_HOUR = 3_600_000


def _ints() -> Ints:
    return np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Problem:
    """T slots, P pools, N bids, K kinds of bid, E entries (what a kind may use), G quota groups.

    Slots
        grid: int64[T+1], rising. Slot t is [grid[t], grid[t+1]).
    Pools: GPUs of one host that are alike and free at the same times
        capacity: int32[P, T], free units. A unit is a GPU, a share of one, or, in a pool that is
        one card divided by MIG, a memory slice (then at most 8).
        host: int32[P], which host; any numbering.
        divided: bool[P], the pool is one card divided by MIG; its units are memory slices.
        taken: int32[P, T], bits of memory slices already in use; 0 where not divided. Where the
        card is not free at all it is 0xFF.
    Kinds: bids that may use the same pools at the same floors share a kind
        kind_at: int64[K+1], the entries of kind q are kind_at[q] to kind_at[q+1].
        pool: int32[E]; no pool twice in a kind.
        units: int32[E], units that each GPU of the bid takes there. For a MIG profile: how many
        memory slices.
        floor: int64[E], nano-units per GPU-hour that the owner wants of such a bid.
        profile: int32[E], index of the profile, or -1 where the pool is not divided.
        profile_at: int64[Q+1], mask: int32[...]; the legal masks of profile q, in the order tried.
    Bids
        kind: int64[N]. gpus: int64[N]. duration: int64[N], ms.
        earliest, deadline: int64[N], ms; the lease lies within.
        gap: int64[N], ms after the lease for which its GPUs stay idle, to be cleaned; 0 if not
        given. It may go beyond the deadline, not beyond the grid.
        limit: int64[N], nano-units per GPU-hour that the bidder pays at most.
        weight: int64[N], added to the limit when bids are compared, never paid.
        spread: int64[N], ONE_POOL, ONE_HOST or ANYWHERE.
    Quotas: groups of bids, such as those of a tenant, a user, a cohort
        group_at: int64[N+1], group: int64[M], the groups each bid counts for.
        share: int64[M], how much each GPU of the bid counts there; 1 where not given. For a
        quota of money: the limit, in units coarse enough for 64 bits (rounded up).
        counted: int64[G, P], how much a GPU of each pool counts; 1 where not given. For a quota of
        one class of GPUs: 1 in its pools, else 0. For one of memory: MiB per GPU.
        concurrent: int64[G, T], share × counted × GPUs that the group may still hold in a slot, or
        UNLIMITED.
        gpu_ms: int64[G], share × counted × GPU-milliseconds that it may still get, or UNLIMITED.
        since, until: int64[G], ms: only time between these counts for `gpu_ms`; all if not given.

    A bid that starts in slot t starts at max(earliest, grid[t]) and holds its GPUs in all slots
    from t until the first grid point at or after its end and gap. It gets all GPUs for its duration
    from one start, or nothing. Worth of a grant: (limit + weight − floor) × gpus × duration.

    Raises: ValueError for arrays that do not fit together.
    """

    grid: Ints
    capacity: Narrow
    host: Narrow
    divided: NDArray[np.bool_]
    taken: Narrow
    kind_at: Ints
    pool: Narrow
    units: Narrow
    floor: Ints
    profile: Narrow
    kind: Ints
    gpus: Ints
    duration: Ints
    earliest: Ints
    deadline: Ints
    limit: Ints
    weight: Ints
    spread: Ints
    gap: Ints = field(default_factory=_ints)
    profile_at: Ints = field(default_factory=lambda: np.zeros(1, np.int64))
    mask: Narrow = field(default_factory=lambda: np.zeros(0, np.int32))
    group_at: Ints = field(default_factory=_ints)
    group: Ints = field(default_factory=_ints)
    share: Ints = field(default_factory=_ints)
    counted: Ints = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    concurrent: Ints = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    gpu_ms: Ints = field(default_factory=_ints)
    since: Ints = field(default_factory=_ints)
    until: Ints = field(default_factory=_ints)

    @property
    def slots(self) -> int:
        """Return T."""
        return len(self.grid) - 1

    @property
    def pools(self) -> int:
        """Return P."""
        return len(self.capacity)

    @property
    def bids(self) -> int:
        """Return N."""
        return len(self.kind)

    @property
    def groups(self) -> int:
        """Return G."""
        return len(self.gpu_ms)

    def __post_init__(self) -> None:
        if not self.groups and not self.group_at.size:
            object.__setattr__(self, "group_at", np.zeros(self.bids + 1, np.int64))
        if not self.groups and not self.concurrent.size:
            object.__setattr__(self, "concurrent", np.zeros((0, max(self.slots, 0)), np.int64))
        if not self.gap.size:
            object.__setattr__(self, "gap", np.zeros(self.bids, np.int64))
        if not self.share.size:
            object.__setattr__(self, "share", np.ones(len(self.group), np.int64))
        if not self.counted.size:
            object.__setattr__(self, "counted", np.ones((self.groups, self.pools), np.int64))
        for name, end in (("since", -UNLIMITED), ("until", UNLIMITED)):
            if not getattr(self, name).size:
                object.__setattr__(self, name, np.full(self.groups, end, np.int64))
        for said, right in _checks(self):
            if not right:
                raise ValueError(said)


def _checks(problem: Problem) -> list[tuple[str, bool]]:
    slots, pools, bids = problem.slots, problem.pools, problem.bids
    entries = len(problem.pool)
    each = (
        *(problem.gpus, problem.duration, problem.earliest, problem.deadline),
        *(problem.limit, problem.weight, problem.spread, problem.gap),
    )
    per_entry = (problem.units, problem.floor, problem.profile)
    shapes = [
        ("one slot at least", slots >= 1),
        ("capacity, taken: [P, T]", problem.capacity.shape == (pools, slots)),
        ("taken: [P, T]", problem.taken.shape == (pools, slots)),
        ("host, divided: [P]", len(problem.host) == len(problem.divided) == pools),
        ("arrays of bids: [N]", all(len(column) == bids for column in each)),
        ("arrays of entries: [E]", all(len(column) == entries for column in per_entry)),
        ("concurrent: [G, T]", problem.concurrent.shape == (problem.groups, slots)),
        ("counted: [G, P]", problem.counted.shape == (problem.groups, pools)),
        ("share: [M]", len(problem.share) == len(problem.group)),
        ("since, until: [G]", len(problem.since) == len(problem.until) == problem.groups),
    ]
    if not all(right for _, right in shapes):
        return shapes
    return [
        ("grid rises", bool((np.diff(problem.grid) > 0).all())),
        ("capacity ≥ 0", bool((problem.capacity >= 0).all())),
        ("kind_at divides the entries", _divides(problem.kind_at, entries)),
        ("kind: an index of kinds", _indexes(problem.kind, len(problem.kind_at) - 1)),
        ("pool: an index of pools", _indexes(problem.pool, pools)),
        ("no pool twice in a kind", not _repeats(problem)),
        ("units ≥ 1", bool((problem.units >= 1).all())),
        ("floor ≥ 0", bool((problem.floor >= 0).all())),
        ("profile_at divides mask", _divides(problem.profile_at, len(problem.mask))),
        ("profile: an index, or -1", _indexes(problem.profile + 1, len(problem.profile_at))),
        ("divided pools are taken by profile", _divided(problem)),
        ("masks take the units they say", _popcounts(problem)),
        ("gpus, duration ≥ 1", bool(((problem.gpus >= 1) & (problem.duration >= 1)).all())),
        ("weight, gap ≥ 0", bool((problem.weight >= 0).all() and (problem.gap >= 0).all())),
        ("spread: 0, 1 or 2", _indexes(problem.spread, 3)),
        ("group_at: [N+1]", len(problem.group_at) == bids + 1),
        ("group_at divides group", _divides(problem.group_at, len(problem.group))),
        ("group: an index of groups", _indexes(problem.group, problem.groups)),
        ("quotas ≥ 0", bool((problem.concurrent >= 0).all() and (problem.gpu_ms >= 0).all())),
        ("share, counted ≥ 0", bool((problem.share >= 0).all() and (problem.counted >= 0).all())),
        ("what counts for quotas fits 64 bits", _countable(problem)),
    ]


def _countable(problem: Problem) -> bool:
    """Tell if all bids together count for less than UNLIMITED in every group."""
    members = np.repeat(np.arange(problem.bids), np.diff(problem.group_at))
    most = problem.counted.max(axis=1, initial=0).astype(np.float64)
    total = (
        problem.share.astype(np.float64)
        * most[problem.group]
        * problem.gpus[members]
        * problem.duration[members]
    )
    each = np.bincount(problem.group, weights=total, minlength=1)
    return float(each.max(initial=0.0)) < UNLIMITED


def _divides(starts: Ints, total: int) -> bool:
    rising = len(starts) >= 1 and bool((np.diff(starts) >= 0).all())
    return rising and int(starts[0]) == 0 and int(starts[-1]) == total


def _indexes(index: Ints | Narrow, end: int) -> bool:
    return not index.size or bool(index.min() >= 0 and index.max() < end)


def _repeats(problem: Problem) -> bool:
    kinds = np.repeat(np.arange(len(problem.kind_at) - 1), np.diff(problem.kind_at))
    pairs = kinds * problem.pools + problem.pool
    return len(np.unique(pairs)) != len(pairs)


def _divided(problem: Problem) -> bool:
    return bool(((problem.profile >= 0) == problem.divided[problem.pool]).all())


def _popcounts(problem: Problem) -> bool:
    for entry in np.flatnonzero(problem.profile >= 0):
        profile = problem.profile[entry]
        masks = problem.mask[problem.profile_at[profile] : problem.profile_at[profile + 1]]
        if any(int(mask).bit_count() != problem.units[entry] for mask in masks):
            return False
    return True
