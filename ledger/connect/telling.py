"""What people are told of owners who are paid over Stripe."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial

from ledger import paying
from ledger.commands.notices import give_notice
from ledger.domain.connect_events import (
    BankPayoutSeen,
    PayoutChannelChosen,
    StripeAccountSeen,
    TransferReversalFailed,
    TransferReversed,
    TransferWaited,
)
from ledger.domain.ids import TenantId
from ledger.domain.notices import To, is_news, to_platform
from ledger.domain.payees import Payee
from ledger.domain.payout_events import PayoutPaid, PayoutReturned
from ledger.eventstore.port import EventStore, Meta, Recorded, load
from ledger.following import Policy, names_of
from ledger.models import PayeeRow

Clock = Callable[[], datetime]
Told = (
    StripeAccountSeen
    | PayoutChannelChosen
    | TransferWaited
    | TransferReversalFailed
    | TransferReversed
    | BankPayoutSeen
    | PayoutPaid
    | PayoutReturned
)


def tell_of_transfers(recorded: Recorded, store: EventStore, *, clock: Clock | None) -> None:
    """Tell an owner's people what becomes of its money, and the platform's what they see to."""
    event = recorded.event
    assert isinstance(event, Told)
    if not is_news(event.at, clock):
        return
    by = Meta.because(recorded, policy="tell-of-transfers")
    if isinstance(event, PayoutPaid | PayoutReturned):
        payout = (load(store, Payee, event.account_id) or Payee()).payouts.get(event.payout_id)
        if payout is not None and payout.channel == "stripe":
            paying.tell_outcome(store, event.account_id, event.payout_id, by=by, now=event.at)
        return
    said, owner = words(event), _owner(store, event)
    if said is None or owner is None:
        return
    title, body = said
    receivers = [To(tenant_id=owner)]
    if isinstance(event, TransferWaited | TransferReversalFailed):
        receivers = [to_platform()]
    for to in receivers:
        give_notice(
            store,
            to=to,
            topic="payout",
            key=str(recorded.id),
            title=title[:200],
            body=body,
            link="/payouts",
            by=by.step(str(to.tenant_id)),
            now=event.at,
        )


def words(
    event: StripeAccountSeen
    | PayoutChannelChosen
    | TransferWaited
    | TransferReversalFailed
    | TransferReversed
    | BankPayoutSeen,
) -> tuple[str, str] | None:
    """Return title and text of what is told; None: it is not worth it."""
    match event:
        case StripeAccountSeen():
            if event.state == "ready":
                return "Your account at Stripe is ready", "Payouts can go there: say so on Payouts."
            if event.state != "restricted":
                return None
            body = f"{event.words}\n\nWhat is payable waits until Stripe takes it again."
            return "Stripe takes no payouts for you at the moment", body.strip()
        case PayoutChannelChosen():
            if event.channel == "bank-file":
                return "Your payouts go to your bank account again", "Not over Stripe any more."
            body = (
                f"From {event.usable_from:%Y-%m-%d %H:%M} UTC on.\n\nIf nobody of you chose that,"
                " choose the bank account again on the page Payouts: nothing is sent until then."
            )
            return "Your payouts are to go over Stripe", body
        case TransferWaited():
            if event.tries > 1:
                return None
            body = f"{event.reason}\n\nIt is asked for again, for a week at most."
            return "Our balance at Stripe is too low for a payout", body
        case TransferReversalFailed():
            return "Stripe takes a transfer not back", event.reason
        case TransferReversed():
            body = f"{event.reason}\n\nIt is part of your earnings again."
            return f"{event.money} of a payout were taken back", body
        case BankPayoutSeen():
            if event.state != "failed":
                return None
            body = (
                f"{event.words}\n\nIt is in your account at Stripe; see to the bank account there."
            )
            return f"Your bank did not take {event.money}", body


def _owner(store: EventStore, event: Told) -> TenantId | None:
    """Return whose earnings it is about."""
    payee = load(store, Payee, event.account_id) or Payee()
    if payee.connected is not None:
        return payee.connected.asked.tenant_id
    row = PayeeRow.objects.filter(pk=event.account_id).first()
    return None if row is None else TenantId(row.tenant_id)


def policies(*, clock: Clock | None) -> tuple[Policy, ...]:
    """Return what tells people of transfers. clock: None: nobody is told."""
    return (
        Policy(
            name="ledger.tell-of-transfers",
            react=partial(tell_of_transfers, clock=clock),
            on=names_of(
                StripeAccountSeen,
                PayoutChannelChosen,
                TransferWaited,
                TransferReversalFailed,
                TransferReversed,
                BankPayoutSeen,
                PayoutPaid,
                PayoutReturned,
            ),
        ),
    )
