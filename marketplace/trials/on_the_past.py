"""Policies tried on the last days: what they would have refused, or let come by an approval only.

Who may list, lease and borrow is asked of every offer, bid and lease, by the rules that decide
about new ones; quotas are those of now. Leases are taken in one after the other, as they began.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from heapq import heappop, heappush
from typing import Literal
from uuid import UUID

from django.db.models import Q

from ledger.access import Actor
from ledger.domain.ids import SubscriberId, TenantId
from ledger.domain.refusal import Invalid, Refusal
from ledger.eventstore.port import EventStore, load
from listings.domain.gpus import model_matches
from listings.domain.permit_events import ListingAllowed
from listings.domain.permits import ListingPermits, permit
from listings.queries import offers
from marketplace.domain.bids.query_language import read_query
from marketplace.domain.governance.authority import Setter
from marketplace.domain.governance.dispatch import ruled
from marketplace.domain.quotas.card_units import size_in
from marketplace.domain.quotas.cohort_tree import Usage
from marketplace.domain.quotas.policies_in_force import Policies
from marketplace.queries.bids import bids
from marketplace.queries.leases import leases
from marketplace.trials.proposed_policies import Asked

DAYS, DAYS_MAX = 7, 31
LOOKED_MAX = 2_000
"""Of offers, bids and leases each: the newest."""
STANDING = ("listed", "paused")

Kind = Literal["offer", "bid", "lease"]
Fate = Literal["allowed", "fewer-models", "needs-approval", "refused"]


class DaysOutOfRange(Invalid):
    """Policies are tried on the last 1 to 31 days."""


@dataclass(frozen=True, slots=True)
class Permissions:
    """Who may do what on a market, under which quotas."""

    listing: ListingPermits
    policies: Policies


@dataclass(frozen=True, slots=True)
class Judged:
    """An offer, a bid or a lease that would have fared otherwise.

    who: the organisation that lists, or the business unit. needs-approval: without borrowing it
    could not be, so more quota would have had to be asked for and approved.
    """

    kind: Kind
    id: UUID
    who: str
    gpu_models: tuple[str, ...]
    gpus: int
    at: datetime
    before: Fate
    after: Fate


@dataclass(frozen=True, slots=True)
class Hindsight:
    """What policies would have meant for the offers, bids and leases of the last days.

    looked: how many there were of each; changes: those that would fare otherwise, newest first.
    """

    since: datetime
    until: datetime
    looked: Mapping[Kind, int]
    changes: tuple[Judged, ...]

    def number(self, kind: Kind, fate: Fate) -> int:
        """Return how many of a kind would come to this that did not."""
        return sum(each.kind == kind and each.after == fate for each in self.changes)


@dataclass(frozen=True, slots=True)
class _Of:
    """Whose it is, as permissions ask."""

    subscriber_id: SubscriberId
    tenant_id: TenantId


@dataclass(frozen=True, slots=True)
class _Asked:
    """An offer, a bid or a lease. gpus: of a bid the least. ends: of a lease."""

    kind: Kind
    id: UUID
    of: _Of
    gpu_models: tuple[str, ...]
    gpus: int
    at: datetime
    starts: datetime
    ends: datetime

    def judged(self, before: Fate, after: Fate) -> Judged:
        who = self.of.tenant_id if self.kind == "offer" else self.of.subscriber_id
        return Judged(
            self.kind, self.id, str(who), self.gpu_models, self.gpus, self.at, before, after
        )


def permissions(
    store: EventStore, *, market: str, policies: Sequence[Asked], setter: Setter
) -> tuple[Permissions, Permissions]:
    """Return who may do what as it is set, and with these policies set one after the other.

    Raises: whatever setting one of them would be refused with.
    """
    listing = load(store, ListingPermits, market) or ListingPermits()
    state = load(store, Policies, market) or Policies()
    before = Permissions(listing, state)
    for policy in policies:
        if isinstance(policy, ListingAllowed):
            for allowed in permit(listing, policy, by_platform=setter.is_platform):
                listing = ListingPermits.evolve(listing, allowed)
        else:
            for event in ruled(state, policy, setter):
                state = Policies.evolve(state, event)
    return before, Permissions(listing, state)


def refused_at(
    store: EventStore, *, market: str, policies: Sequence[Asked], setter: Setter
) -> int | None:
    """Return which of the policies would be refused, by its place; None: none of them."""
    for number in range(len(policies)):
        try:
            permissions(store, market=market, policies=policies[: number + 1], setter=setter)
        except Refusal:
            return number
    return None


def looking_back(
    actor: Actor,
    *,
    market: str,
    before: Permissions,
    after: Permissions,
    days: int,
    now: datetime,
) -> Hindsight:
    """Say what would have fared otherwise, of what came in the last days or stands there now.

    Raises: DaysOutOfRange.
    """
    if not 1 <= days <= DAYS_MAX:
        raise DaysOutOfRange(days_max=DAYS_MAX)
    since = now - timedelta(days=days)
    offered, leased = _offered(actor, market, since), _leased(actor, market, since, now)
    models = sorted({model for each in (*offered, *leased) for model in each.gpu_models})
    wanted = _wanted(actor, market, since, models)
    changes: list[Judged] = []
    for asked, judge in ((offered, _of_offers), (wanted, _of_bids), (leased, _of_leases)):
        fates = zip(asked, judge(asked, before, now), judge(asked, after, now), strict=True)
        changes += [each.judged(was, then) for each, was, then in fates if was != then]
    return Hindsight(
        since=since,
        until=now,
        looked={"offer": len(offered), "bid": len(wanted), "lease": len(leased)},
        changes=tuple(sorted(changes, key=lambda each: (each.at, str(each.id)), reverse=True)),
    )


# --- what there was -----------------------------------------------------------------------------


def _offered(actor: Actor, market: str, since: datetime) -> list[_Asked]:
    there = Q(published_at__gte=since) | Q(state__in=STANDING)
    return [
        _Asked(
            "offer",
            row.offer_id,
            _Of(SubscriberId(row.tenant_id), TenantId(row.tenant_id)),
            tuple(row.gpu_models),
            row.gpu_count,
            row.published_at,
            row.published_at,
            row.published_at,
        )
        for row in offers(actor).filter(there, market=market)[:LOOKED_MAX]
    ]


def _wanted(actor: Actor, market: str, since: datetime, models: Sequence[str]) -> list[_Asked]:
    there = Q(placed_at__gte=since) | Q(state="open")
    return [
        _Asked(
            "bid",
            row.bid_id,
            _Of(SubscriberId(row.subscriber_id), TenantId(row.tenant_id)),
            _fitting(row.query, models),
            row.gpus_min or row.gpus,
            row.placed_at,
            row.earliest_start,
            row.deadline,
        )
        for row in bids(actor).filter(there, market=market)[:LOOKED_MAX]
    ]


def _fitting(query: str, models: Sequence[str]) -> tuple[str, ...]:
    """Return the models that a bid asks for, of those that there are; all it names if none is."""
    wanted = read_query(query).models
    if not wanted:
        return tuple(models)
    found = [each for each in models if any(model_matches(one, each) for one in wanted)]
    return tuple(found) or tuple(wanted)


def _leased(actor: Actor, market: str, since: datetime, now: datetime) -> list[_Asked]:
    there = Q(granted_at__gte=since) | Q(closed_at__isnull=True)
    rows = [
        _Asked(
            "lease",
            row.lease_id,
            _Of(SubscriberId(row.subscriber_id), TenantId(row.tenant_id)),
            (row.gpu_model,),
            row.gpus,
            row.granted_at,
            row.starts_at,
            min(row.ends_at, row.closed_at or row.ends_at),
        )
        for row in leases(actor).filter(there, market=market)[:LOOKED_MAX]
    ]
    return sorted(rows, key=lambda each: (each.starts, str(each.id)))


# --- what would have come of it -----------------------------------------------------------------


def _of_offers(asked: Sequence[_Asked], under: Permissions, now: datetime) -> list[Fate]:
    may = under.listing.may_list
    return [
        "allowed" if all(may(each.of.tenant_id, model) for model in each.gpu_models) else "refused"
        for each in asked
    ]


def _of_bids(asked: Sequence[_Asked], under: Permissions, now: datetime) -> list[Fate]:
    """Judge each bid as if nothing else were leased: what it could not have then, it never has."""
    found: list[Fate] = []
    empty = _Quotas(under.policies, now)
    for each in asked:
        may = [m for m in each.gpu_models if under.policies.may("lease", each.of, m)]
        if not may and each.gpu_models:
            found.append("refused")
        elif may and not any(empty.lets(each, model) for model in may):
            found.append("needs-approval")
        else:
            found.append("allowed" if len(may) == len(each.gpu_models) else "fewer-models")
    return found


def _of_leases(asked: Sequence[_Asked], under: Permissions, now: datetime) -> list[Fate]:
    """Judge leases in the order in which they began; what would not have come takes no quota."""
    found: list[Fate] = []
    quotas = _Quotas(under.policies, now)
    for each in asked:
        (model,) = each.gpu_models
        quotas.release(until=each.starts)
        if not under.policies.may("lease", each.of, model):
            found.append("refused")
        elif quotas.lets(each, model):
            quotas.take(each, model)
            found.append("allowed")
        else:
            found.append("needs-approval")
    return found


@dataclass(slots=True)
class _Quotas:
    """The quotas of one moment, and what of them is taken."""

    policies: Policies
    at: datetime
    _usages: dict[str, Usage] = field(default_factory=dict)
    _taken: list[tuple[datetime, str, UUID]] = field(default_factory=list)
    """Heap of what is taken, by its end."""

    def _binding(self, asked: _Asked, model: str) -> Iterator[tuple[Usage, int]]:
        """Yield the usage of each class that binds a unit, and what it asks for of that."""
        unit = str(asked.of.subscriber_id)
        if unit not in self.policies.units:
            return
        for gpu_class in self.policies.classes:
            size = asked.gpus * size_in(gpu_class, model, self.policies.counts)
            if size:
                usage = self._usages.get(gpu_class)
                if usage is None:
                    usage = Usage(self.policies.tree(gpu_class, self.at))
                    self._usages[gpu_class] = usage
                if usage.tree.governed(unit):
                    yield usage, size

    def lets(self, asked: _Asked, model: str) -> bool:
        """Tell if quota is left for it: its own, or others' where it may borrow."""
        unit = str(asked.of.subscriber_id)
        binding = self._binding(asked, model)
        outcomes = {usage.fits(unit, size).outcome for usage, size in binding}
        if "borrowed" in outcomes and not self.policies.may("borrow", asked.of, model):
            return False
        return "refused" not in outcomes

    def take(self, asked: _Asked, model: str) -> None:
        """Count it."""
        heappush(self._taken, (asked.ends, str(asked.id), asked.id))
        for usage, size in self._binding(asked, model):
            usage.take(asked.id, str(asked.of.subscriber_id), size)

    def release(self, *, until: datetime) -> None:
        """Give back what ended by then."""
        while self._taken and self._taken[0][0] <= until:
            _, _, taken = heappop(self._taken)
            for usage in self._usages.values():
                usage.release(taken)
