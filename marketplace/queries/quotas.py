"""What can be asked about quotas: who has what, who uses it, and what was decided."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import datetime

from ledger.access import Actor
from ledger.eventstore.port import EventStore, Recorded, load, stream_name
from marketplace.domain.moments import from_above
from marketplace.domain.policies import Policies
from marketplace.queries.books import book_of

LOG_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Standing:
    """One unit or cohort and one class of GPUs, at one moment. None: not set."""

    node: str
    is_cohort: bool
    cohort: str | None
    gpu_class: str
    nominal: int | None
    borrowing: int | None
    lending: int | None
    used: int
    borrowed: int
    available: int


def setter_of(actor: Actor) -> tuple[bool, bool]:
    """Return whether an actor is an operator, and whether of the platform."""
    is_operator = "operator" in actor.roles
    return is_operator, is_operator and actor.is_platform


def standings(store: EventStore, actor: Actor, *, market: str, now: datetime) -> list[Standing]:
    """Return the cohorts, and those units that the actor may see, with what they use now."""
    found = []
    with book_of(store, market) as book:
        quotas = book.quotas
        if quotas is None or quotas.policies is None:
            return []
        for gpu_class in quotas.policies.classes:
            usage = quotas.usage(gpu_class, from_above(now))
            assert usage is not None
            for node in sorted(usage.tree.parents):
                if not may_see(actor, quotas.policies, node):
                    continue
                quota = usage.tree.quota(node)
                found.append(
                    Standing(
                        node=node,
                        is_cohort=node in quotas.policies.cohorts,
                        cohort=usage.tree.parents[node],
                        gpu_class=gpu_class,
                        nominal=quota.nominal,
                        borrowing=quota.borrowing,
                        lending=quota.lending,
                        used=usage.used(node),
                        borrowed=usage.borrowed(node),
                        available=max(0, usage.available(node)[0]),
                    )
                )
    return found


def policy_log(store: EventStore, actor: Actor, *, market: str) -> list[Recorded]:
    """Return the policies that concern the actor, newest first, at most `LOG_MAX` of them."""
    policies = load(store, Policies, market) or Policies()
    seen = [
        recorded
        for recorded in store.read_stream(stream_name(Policies, market))
        if all(may_see(actor, policies, node) for node in _about(recorded))
    ]
    return seen[::-1][:LOG_MAX]


def _about(recorded: Recorded) -> Iterator[str]:
    """Yield the units and tenants that a policy speaks of, directly or by an id it names."""
    event = recorded.event
    for field in fields(event):  # type: ignore[arg-type]  # every event is a dataclass
        if field.name in ("node", "subscriber_id", "tenant_id", "subject"):
            value = getattr(event, field.name)
            if value is not None:
                yield str(value)
        elif field.name in ("request_id", "override_id") and getattr(event, field.name):
            yield f"{field.name}:{getattr(event, field.name)}"


def may_see(actor: Actor, policies: Policies, about: str) -> bool:
    """Tell if an actor may see what is about a unit, tenant, request or override.

    Cohorts that are nobody's grant are everybody's to see; all else only one's own.
    """
    if actor.sees_all or about == str(actor.tenant_id):
        return True
    cohort = policies.cohorts.get(about)
    if cohort is not None:
        return cohort.tenant_id in (None, actor.tenant_id)
    kind, _, key = about.rpartition(":")
    if kind == "request_id":
        asked = [each.asked for each in policies.requests.values()]
        return any(str(e.request_id) == key and e.tenant_id == actor.tenant_id for e in asked)
    if kind == "override_id":
        nodes = [e.node for e in policies.overrides.values() if str(e.override_id) == key]
        return any(may_see(actor, policies, node) for node in nodes)
    unit = policies.units.get(about)
    return unit is not None and unit.tenant_id == actor.tenant_id
