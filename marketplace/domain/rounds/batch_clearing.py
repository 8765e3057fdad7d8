"""Clear the patient bids of a market together: the most worth, at prices fair to both sides.

The round is written as numbers (`solver.Problem`), solved within a stated number of steps, and the
answer is turned back into GPUs with names. Service classes go one after the other, each on what the
ones before it left: guaranteed capacity is not weighed against a higher bid.

What a grant pays is the floor of its GPUs plus what their time is worth to those who got none (the
dual prices), never less than the floor and never more than its own limit. Buyers pay exactly what
owners and platform share.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

import numpy as np

from ledger.domain.ids import BidId
from marketplace.domain.admission.gate import Gate
from marketplace.domain.book.book import Book
from marketplace.domain.clearing.fills import Clearing, Fill, Proof
from marketplace.domain.clearing.own_supply_first import before_round
from marketplace.domain.clearing.work_budget import BrokeOff, Enough, Late, Steps, Watch
from marketplace.domain.facts.instants import whole_second
from marketplace.domain.kernels.jit import compiles
from marketplace.domain.orderbook.calendar import Calendar
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.rounds.ageing import weight_of
from marketplace.domain.rounds.class_prices import Priced, heard
from marketplace.domain.rounds.class_problem import Entries, Part, part_of
from marketplace.domain.rounds.locality_pass import gathered
from marketplace.domain.rounds.pools import Pool
from marketplace.domain.rounds.preemption_pass import make_room
from marketplace.domain.rounds.realise import Given, given_names, guaranteed, pulled_forward, sweep
from marketplace.domain.rounds.size_variants import grown, once
from marketplace.domain.rounds.this_round import Round
from marketplace.domain.rounds.vetting import UNVERIFIED
from marketplace.domain.solver.builder import Ask, Entry, WrongAsk, pose
from marketplace.domain.solver.builder import Pool as Capacity
from marketplace.domain.solver.lns import SMALL_MAX
from marketplace.domain.solver.problem import ANYWHERE, ONE_HOST, ONE_POOL, Ints
from marketplace.domain.solver.solution import NOT_ALWAYS, Effort, Solution
from marketplace.domain.solver.solve import never, solve

WORK, WORK_PLAIN = 100_000_000, 10_000
"""Steps of the innermost loop that finding prices may take where no clock ends it; and while
kernels are not compiled yet. A round says how many it took, so one that was cleared with compiled
kernels can be made again without them, and the other way round."""
DUAL_MIN, DUAL_MAX = 3, 200
DUAL_GUARDED_MIN, DUAL_GUARDED_BIDS = 4, 12_000
"""Steps of price finding in a larger round where a clock ends it: so many bids are asked in all, in
so many steps at least. Its prices start near their end, and what time is left is better spent on
the search."""
OPENED = 16
"""Steps of price finding in which a larger round looks for prices to start at."""
SEARCH_MAX, SEARCH_GUARDED_MAX = 200, 2_500
"""Chunks of search at most, where no clock ends it, and where one does: then a large round makes
use of its whole time. None while kernels are not compiled yet."""
SEARCH_BIDS = 4
"""Of so many bids each, one chunk of search."""
SHARE_MIN = 0.1
"""A class has so much of the time of the search, however few bids it has."""
FIRST_MIN = 256
"""Bids that own GPUs, or their nominal quota, may serve: so many are tried however late it is."""
FIRST = "guaranteed "
"""Begins the name of a class of bids that may be within nominal quota, searched first."""
EXACT_NODES = 100
"""Nodes of branch and bound in which a small round is finished, where HiGHS is installed; only
under a guard, which may stop it."""


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
        enough: asked now and then; once true, the best that was found so far stands. Where it
            has a method `part`, each class gets a part of the time, by how many bids it has.
        late: the same for the stages around the search.
        steps: of an earlier clearing, as its proof has them, to make it again bit for bit.
        interrupting: whether interruptible leases make room for firm bids.

    Returns:
        Fills with prices, and the proof. The same book, bids, `now` and steps give the same.

    Raises: BrokeOff, or whatever else broke off that is not about one bid.
    """
    watch, this = Watch(late, steps), Round(book, now, round_id, interrupting)
    try:
        return _cleared(this, bids, watch, enough, steps)
    except Exception as broken:
        if watch.trying is None:
            raise
        raise BrokeOff(watch.trying) from broken


def _cleared(
    this: Round, bids: Iterable[OpenBid], watch: Watch, enough: Enough | None, steps: Steps | None
) -> Clearing:
    book, gate = this.book, this.gate
    calendar, refused, placeless = book.calendar.fork(), list[OpenBid](), set[BidId]()
    fills, left_over = _without_search(this, bids, calendar, watch)
    proof = Proof(seed=book.read_to & 0x7FFFFFFF, bound=sum(fill.worth for fill in fills))
    priced: list[Priced] = []
    classes = _classes(book, left_over)
    all_of = sum(map(len, classes.values()))
    for name, group in classes.items():
        part_of_time = _part_of(enough, len(group) / all_of)
        group = [bid for bid in group if gate is None or gate.may_still(bid)]
        if not group:
            continue
        only_own = _only_own(gate, name)
        part = part_of(book, group, calendar, gate, this.at, left_over.spared)
        before = None if steps is None else _effort_before(steps, name)
        solution = _solved(part, proof.seed, part_of_time, before)
        settled = _settled(this, name, part, solution, calendar, watch)
        rivals = [] if only_own else heard(this, part, settled.left)
        prices = Priced(name, part, solution.prices, rivals)
        tries = watch.stage(f"{name} prices")
        made = prices.fills(this, settled.placed + settled.swept, tries)
        priced.append(prices)
        fills += made
        refused += [] if only_own else settled.left
        placeless = set() if settled.is_moved else placeless | settled.placeless
        more = settled.grew + sum(fill.worth + fill.weighs for fill in made[len(settled.placed) :])
        proof = proof.plus(
            bound=solution.bound_nanos + more,
            steps=[(f"{name} {stage}", count) for stage, count in solution.iterations],
            slots=len(part.grid) - 1,
            pools=len(part.pools),
            capped=sum(fill.price == fill.bid.limit for fill in made if not fill.own),
        )
    if gate is not None:
        gate.only_own = False
    tries = watch.stage("room", least=1)
    room, calendar = make_room(this, refused, calendar, tries)
    watch.over()
    more = sum(each.worth + each.weighs for each in room)
    served = {fill.bid.bid_id for fill in room}
    for prices in priced:
        tries = watch.stage(f"{prices.name} regrets")
        proof = proof.regretting(prices.regrets(served, tries))
    proof = replace(proof, bound=proof.bound + more, steps=(*proof.steps, *watch.cut))
    refused = [bid for bid in refused if bid.bid_id not in served]
    fills += room
    return Clearing(
        tuple(fills),
        tuple(refused),
        calendar,
        proof,
        held_back={} if gate is None else gate.reasons,
        placeless=placeless,
        left=None if room else this.left(calendar),
    )


def _only_own(gate: Gate | None, name: str) -> bool:
    """Tell if a class takes from its own quotas alone, and let the gate keep it to that."""
    if gate is None:
        return False
    gate.only_own = name.startswith(FIRST)
    return gate.only_own


def _part_of(enough: Enough | None, share: float) -> Enough | None:
    """Return what says that a class has had its share of the time, so that each is searched.

    Where time cannot be divided, it is what says that all is up.
    """
    part = getattr(enough, "part", None)
    return enough if part is None else part(max(SHARE_MIN, share))


class _Settled(NamedTuple):
    """What became of the answer of a search.

    placed, swept: its grants, and those of the sweep. left, placeless: who got none, and for whom
    of these the sweep found no place. is_moved: whether grants were moved after it, so that there
    may be one. grew: what some became worth more when the search was over, in nano-units.
    """

    placed: list[Given]
    swept: list[Given]
    left: list[OpenBid]
    placeless: set[BidId]
    is_moved: bool
    grew: int


def _settled(
    this: Round, name: str, part: Part, solution: Solution, calendar: Calendar, watch: Watch
) -> _Settled:
    """Turn the answer of a search into grants."""
    given = given_names(part.pools, part.sized, solution)
    placed = pulled_forward(this, given, calendar, watch.stage(f"{name} moves"))
    swept = sweep(this, part.bids, placed, calendar, watch.stage(f"{name} sweep"))
    before = calendar.changes
    placed = gathered(this, placed, calendar, watch.stage(f"{name} nearer"))
    placed, grew = grown(this, placed, part.bids, calendar, watch.stage(f"{name} larger"))
    watch.over()
    is_moved = calendar.changes != before
    return _Settled(placed, swept.given, swept.left, swept.placeless, is_moved, grew)


class _Left(NamedTuple):
    """Who is left to be searched for.

    untried: of these, those that may be guaranteed what they ask for, and for whom it was too
    late. spared: those that might have been served at home: the sweep asks there first.
    """

    bids: Sequence[OpenBid]
    untried: Sequence[OpenBid]
    spared: Collection[BidId]


def _without_search(
    this: Round, bids: Iterable[OpenBid], calendar: Calendar, watch: Watch
) -> tuple[list[Fill], _Left]:
    """Serve at their floor who comes first: on own GPUs, within nominal quota."""
    untried = list[OpenBid]()
    tries = watch.stage("own", least=FIRST_MIN)
    given, left, spared = before_round(
        this.book, bids, calendar, this.gate, tries, now=this.at, round_id=this.round_id
    )
    if this.gate is not None:
        tries = watch.stage("guaranteed", least=FIRST_MIN)
        more, left, untried = guaranteed(this, this.gate, left, calendar, tries)
        given += more
    watch.over()
    fills = [Fill(bid, this.lease_id(bid), at, at.floor) for bid, at in given]
    return fills, _Left(left, untried, spared)


def _classes(book: Book, left: _Left) -> dict[str, list[OpenBid]]:
    """Return the bids that are cleared together, by name, in the order in which that is done.

    Those that may be guaranteed what they ask for are searched before all others, for what is
    within their nominal quota, and then once more with them.

    Units with the weight 0 come last, beyond their nominal quota. So does, among its like, whose
    grant was dropped by the check of the last round: it may be so again, and should not keep that
    capacity from others.
    """
    quotas = book.quotas
    classes: dict[tuple[bool, bool, str], list[OpenBid]] = defaultdict(list)
    before: dict[str, list[OpenBid]] = defaultdict(list)
    for bid in left.untried:
        if book.told.get(bid.bid_id) != UNVERIFIED:
            before[f"{FIRST}{bid.terms.service_class} {bid.shape.currency}"].append(bid)
    for bid in left.bids:
        again = book.told.get(bid.bid_id) == UNVERIFIED
        last = quotas is not None and quotas.goes_last(bid.terms)
        name = f"{bid.terms.service_class} {bid.shape.currency}{' last' if last else ''}"
        classes[last, again, f"{name} again" if again else name].append(bid)
    # Their order among themselves stays that of the bids.
    later = {key[2]: group for key, group in sorted(classes.items(), key=lambda it: it[0][:2])}
    return {**before, **later}


# --- the round as numbers ----------------------------------------------------------------------


def _solved(part: Part, seed: int, enough: Enough | None, before: Effort | None) -> Solution:
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
    asks, entries = [], Entries(part)
    for bid, counted in zip(part.sized, counts, strict=True):
        try:
            asks.append(_ask(part, bid, entries(bid), *counted))
        except Exception as broken:
            raise BrokeOff(bid.bid_id) from broken
    try:
        problem = pose(part.grid, capacities, asks, [*part.bounds.quotas, *quotas])
    except WrongAsk as wrong:
        raise BrokeOff(part.sized[wrong.number].bid_id) from wrong.__cause__
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


def _ask(
    part: Part,
    bid: OpenBid,
    entries: tuple[Entry, ...],
    once_in: tuple[int, ...],
    shares: tuple[int, ...],
) -> Ask:
    """Write a bid as numbers. once_in, shares: of the quota that lets it have one of its sizes."""
    bounds, gaps = part.bounds, part.cleaning.gaps
    bid_id = bid.bid_id
    return Ask(
        gpus=bid.gpus,
        duration=bid.duration,
        earliest=whole_second(max(bid.earliest, part.grid[0])),
        deadline=bid.deadline,
        limit=bid.limit,
        entries=entries,
        weight=weight_of(bid, now=part.at),
        spread=_spread(bid),
        groups=(*bounds.groups.get(bid_id, ()), *once_in) if bounds.quotas else once_in,
        shares=(*bounds.shares.get(bid_id, ()), *shares) if bounds.quotas else shares,
        gap=gaps.get(bid_id, 0) if gaps else 0,
    )


def _spread(bid: OpenBid) -> int:
    """Return how far the bid's GPUs may lie apart.

    Those joined by NVLink stay in one pool, which is one group; where a group is in several pools,
    or a gang wants NVLink on each host, the sweep after the search finds what there is.
    """
    if bid.gpus == 1 or bid.terms.request.nvlink:
        return ONE_POOL
    return ONE_HOST if bid.terms.placement == "same-host" else ANYWHERE


def _effort(part: Part, asks: Sequence[Ask], *, guarded: bool) -> Effort:
    """Return how much the round is worth searching, by its size."""
    step = max(1, sum(len(ask.entries) for ask in asks) * len(part.grid))
    large = len(asks) > SMALL_MAX
    dual = min(DUAL_MAX, max(DUAL_MIN, WORK // step))
    opened, most = (OPENED if large else 0), (SEARCH_GUARDED_MAX if guarded else SEARCH_MAX)
    if guarded:
        dual = max(DUAL_GUARDED_MIN, DUAL_GUARDED_BIDS // len(asks)) if large else DUAL_MAX
    if not compiles():
        dual, opened, most = min(DUAL_MAX, max(DUAL_MIN, WORK_PLAIN // step)), 0, 0
    search = min(most, -(-len(asks) // SEARCH_BIDS))
    return Effort(
        dual=dual,
        search=search,
        exact=EXACT_NODES if guarded else 0,
        opened=opened,
        cooled=search if large and guarded else 0,
    )


def _effort_before(steps: Steps, service_class: str) -> Effort:
    stages = ("dual", "search", *NOT_ALWAYS)
    return Effort(**{stage: steps.get(f"{service_class} {stage}", 0) for stage in stages})
