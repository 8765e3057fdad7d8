"""Check a clearing against the problem by plain sums: the tests’ own reading of the rules."""

from __future__ import annotations

from collections import Counter

from marketplace.domain.solver import (
    ANYWHERE,
    ONE_HOST,
    ONE_POOL,
    UNLIMITED,
    Placed,
    Problem,
    Solution,
)

HOUR = 3_600_000


def worth_of(problem: Problem, bid: int, grant: Placed) -> int:
    """Return a grant's worth in nano-units times milliseconds per hour."""
    floors = floors_of(problem, bid)
    gain = int(problem.limit[bid]) + int(problem.weight[bid])
    length = int(problem.duration[bid])
    return sum((gain - floors[piece.pool]) * piece.gpus * length for piece in grant.pieces)


def floors_of(problem: Problem, bid: int) -> dict[int, int]:
    """Return the pools that a bid may use, and its floors there."""
    kind = int(problem.kind[bid])
    entries = range(int(problem.kind_at[kind]), int(problem.kind_at[kind + 1]))
    return {int(problem.pool[entry]): int(problem.floor[entry]) for entry in entries}


def audit(problem: Problem, solution: Solution) -> None:
    """Assert that the clearing breaks no rule, and is worth what it says."""
    used: Counter[tuple[int, int]] = Counter()
    cut: dict[tuple[int, int], int] = {}
    held: Counter[tuple[int, int]] = Counter()
    given: Counter[int] = Counter()
    total = 0
    for bid, grant in enumerate(solution.placed):
        if grant is None:
            continue
        _audit_time(problem, bid, grant)
        _audit_pieces(problem, bid, grant)
        total += worth_of(problem, bid, grant)
        for piece in grant.pieces:
            entry = _entry(problem, bid, piece.pool)
            for slot in range(grant.slot, grant.end):
                used[piece.pool, slot] += piece.gpus * int(problem.units[entry])
                assert not cut.get((piece.pool, slot), 0) & piece.mask, "slices leased twice"
                cut[piece.pool, slot] = cut.get((piece.pool, slot), 0) | piece.mask
                assert not piece.mask & int(problem.taken[piece.pool, slot])
        for group, units in _counted(problem, bid, grant):
            given[group] += units * _counted_ms(problem, bid, grant, group)
            for slot in range(grant.slot, grant.end):
                held[group, slot] += units
    for (pool, slot), units in used.items():
        assert units <= problem.capacity[pool, slot], "more units than there are"
    for (group, slot), gpus in held.items():
        assert gpus <= problem.concurrent[group, slot], "quota of GPUs at once"
    for group, use in given.items():
        assert use <= problem.gpu_ms[group], "quota of GPU-time"
    assert solution.welfare_nanos == total // HOUR
    assert solution.welfare_nanos <= solution.bound_nanos


def _counted(problem: Problem, bid: int, grant: Placed) -> list[tuple[int, int]]:
    """Return the quotas of a grant, and how much its GPUs count there at once."""
    members = range(int(problem.group_at[bid]), int(problem.group_at[bid + 1]))
    return [
        (
            group := int(problem.group[member]),
            int(problem.share[member])
            * sum(int(problem.counted[group, piece.pool]) * piece.gpus for piece in grant.pieces),
        )
        for member in members
    ]


def _counted_ms(problem: Problem, bid: int, grant: Placed, group: int) -> int:
    over = grant.starts + int(problem.duration[bid])
    since, until = int(problem.since[group]), int(problem.until[group])
    return max(0, min(over, until) - max(grant.starts, since))


def _entry(problem: Problem, bid: int, pool: int) -> int:
    kind = int(problem.kind[bid])
    for entry in range(int(problem.kind_at[kind]), int(problem.kind_at[kind + 1])):
        if problem.pool[entry] == pool:
            return entry
    raise AssertionError(f"bid {bid} may not use pool {pool}")


def _audit_time(problem: Problem, bid: int, grant: Placed) -> None:
    begins, ends = int(problem.grid[grant.slot]), int(problem.grid[grant.end])
    over = grant.starts + int(problem.duration[bid])
    assert begins <= grant.starts < int(problem.grid[grant.slot + 1])
    assert over + int(problem.gap[bid]) <= ends
    assert int(problem.earliest[bid]) <= grant.starts
    assert over <= int(problem.deadline[bid])


def _audit_pieces(problem: Problem, bid: int, grant: Placed) -> None:
    pools = [piece.pool for piece in grant.pieces]
    assert sum(piece.gpus for piece in grant.pieces) == problem.gpus[bid], "all or nothing"
    assert len(set(pools)) == len(pools)
    hosts = {int(problem.host[pool]) for pool in pools}
    match int(problem.spread[bid]):
        case _ if problem.gpus[bid] == 1:
            assert len(pools) == 1
        case spread if spread == ONE_POOL:
            assert len(pools) == 1
        case spread if spread == ONE_HOST:
            assert len(hosts) == 1
        case spread:
            assert spread == ANYWHERE
    for piece in grant.pieces:
        entry = _entry(problem, bid, piece.pool)
        assert piece.gpus >= 1
        assert problem.floor[entry] <= problem.limit[bid], "floor above the limit"
        if problem.divided[piece.pool]:
            _audit_slices(problem, entry, piece.gpus, piece.mask)
        else:
            assert piece.mask == 0


def _audit_slices(problem: Problem, entry: int, gpus: int, mask: int) -> None:
    """Assert that the slices are so many legal placements of the profile, side by side."""
    assert mask.bit_count() == gpus * int(problem.units[entry])
    profile = int(problem.profile[entry])
    begin, end = int(problem.profile_at[profile]), int(problem.profile_at[profile + 1])
    found = _tilings(mask, [int(legal) for legal in problem.mask[begin:end]])
    assert found, "no legal placement of the profile"


def _tilings(mask: int, legal: list[int]) -> bool:
    if mask == 0:
        return True
    low = mask & -mask
    return any(_tilings(mask & ~one, legal) for one in legal if one & low and one & mask == one)


__all__ = ["UNLIMITED", "audit", "floors_of", "worth_of"]
