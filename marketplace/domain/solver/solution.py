"""What `solve` answers: who gets what from when, what it is worth, and what nobody could beat."""

from __future__ import annotations

from dataclasses import astuple, dataclass

from marketplace.domain.solver.problem import MILLIS_PER_HOUR, Ints, Problem

NOT_ALWAYS = ("exact", "highs", "asked", "limits", "bounded", "gains", "rates", "opened", "cooled")
"""Stages that a certificate names only where they did anything."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much work is done at most, in steps, so that a repeat does exactly the same.

    dual: steps of price finding. search: chunks of `CHUNK_MOVES` moves of local search. With
    neither, bids are placed in the order of their limits, each where it is cheapest.
    exact: nodes of branch and bound, for small rounds and where HiGHS is installed; without it,
    the round is what the search found. highs: the version that did it (1.16.0 is 1016000); to
    repeat that, exactly this one must be installed. 0: any, or none.
    asked: bids that a last step of price finding asked, which was cut short.
    limits, bounded, gains, rates: bids after which time was up where they were placed by their
    limits, asked for the bound, placed by what they gain, and by that per GPU-hour; 0 where it
    was not. Only kernels that run as Python take so long.
    opened: steps of price finding in a smaller problem, at whose prices those of this one start; 0:
    they start at zero.
    cooled: chunks of search in a larger round after which its moves lose nothing any more; 0: they
    lose less and less, and never nothing.
    """

    dual: int = 60
    search: int = 100
    exact: int = 0
    highs: int = 0
    asked: int = 0
    limits: int = 0
    bounded: int = 0
    gains: int = 0
    rates: int = 0
    opened: int = 0
    cooled: int = 0

    def __post_init__(self) -> None:
        if min(astuple(self)) < 0:
            raise ValueError("effort is not negative")


@dataclass(frozen=True, slots=True)
class Piece:
    """GPUs of one pool. mask: bits of the memory slices of a card divided by MIG, else 0."""

    pool: int
    gpus: int
    mask: int = 0


@dataclass(frozen=True, slots=True)
class Placed:
    """A bid's grant. slot: in which it starts. starts: ms. Holds the slots [slot, end)."""

    slot: int
    end: int
    starts: int
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """The best clearing found.

    placed: per bid its grant, or None.
    welfare_nanos: Σ (limit + weight − floor) × gpus × duration, in whole nano-units.
    bound_nanos: no clearing of this problem is worth more.
    prices: int64[P, T], nano-units per unit-hour on top of the floors: what one more unit would
    be worth (the dual prices that give the bound).
    done: the steps really taken; `solve` with this effort, the same seed and no guard gives the
    same solution.
    """

    placed: tuple[Placed | None, ...]
    welfare_nanos: int
    bound_nanos: int
    prices: Ints
    done: Effort
    seed: int

    @property
    def iterations(self) -> tuple[tuple[str, int], ...]:
        """Return the steps of each stage, as a certificate has them."""
        done = self.done
        more = [(name, getattr(done, name)) for name in NOT_ALWAYS]
        steps = (("dual", done.dual), ("search", done.search))
        return (*steps, *((name, count) for name, count in more if count))


def welfare_of(problem: Problem, placed: tuple[Placed | None, ...]) -> int:
    """Return what a clearing is worth in nano-units, rounded down; exact until that rounding."""
    total = 0
    for bid, grant in enumerate(placed):
        if grant is None:
            continue
        floors = (
            {
                int(problem.pool[entry]): int(problem.floor[entry])
                for entry in range(
                    int(problem.kind_at[problem.kind[bid]]),
                    int(problem.kind_at[problem.kind[bid] + 1]),
                )
            }
            if len(grant.pieces) > 4
            else None
        )
        gain = int(problem.limit[bid]) + int(problem.weight[bid])
        for piece in grant.pieces:
            floor = floors[piece.pool] if floors is not None else floor_of(problem, bid, piece.pool)
            total += (gain - floor) * piece.gpus * int(problem.duration[bid])
    return total // MILLIS_PER_HOUR


def floor_of(problem: Problem, bid: int, pool: int) -> int:
    """Return the floor of a bid in a pool, in nano-units per GPU-hour.

    Raises: ValueError when the bid may not use the pool.
    """
    kind = int(problem.kind[bid])
    entries = problem.pool[int(problem.kind_at[kind]) : int(problem.kind_at[kind + 1])]
    found = (entries == pool).nonzero()[0]
    if not found.size:
        raise ValueError(f"bid {bid} may not use pool {pool}")
    return int(problem.floor[int(problem.kind_at[kind]) + int(found[0])])
