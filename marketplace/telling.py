"""What people are told of leases and quotas: who bid, the owner of a host, who asked.

What one did oneself, and work that finished as it should, is no news.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from ledger.commands.notices import give_notice
from ledger.domain.ids import SubscriberId, TenantId, UserId
from ledger.domain.notice_events import Topic
from ledger.domain.notices import To, is_news
from ledger.domain.rounding import in_words
from ledger.eventstore.port import EventStore, Meta, Recorded, load
from ledger.following import Policy, names_of
from marketplace.domain.facts import close_reasons
from marketplace.domain.facts.events import (
    LeaseClosed,
    LeaseHardwareFailed,
    LeaseHostLost,
    LeaseInterrupted,
    MaintenanceNoticed,
    ReclaimRequested,
)
from marketplace.domain.facts.policy_events import QuotaRequestApproved, QuotaRequestDeclined
from marketplace.domain.leases.lease import Lease
from marketplace.domain.quotas.policies_in_force import Policies

Clock = Callable[[], datetime]

OWN_DOING = frozenset(
    {
        close_reasons.WORK_DONE,
        close_reasons.CLOSED_BY_CONSUMER,
        close_reasons.BID_WITHDRAWN,
        close_reasons.RESOLD,
        close_reasons.NOT_NEEDED,
        close_reasons.MOVED,
        close_reasons.PAUSED,
        close_reasons.BUDGET_REACHED,
    }
)
"""Ends of which nobody is told: what one did oneself, what went as it should, and the end of a
pause's notice, of which one was told when it began."""

ForConsumer = ReclaimRequested | LeaseInterrupted | MaintenanceNoticed | LeaseClosed
ForOwner = LeaseHostLost | LeaseHardwareFailed
Decided = QuotaRequestApproved | QuotaRequestDeclined


@dataclass(frozen=True, slots=True)
class Said:
    """What a notice says."""

    topic: Topic
    title: str
    body: str
    facts: dict[str, str] = field(default_factory=dict)


def tell_consumer(recorded: Recorded, store: EventStore, *, clock: Clock | None) -> None:
    """Tell whoever bid that a lease is taken back, interrupted, met by maintenance, or over."""
    event = recorded.event
    assert isinstance(event, ForConsumer)
    if not is_news(event.at, clock):
        return
    lease = load(store, Lease, event.lease_id)
    assert lease is not None
    said = said_to_consumer(event, lease)
    if said is None:
        return
    terms = lease.terms
    give_notice(
        store,
        to=_of_bidder(terms.tenant_id, terms.user_id, terms.subscriber_id),
        topic=said.topic,
        key=str(recorded.id),
        title=said.title,
        body=said.body,
        link=f"/leases/{event.lease_id}",
        facts={"lease_id": str(event.lease_id), "event": event.name, **said.facts},
        by=Meta.because(recorded, policy="tell-consumer"),
        now=event.at,
    )


def _interrupted(event: LeaseInterrupted, what: str) -> Said:
    """Tell that the market pauses work, for other work or for a budget, or takes its capacity."""
    until, facts = _at(event.stop_at), {"stop_at": event.stop_at.isoformat()}
    if not event.pausing:
        return Said(
            "reclaim",
            f"{what}: interrupted at {until}",
            f"The market takes the capacity for a firm bid. The work has until {until} to save "
            "what it has; then it is stopped.",
            facts,
        )
    why, when = "The market pauses the work for other work.", "when there is room"
    if event.in_favour_of == event.lease_id:
        why, when = "A budget is reached.", "when the budget has room again"
    return Said(
        "pause",
        f"{what}: paused at {until}",
        f"{why} The work has until {until} to save what it has; the rest goes on by itself {when}.",
        facts,
    )


def said_to_consumer(event: ForConsumer, lease: Lease) -> Said | None:
    """Return what whoever bid is told of their lease; None: nothing."""
    what = f"{lease.gpus} × {lease.terms.gpu_model}"
    match event:
        case ReclaimRequested():
            if event.maintenance_id is not None:
                return None  # one was told when it was announced
            who = "Its cloud" if event.rented else "The owner"
            pays = ""
            if event.compensation is not None and event.compensation.nanos:
                pays = f" You are paid {in_words(event.compensation)} for it."
            return Said(
                "reclaim",
                f"{what}: taken back at {_at(event.stop_at)}",
                f"{who} takes the capacity back. The work has until {_at(event.stop_at)} to save "
                f"what it has; then it is stopped.{pays}",
                {"stop_at": event.stop_at.isoformat(), "owner_id": str(event.owner_id)},
            )
        case LeaseInterrupted():
            return _interrupted(event, what)
        case MaintenanceNoticed():
            why = _plain(event.reason) or "no reason was given"
            return Said(
                "maintenance",
                f"{what}: maintenance at {_at(event.starts_at)}",
                f"A host of the lease goes into maintenance ({why}). "
                f"The lease ends by {_at(event.starts_at)}, or when the agreed notice is over.",
                {"starts_at": event.starts_at.isoformat(), "host_id": str(event.host_id)},
            )
        case LeaseClosed():
            if event.reason in OWN_DOING:
                return None
            lost = ""
            if event.lost_seconds:
                minutes = -(-event.lost_seconds // 60)
                lost = f" What it did in the last {minutes} min was not saved."
            return Said(
                "lease-end",
                f"{what}: the lease {'failed' if event.failed else 'ended'}",
                f"{close_reasons.REASONS[event.reason]}{lost} What was not used of the money "
                "set aside for it is free again.",
                {"reason": str(event.reason), "failed": str(event.failed).lower()},
            )


def tell_owner(recorded: Recorded, store: EventStore, *, clock: Clock | None) -> None:
    """Tell an owner that a lease ends because of their host, and what that costs them."""
    event = recorded.event
    assert isinstance(event, ForOwner)
    if not is_news(event.at, clock):
        return
    match event:
        case LeaseHostLost():
            why = f"The host was not heard since {_at(event.heard_at)}."
        case LeaseHardwareFailed():
            why = close_reasons.REASONS[event.reason]
    pays = ""
    if event.compensation.nanos:
        paid = in_words(event.compensation)
        pays = f" By the terms of your offer {paid} are paid to the consumer."
    give_notice(
        store,
        to=To(tenant_id=event.owner_id),
        topic="health",
        key=str(recorded.id),
        title="A lease on your GPUs ends because of its host",
        body=f"{why}{pays}",
        link=f"/owner/hosts/{event.host_id}/health",
        facts={
            "lease_id": str(event.lease_id),
            "host_id": str(event.host_id),
            "compensation_nanos": str(event.compensation.nanos),
            "event": event.name,
        },
        by=Meta.because(recorded, policy="tell-owner"),
        now=event.at,
    )


def tell_of_quota(recorded: Recorded, store: EventStore, *, clock: Clock | None) -> None:
    """Tell whoever asked for more quota what was decided."""
    event = recorded.event
    assert isinstance(event, Decided)
    policies = load(store, Policies, event.market)
    request = policies.requests.get(event.request_id) if policies else None
    if request is None or not is_news(event.at, clock):
        return
    asked = request.asked
    match event:
        case QuotaRequestApproved():
            decided = "approved"
            body = f"Take it up until {_at(event.expires_at)}; it is yours then as asked."
        case QuotaRequestDeclined():
            decided, body = "declined", f"The reason: {_plain(event.why) or 'none was given'}"
    give_notice(
        store,
        to=_of_bidder(asked.tenant_id, asked.user_id, asked.subscriber_id),
        topic="quota",
        key=str(recorded.id),
        title=f"Your request for {asked.nominal} GPUs ({asked.gpu_class}) was {decided}",
        body=body,
        link="/fairness",
        facts={"request_id": str(event.request_id), "decided": decided},
        by=Meta.because(recorded, policy="tell-of-quota"),
        now=event.at,
    )


def _of_bidder(tenant_id: TenantId, user_id: UserId | None, unit: SubscriberId) -> To:
    """Return who asked; the people of the unit where a program did."""
    if user_id is None:
        return To(tenant_id=tenant_id, subscriber_id=unit)
    return To(tenant_id=tenant_id, user_ids=(user_id,))


def _at(moment: datetime) -> str:
    return f"{moment:%d %B %H:%M} UTC"


def _plain(text: str) -> str:
    return "".join(each if each.isprintable() else " " for each in text).strip()


def policies(*, clock: Clock | None) -> tuple[Policy, ...]:
    """Return what tells people of leases and quotas. clock: None: nobody is told."""
    return (
        Policy(
            name="marketplace.tell-consumer",
            react=partial(tell_consumer, clock=clock),
            on=names_of(ReclaimRequested, LeaseInterrupted, MaintenanceNoticed, LeaseClosed),
        ),
        Policy(
            name="marketplace.tell-owner",
            react=partial(tell_owner, clock=clock),
            on=names_of(LeaseHostLost, LeaseHardwareFailed),
        ),
        Policy(
            name="marketplace.tell-of-quota",
            react=partial(tell_of_quota, clock=clock),
            on=names_of(QuotaRequestApproved, QuotaRequestDeclined),
            subject=lambda recorded: str(recorded.event.request_id),  # type: ignore[attr-defined]  # Decided
        ),
    )
