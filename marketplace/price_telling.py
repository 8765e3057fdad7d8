"""What the sides of a lease are told when one of them wants another price."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial

from ledger.commands.notices import give_notice
from ledger.domain.ids import LeaseId, TenantId
from ledger.domain.notices import To, is_news
from ledger.eventstore.port import EventStore, Meta, Recorded, load
from ledger.following import Policy, names_of
from marketplace.domain.facts.price_events import (
    LeasePriceAgreed,
    LeasePriceDeclined,
    LeasePriceProposed,
)
from marketplace.domain.leases.lease import Lease
from marketplace.domain.leases.price_changes import PriceChanges

Clock = Callable[[], datetime]


def tell_of_price(recorded: Recorded, store: EventStore, *, clock: Clock | None) -> None:
    """Tell who is asked of a price that was proposed, and both sides what came of it."""
    event = recorded.event
    assert isinstance(event, LeasePriceProposed | LeasePriceAgreed | LeasePriceDeclined)
    if not is_news(event.at, clock):
        return
    lease, known = load(store, Lease, event.lease_id), load(store, PriceChanges, event.lease_id)
    assert lease is not None
    assert known is not None
    proposed = known.named(event.proposal_id).proposed
    what = f"{lease.gpus} × {lease.terms.gpu_model}"
    since = _at(proposed.since)
    match event:
        case LeasePriceProposed():
            told: Iterable[TenantId] = (each for each in proposed.of if each != proposed.tenant_id)
            title = f"{what}: {proposed.price} proposed from {since}"
            why = f"\n\nThe reason given: {_plain(proposed.why)}" if proposed.why else ""
            body = (
                f"The lease is at {proposed.before}. Its other side proposes {proposed.price} for"
                f" use from {since} on. Answer until {_at(proposed.answer_by)}; without your"
                f" consent the price stays.{why}"
            )
        case LeasePriceAgreed():
            if not event.by_all:
                return
            told = proposed.of
            title = f"{what}: {proposed.price} from {since}"
            body = (
                f"All sides agreed. Use until {since} is charged at {proposed.before}, use from"
                f" then on at {proposed.price}. What it costs at most is set aside."
            )
        case LeasePriceDeclined():
            told = (proposed.tenant_id,)
            title = f"{what}: {proposed.price} was declined"
            why = _plain(event.why) or "none was given"
            body = f"The price stays {proposed.before}. The reason: {why}"
    for tenant_id in told:
        give_notice(
            store,
            to=_people(lease, tenant_id),
            topic="price",
            key=f"{event.proposal_id}:{event.name}",
            title=title,
            body=body,
            link=f"/leases/{event.lease_id}",
            facts={
                "lease_id": str(event.lease_id),
                "proposal_id": str(event.proposal_id),
                "event": event.name,
                "price_nanos": str(proposed.price.nanos_per_gpu_hour),
                "currency": proposed.price.currency,
                "since": proposed.since.isoformat(),
                "answer_by": proposed.answer_by.isoformat(),
            },
            by=Meta.because(recorded, policy="tell-of-price"),
            now=event.at,
        )


def _people(lease: Lease, tenant_id: TenantId) -> To:
    """Return who is meant: who bid, or the unit of a program that did; of an owner, its owners."""
    terms = lease.terms
    if tenant_id != terms.tenant_id:
        return To(tenant_id=tenant_id, roles=("owner", "operator"))
    if terms.user_id is None:
        return To(tenant_id=tenant_id, subscriber_id=terms.subscriber_id)
    return To(tenant_id=tenant_id, user_ids=(terms.user_id,))


def _at(moment: datetime) -> str:
    return f"{moment:%d %B %H:%M} UTC"


def _plain(text: str) -> str:
    return "".join(each if each.isprintable() else " " for each in text).strip()


def _lease_of(recorded: Recorded) -> str:
    lease_id: LeaseId = recorded.event.lease_id  # type: ignore[attr-defined]  # each of them has it
    return str(lease_id)


def policies(*, clock: Clock | None) -> tuple[Policy, ...]:
    """Return what tells the sides of leases of prices. clock: None: nobody is told."""
    return (
        Policy(
            name="marketplace.tell-of-price",
            react=partial(tell_of_price, clock=clock),
            on=names_of(LeasePriceProposed, LeasePriceAgreed, LeasePriceDeclined),
            subject=_lease_of,
        ),
    )
