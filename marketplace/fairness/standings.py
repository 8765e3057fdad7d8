"""Who has what of which quota, who uses it, and who goes first: figures with their arithmetic.

Everything is read from the book at one moment. An actor sees the cohorts that concern it and its
own units; others count in the figures of their cohorts and in how many there are, without a name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from ledger.access import Actor
from ledger.domain.events import Role
from ledger.domain.money import MILLIS_PER_HOUR
from ledger.domain.refusal import Refusal
from ledger.eventstore.port import EventStore
from marketplace.domain.admission.gate import capacity_of
from marketplace.domain.book.book import Book
from marketplace.domain.facts.instants import from_above, moment
from marketplace.domain.facts.policy_events import LimitScope, LimitSet
from marketplace.domain.facts.values import Counts
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.quotas.card_units import by_card, in_gpus
from marketplace.domain.quotas.cohort_tree import Quota, Tree, Usage
from marketplace.domain.quotas.fair_share_order import LN2, FairShare, Standings
from marketplace.domain.quotas.limits import LimitUse, use_of_limit
from marketplace.domain.quotas.policies_in_force import Policies
from marketplace.domain.quotas.quota_book import LAYERS, QuotaBook
from marketplace.fairness.levels import Level, Named, Parting, levels_of, parting_of
from marketplace.queries.books import book_of
from marketplace.queries.quotas import may_see, shown
from marketplace.replay.round import LogTooLong, book_at

WHOLE_TENANT: frozenset[Role] = frozenset({"operator", "owner", "finance", "auditor"})
"""Roles that see all units of their organisation; others see their own unit."""

ANOTHER = "another cohort"
"""What a cohort is called that is the grant of an organisation the actor is not of."""


class DecisionTooOld(Refusal):
    """Too much happened before that round to go through it for one answer."""


@dataclass(frozen=True, slots=True)
class NodeFigures:
    """A unit or cohort, and one class of GPUs. quota: as in force at the moment.

    depth: cohorts around it. total: GPUs of its quota with what its members lend it. used: by it,
    or by all in it. pool: of a cohort, how many GPUs its members have of its pool. hours: used of
    the guaranteed GPU-hours in the present period, in GPU-milliseconds.
    """

    node: str
    is_cohort: bool
    depth: int
    quota: Quota
    total: int
    used: float
    pool: float
    borrowed: float
    lent: float
    available: float
    hours_used: int


@dataclass(frozen=True, slots=True)
class ClassFigures:
    """All that an actor may see of one class of GPUs: cohorts before what is in them."""

    gpu_class: str
    nodes: tuple[NodeFigures, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """A unit's place in the order of fair shares. entitled: its part, by weights at each level.

    waiting, waiting_gpus: its open bids. before: why it goes before the next one shown.
    """

    place: int
    share: FairShare
    entitled: float
    waiting: int
    waiting_gpus: int
    before: Parting | None = None


@dataclass(frozen=True, slots=True)
class LimitFigures:
    """A limit that applies, and what is used of it; None where it is that of each."""

    limit: LimitSet
    used: LimitUse | None


@dataclass(frozen=True, slots=True)
class Shares:
    """What an actor may see of quotas and fair shares at a moment; `places` of how many units.

    levels: the same order level by level, cohorts before what stands in them. named: how a cohort
    is called to the actor, that may stand on the way to its units without being its to see.
    """

    at: datetime
    counts: Counts
    half_life_seconds: int
    period: tuple[datetime, datetime]
    capacity: Mapping[str, float]
    classes: tuple[ClassFigures, ...]
    places: tuple[Place, ...]
    levels: tuple[Level, ...]
    named: Named
    units: int
    limits: tuple[LimitFigures, ...]


def shares_now(store: EventStore, actor: Actor, *, market: str, now: datetime) -> Shares | None:
    """Return quotas and fair shares as of now; None where the market has no policies."""
    with book_of(store, market) as book:
        return _shares(book, actor, now)


def shares_at(store: EventStore, actor: Actor, *, market: str, round_id: UUID) -> Shares | None:
    """Return them as the engine had them when it decided a round.

    Raises: RoundUnknown, DecisionTooOld.
    """
    try:
        found = book_at(store, market, round_id)
    except LogTooLong:
        raise DecisionTooOld(round_id=round_id) from None
    return _shares(found.book, actor, found.cleared.at)


def _shares(book: Book, actor: Actor, now: datetime) -> Shares | None:
    quotas = book.quotas
    if quotas is None or quotas.policies is None:
        return None
    policies, at = quotas.policies, from_above(now)
    seen = {node for node in policies.parents if sees(actor, policies, node)}
    capacity = capacity_of(book.offers.values())
    classes = (
        ClassFigures(gpu_class, tuple(_nodes(quotas, gpu_class, seen, at)))
        for gpu_class in policies.classes
    )
    standings = quotas.standings(capacity, at=at)
    levels = tuple(levels_of(policies, standings, seen.__contains__))
    return Shares(
        at=now,
        counts=policies.counts,
        half_life_seconds=policies.half_life_seconds,
        period=policies.period_at(now),
        capacity=by_card(capacity, policies.counts),
        classes=tuple(each for each in classes if each.nodes),
        places=tuple(_places(book, policies, standings, levels, actor)),
        levels=levels,
        named=lambda node: node if node in seen else ANOTHER,
        units=len(policies.units),
        limits=tuple(_limits(quotas, policies, actor, at)),
    )


def sees(actor: Actor, policies: Policies, node: str) -> bool:
    """Tell if an actor sees a unit or cohort: of its organisation's units maybe only its own."""
    if not may_see(actor, policies, node):
        return False
    whole = actor.sees_all or node in policies.cohorts or bool(actor.roles & WHOLE_TENANT)
    return whole or node == str(actor.subscriber_id)


def _nodes(quotas: QuotaBook, gpu_class: str, seen: set[str], at: int) -> Iterator[NodeFigures]:
    usage, policies = quotas.usage(gpu_class, at), quotas.policies
    assert usage is not None and policies is not None
    since, _ = policies.period_at(moment(at))
    tree, unit = usage.tree, usage.tree.unit
    for node, depth in _from_above(tree):
        root = tree.root(node)
        spoken_of = any(name in tree.quotas and tree.root(name) == root for name in tree.parents)
        if node in seen and spoken_of:
            is_cohort = node in policies.cohorts
            yield NodeFigures(
                node=node,
                is_cohort=is_cohort,
                depth=depth,
                quota=shown(tree.quota(node), unit),
                total=tree.subtree[node] // unit,
                used=in_gpus(_used_in(usage, node) if is_cohort else usage.used(node), unit),
                pool=in_gpus(usage.used(node), unit) if is_cohort else 0,
                borrowed=in_gpus(usage.borrowed(node), unit),
                lent=in_gpus(usage.lent(node), unit),
                available=in_gpus(max(0, usage.available(node)[0]), unit),
                hours_used=quotas.used_within(gpu_class, node, from_above(since), at),
            )


def _from_above(tree: Tree) -> Iterator[tuple[str, int]]:
    """Yield every node after its cohort, cohorts last among siblings, with its depth."""
    inside: dict[str | None, list[str]] = {}
    for node, parent in tree.parents.items():
        inside.setdefault(parent, []).append(node)

    def below(parent: str | None, depth: int) -> Iterator[tuple[str, int]]:
        for node in sorted(inside.get(parent, ()), key=lambda one: (one in inside, one)):
            yield node, depth
            yield from below(node, depth + 1)

    return below(None, 0)


def _used_in(usage: Usage, cohort: str) -> int:
    parents = usage.tree.parents
    cohorts = set(parents.values())
    units = (node for node in parents if node not in cohorts)
    return sum(usage.used(node) for node in units if cohort in usage.tree.path(node))


def _places(
    book: Book, policies: Policies, standings: Standings, levels: tuple[Level, ...], actor: Actor
) -> Iterator[Place]:
    ordered = [unit for unit in standings.ordered() if unit in policies.units]
    entitled = {each.node: each.entitled for each in levels}
    waiting = _waiting(book.bids.values())
    mine = [(number, unit) for number, unit in enumerate(ordered, 1) if sees(actor, policies, unit)]
    for index, (number, unit) in enumerate(mine):
        bids, gpus = waiting.get(unit, (0, 0))
        after = mine[index + 1][1] if index + 1 < len(mine) else None
        yield Place(
            place=number,
            share=standings.share(unit),
            entitled=entitled[unit],
            waiting=bids,
            waiting_gpus=gpus,
            before=None if after is None else parting_of(standings, unit, after),
        )


def _waiting(bids: Iterable[OpenBid]) -> dict[str, tuple[int, int]]:
    """Return how many open bids each unit has, and for how many GPUs."""
    found: dict[str, tuple[int, int]] = {}
    for bid in bids:
        unit = str(bid.terms.subscriber_id)
        count, gpus = found.get(unit, (0, 0))
        found[unit] = (count + 1, gpus + bid.gpus)
    return found


def _limits(quotas: QuotaBook, policies: Policies, actor: Actor, at: int) -> Iterator[LimitFigures]:
    if actor.sees_all:
        for limit in sorted(policies.limits.values(), key=lambda each: LAYERS.index(each.scope)):
            yield _limit(quotas, limit, limit.subject, at)
        return
    mine: Mapping[LimitScope, UUID | None] = {
        "bid": None,
        "user": actor.user_id,
        "subscriber": actor.subscriber_id,
        "tenant": actor.tenant_id,
    }
    for scope in LAYERS:
        found = policies.limit(scope, mine[scope], actor.tenant_id)
        if found is not None and found.tenant_id in (None, actor.tenant_id):
            yield _limit(quotas, found, mine[scope], at)


def _limit(quotas: QuotaBook, limit: LimitSet, whose: UUID | None, at: int) -> LimitFigures:
    if whose is None or quotas.policies is None:
        return LimitFigures(limit, None)
    counts = quotas.policies.counts
    return LimitFigures(limit, use_of_limit(limit, quotas.counted, at, whose, counts))


def full_memory(capacity: float, half_life_seconds: int) -> float:
    """Return the GPU-hours remembered of a class that was used whole, always."""
    return capacity * half_life_seconds * 1_000 / LN2 / MILLIS_PER_HOUR
