"""Clear the patient bids of a market together: the most worth, at prices fair to both sides.

The round is written as numbers (`optimum.Problem`), solved within a stated number of steps, and the
answer is turned back into GPUs with names. Service classes go one after the other, each on what the
ones before it left: guaranteed capacity is not weighed against a higher bid.

What a grant pays is the floor of its GPUs plus what their time is worth to those who got none (the
dual prices), never less than the floor and never more than its own limit. Buyers pay exactly what
owners and platform share.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from uuid import UUID

import numpy as np

from marketplace.domain.book import Book
from marketplace.domain.calendar import Calendar
from marketplace.domain.cleaning import Cleaning, cleaned_edges, cleaning_of
from marketplace.domain.demand import OpenBid, Shape
from marketplace.domain.fills import Clearing, Fill, Proof, lease_id_of
from marketplace.domain.gathering import gathered
from marketplace.domain.grid import grid_of
from marketplace.domain.making_room import make_room
from marketplace.domain.moments import whole_second
from marketplace.domain.optimum.compiling import COMPILES
from marketplace.domain.optimum.posing import Ask, Entry, pose
from marketplace.domain.optimum.posing import Pool as Capacity
from marketplace.domain.optimum.problem import ANYWHERE, ONE_HOST, ONE_POOL, Ints
from marketplace.domain.optimum.solution import Effort, Solution
from marketplace.domain.optimum.solving import never, solve
from marketplace.domain.own_first import before_round
from marketplace.domain.owners import is_own
from marketplace.domain.pools import Pool, pools_of
from marketplace.domain.quota_gate import Gate, gate_of
from marketplace.domain.round_prices import RIVALS_MAX, Prices
from marketplace.domain.round_quotas import Bounds, bounds_of, edges_of, kept_out
from marketplace.domain.settling import Given, given_names, guaranteed, pulled_forward, sweep
from marketplace.domain.sizes import grown, once, sizes_of
from marketplace.domain.tries import BrokeOff, Enough, Late, Steps, Watch
from marketplace.domain.vouching import UNVERIFIED
from marketplace.domain.waiting import weight_of

WORK = 100_000_000 if COMPILES else 10_000
"""Steps of the innermost loop that finding prices may take. A round says how many it took, so one
that was cleared with compiled kernels can be made again without them, and the other way round."""
DUAL_MIN, DUAL_MAX = 3, 200
SEARCH_MAX = 200 if COMPILES else 0
SEARCH_BIDS = 4
"""Of so many bids each, one chunk of search."""
FIRST_MIN = 256
"""Bids that own GPUs, or their nominal quota, may serve: so many are tried however late it is."""
EXACT_NODES = 100
"""Nodes of branch and bound in which a small round is finished, where HiGHS is installed; only
under a guard, which may stop it."""


@dataclass(frozen=True, slots=True)
class _Part:
    """The bids of one service class, and what the round knows of the supply they met."""

    bids: Sequence[OpenBid]
    sized: Sequence[OpenBid]
    """The bids in the sizes in which they are searched."""
    pools: Sequence[Pool]
    fits: Mapping[Shape, Sequence[int]]
    grid: Sequence[int]
    bounds: Bounds
    at: int
    cleaning: Cleaning = field(default_factory=Cleaning)


def clear_round(
    book: Book,
    bids: Iterable[OpenBid],
    *,
    now: int,
    round_id: UUID,
    enough: Enough | None = None,
    late: Late | None = None,
    steps: Steps | None = None,
    interrupting: bool = True,
) -> Clearing:
    """Match patient bids to free GPUs so that the grants are worth the most.

    Args:
        bids: in the order of `book.patient()`.
        enough: asked now and then; once true, the best that was found so far stands.
        late: the same for the stages around the search.
        steps: of an earlier clearing, as its proof has them, to make it again bit for bit.
        interrupting: whether interruptible leases make room for firm bids.

    Returns:
        Fills with prices, and the proof. The same book, bids, `now` and steps give the same.

    Raises: BrokeOff, or whatever else broke off that is not about one bid.
    """
    watch = Watch(late, steps)
    try:
        return _cleared(book, bids, watch, now, round_id, enough, steps, interrupting)
    except Exception as broken:
        if watch.trying is None:
            raise
        raise BrokeOff(watch.trying) from broken


def _cleared(
    book: Book,
    bids: Iterable[OpenBid],
    watch: Watch,
    now: int,
    round_id: UUID,
    enough: Enough | None,
    steps: Steps | None,
    interrupting: bool,
) -> Clearing:
    calendar, refused, gate = book.calendar.fork(), list[OpenBid](), gate_of(book)
    fills, bids = _without_search(book, bids, calendar, gate, watch, now, round_id)
    proof = Proof(seed=book.read_to & 0x7FFFFFFF, bound=sum(fill.worth for fill in fills))
    for name, group in _classes(book, bids).items():
        part = _part(book, group, calendar, gate, now)
        before = None if steps is None else _effort_before(steps, name)
        solution = _solved(part, proof.seed, enough, before)
        given = given_names(part.pools, part.sized, solution)
        placed = pulled_forward(given, calendar, gate, now=now, round_id=round_id)
        tries = watch.stage(f"{name} sweep")
        swept, left = sweep(book, group, placed, calendar, gate, tries, now=now, round_id=round_id)
        watch.over()
        placed = gathered(book, placed, calendar, gate, now=now, round_id=round_id)
        placed, grew = grown(book, placed, group, calendar, gate, now=now, round_id=round_id)
        rivals = _rivals(part, left, gate, now)
        made, regrets = _priced(part, solution, placed + swept, rivals, round_id)
        fills += made
        refused += left
        more = grew + sum(fill.worth + fill.weighs for fill in made[len(placed) :])
        proof = proof.plus(
            bound=solution.bound_nanos + more,
            steps=[(f"{name} {stage}", count) for stage, count in solution.iterations],
            slots=len(part.grid) - 1,
            pools=len(part.pools),
            capped=sum(fill.price == fill.bid.limit for fill in made if not fill.own),
            regrets=regrets,
        )
    tries = watch.stage("room", least=1)
    said: dict[str, Any] = {"now": now, "round_id": round_id, "interrupting": interrupting}
    room, calendar = make_room(book, refused, calendar, gate, tries, **said)
    watch.over()
    more = sum(each.worth + each.weighs for each in room)
    proof = replace(proof, bound=proof.bound + more, steps=(*proof.steps, *watch.cut))
    served = {fill.bid.bid_id for fill in room}
    refused = [bid for bid in refused if bid.bid_id not in served]
    fills += room
    why = {} if gate is None else gate.reasons
    return Clearing(tuple(fills), tuple(refused), calendar, proof, held_back=why)


def _without_search(
    book: Book,
    bids: Iterable[OpenBid],
    calendar: Calendar,
    gate: Gate | None,
    watch: Watch,
    now: int,
    round_id: UUID,
) -> tuple[list[Fill], list[OpenBid]]:
    """Serve at their floor who comes first: on own GPUs, within nominal quota; return the rest."""
    tries = watch.stage("own", least=FIRST_MIN)
    given, left = before_round(book, bids, calendar, gate, tries, now=now, round_id=round_id)
    if gate is not None:
        tries = watch.stage("guaranteed", least=FIRST_MIN)
        more, left = guaranteed(book, left, calendar, gate, tries, now=now, round_id=round_id)
        given += more
    watch.over()
    return [Fill(bid, lease_id_of(round_id, bid), at, at.floor) for bid, at in given], left


def _classes(book: Book, bids: Iterable[OpenBid]) -> dict[str, list[OpenBid]]:
    """Return the bids that are cleared together, by name, in the order in which that is done.

    Whose grant was dropped by the check of the last round comes last: it may be so again, and
    should not keep that capacity from others.
    """
    classes: dict[tuple[bool, str], list[OpenBid]] = defaultdict(list)
    for bid in bids:
        again = book.told.get(bid.bid_id) == UNVERIFIED
        name = f"{bid.terms.service_class} {bid.shape.currency}"
        classes[again, f"{name} again" if again else name].append(bid)
    # Those that come again are few: their order among themselves stays that of the bids.
    return {name: group for (_, name), group in sorted(classes.items(), key=lambda it: it[0][0])}


def _rivals(
    part: _Part, refused: Sequence[OpenBid], gate: Gate | None, now: int
) -> Sequence[OpenBid]:
    """Return the refused bids that are heard on prices: not those that quotas keep out."""
    if gate is None:
        return refused
    rivals = []
    for bid in sorted(refused, key=lambda bid: bid.price_time)[:RIVALS_MAX]:
        pools = _usable(part, bid) if bid.bid_id not in gate.reasons else []
        bound = bid.bid_id in part.bounds.groups
        if pools and not (bound and kept_out(gate.quotas, bid, part.pools[pools[0]], now=now)):
            rivals.append(bid)
    return rivals


def _priced(
    part: _Part,
    solution: Solution,
    placed: Sequence[Given],
    refused: Sequence[OpenBid],
    round_id: UUID,
) -> tuple[list[Fill], tuple[int, int]]:
    """Return the grants with their prices, and what the refused regret at these prices."""
    prices = Prices(part.grid, part.pools, solution.prices, partial(_usable, part))
    prices.lower(refused)
    at = {(id(pool.listed), uuid): n for n, pool in enumerate(part.pools) for uuid in pool.uuids}
    fills = []
    for bid, placement in placed:
        if is_own(bid, placement):
            fills.append(Fill(bid, lease_id_of(round_id, bid), placement, 0))
            continue
        counts = Counter(at[id(listed), uuid] for listed, uuid in placement.gpus)
        price = min(bid.limit, max(placement.floor, prices.of(bid, counts, placement.starts)))
        weight = weight_of(bid, now=part.at)
        fills.append(Fill(bid, lease_id_of(round_id, bid), placement, price, weight))
    return fills, prices.regrets(refused)


def _usable(part: _Part, bid: OpenBid) -> list[int]:
    """Return the pools that a bid may use at its limit and that are large enough for it."""
    found = [number for number in part.fits[bid.shape] if _lets(part, bid, number)]
    sizes: dict[object, int] = defaultdict(int)
    for number in found:
        sizes[_place(part.pools[number], bid)] += len(part.pools[number].uuids)
    return [number for number in found if sizes[_place(part.pools[number], bid)] >= bid.gpus]


def _place(pool: Pool, bid: OpenBid) -> object:
    """Return what the GPUs of a bid must have in common: nothing, a host, or an NVLink group."""
    if bid.terms.placement == "any-hosts":
        return None
    host_id = pool.listed.terms.host_id
    return (host_id, pool.link) if bid.terms.request.nvlink else host_id


def _part(
    book: Book, bids: Sequence[OpenBid], calendar: Calendar, gate: Gate | None, now: int
) -> _Part:
    since, until = whole_second(now), max(bid.deadline for bid in bids)
    shapes = dict.fromkeys(bid.shape for bid in bids)
    pools, fits = pools_of(book, shapes, calendar, since=since, until=until)
    edges: list[int] = list(
        dict.fromkeys(edge for pool in pools for span in pool.spans for edge in span)
    )
    edges += cleaned_edges(pools)
    if gate is not None:
        edges += edges_of(gate.quotas, since=since, until=until)
    longest = max((pool.listed.cleaning for pool in pools), default=0)
    sized = sizes_of(bids)
    grid = grid_of(now, until + longest, [*edges, *_edges(sized)])
    bounds = Bounds() if gate is None else bounds_of(gate.quotas, bids, pools, grid)
    part = _Part(bids, sized, pools, fits, grid, bounds, now)
    if not longest:
        return part
    usable = {
        bid.bid_id: [number for number in fits[bid.shape] if _lets(part, bid, number)]
        for bid in bids
        if bid.bid_id not in bounds.groups
    }
    return replace(part, cleaning=cleaning_of(pools, usable))


def _edges(bids: Sequence[OpenBid]) -> Iterable[int]:
    for bid in bids:
        yield from (bid.earliest, bid.earliest + bid.duration, bid.latest_start, bid.deadline)


# --- the round as numbers ----------------------------------------------------------------------


def _solved(part: _Part, seed: int, enough: Enough | None, before: Effort | None) -> Solution:
    grid = np.array(part.grid, np.int64)
    hosts: dict[object, int] = {}
    capacities = [
        Capacity(
            host=hosts.setdefault(pool.listed.terms.host_id, len(hosts)),
            capacity=_capacity(pool, grid, part.cleaning.beyond.get(number, 0)),
        )
        for number, pool in enumerate(part.pools)
    ]
    quotas, counts = once(part.sized, len(part.bounds.quotas))
    asks = [_ask(part, bid, *counted) for bid, counted in zip(part.sized, counts, strict=True)]
    problem = pose(part.grid, capacities, asks, [*part.bounds.quotas, *quotas])
    effort = before or _effort(part, asks, guarded=enough is not None)
    if before is not None or enough is None:
        enough = never
    return solve(problem, effort=effort, seed=seed, enough=enough)


def _capacity(pool: Pool, grid: Ints, beyond: int) -> tuple[int, ...]:
    """Return how many GPUs are free over the whole of each slot, or cleaned after all leases."""
    free = np.zeros(len(grid) - 1, np.int64)
    for opens, closes in pool.spans:
        first = int(np.searchsorted(grid, opens))
        end = int(np.searchsorted(grid, closes + beyond, side="right")) - 1
        free[first:end] = len(pool.uuids)
    return tuple(free.tolist())


def _ask(part: _Part, bid: OpenBid, once_in: Sequence[int], shares: Sequence[int]) -> Ask:
    """Write a bid as numbers. once_in, shares: of the quota that lets it have one of its sizes."""
    entries = tuple(
        Entry(number, part.pools[number].listed.floor)
        for number in part.fits[bid.shape]
        if _lets(part, bid, number)
    )
    return Ask(
        gpus=bid.gpus,
        duration=bid.duration,
        earliest=whole_second(max(bid.earliest, part.grid[0])),
        deadline=bid.deadline,
        limit=bid.limit,
        entries=entries,
        weight=weight_of(bid, now=part.at),
        spread=_spread(bid),
        groups=(*part.bounds.groups.get(bid.bid_id, ()), *once_in),
        shares=(*part.bounds.shares.get(bid.bid_id, ()), *shares),
        gap=part.cleaning.gaps.get(bid.bid_id, 0),
    )


def _lets(part: _Part, bid: OpenBid, number: int) -> bool:
    return _open(part.pools[number], bid) and (bid.bid_id, number) not in part.bounds.barred


def _open(pool: Pool, bid: OpenBid) -> bool:
    listed = pool.listed
    return (
        listed.floor <= bid.limit
        and listed.lease_min <= bid.duration
        and listed.open_to(bid.bid_id)
        and bid.takes(listed)
        and listed.terms.tenant_id != bid.terms.tenant_id
    )


def _spread(bid: OpenBid) -> int:
    """Return how far the bid's GPUs may lie apart.

    Those joined by NVLink stay in one pool, which is one group; where a group is in several pools,
    or a gang wants NVLink on each host, the sweep after the search finds what there is.
    """
    if bid.gpus == 1 or bid.terms.request.nvlink:
        return ONE_POOL
    return ONE_HOST if bid.terms.placement == "same-host" else ANYWHERE


def _effort(part: _Part, asks: Sequence[Ask], *, guarded: bool) -> Effort:
    """Return how much the round is worth searching, by its size."""
    step = max(1, sum(len(ask.entries) for ask in asks) * len(part.grid))
    return Effort(
        dual=min(DUAL_MAX, max(DUAL_MIN, WORK // step)),
        search=min(SEARCH_MAX, -(-len(asks) // SEARCH_BIDS)),
        exact=EXACT_NODES if guarded else 0,
    )


def _effort_before(steps: Steps, service_class: str) -> Effort:
    stages = ("dual", "search", "exact", "highs")
    return Effort(**{stage: steps.get(f"{service_class} {stage}", 0) for stage in stages})
