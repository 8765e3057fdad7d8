"""What people are told of wallets: cards that were declined, refunds to decide on, chargebacks."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial

from ledger.commands.notices import give_notice
from ledger.domain.accounts import Account
from ledger.domain.ids import AccountId
from ledger.domain.notices import To, is_news, to_platform
from ledger.domain.wallet_events import (
    AutomaticTopUpEnded,
    PaymentDisputeClosed,
    PaymentDisputed,
    PaymentFailed,
    RefundApproved,
    RefundAsked,
    RefundDeclined,
)
from ledger.eventstore.port import EventStore, Meta, Recorded, load
from ledger.following import Policy, names_of

Clock = Callable[[], datetime]
Told = (
    PaymentFailed
    | AutomaticTopUpEnded
    | RefundAsked
    | RefundApproved
    | RefundDeclined
    | PaymentDisputed
    | PaymentDisputeClosed
)


def tell_of_wallets(recorded: Recorded, store: EventStore, *, clock: Clock | None) -> None:
    """Tell the wallet's finance people, and the platform's of what they decide on or bear."""
    event = recorded.event
    assert isinstance(event, Told)
    account = load(store, Account, event.account_id)
    said = words(event)
    if account is None or not said or not is_news(event.at, clock):
        return
    title, body = said
    mine = To(tenant_id=account.opened.tenant_id)
    receivers = [mine]
    if isinstance(event, RefundAsked):
        receivers = [to_platform()]
    elif isinstance(event, PaymentDisputed | PaymentDisputeClosed):
        receivers.append(to_platform())
    for to in dict.fromkeys(receivers):
        give_notice(
            store,
            to=to,
            topic="money",
            key=str(recorded.id),
            title=f"{account.opened.title}: {title}"[:200],
            body=body,
            link=f"/wallet/{event.account_id}",
            facts={"account_id": str(AccountId(event.account_id)), "event": event.name},
            by=Meta.because(recorded, policy="tell-of-wallets").step(str(to.tenant_id)),
            now=event.at,
        )


def words(event: Told) -> tuple[str, str] | None:
    """Return title and text of what is told; None: it is not worth it."""
    match event:
        case PaymentFailed():
            if not event.declined:
                return None
            return "a top-up was declined", f"{event.reason}\n\nNothing was paid."
        case AutomaticTopUpEnded():
            if not event.reason:
                return None
            return "it does not top itself up any more", event.reason
        case RefundAsked():
            return f"{event.money} are asked back", f"The reason: {event.reason}"
        case RefundApproved():
            return "a refund goes out", "It goes back to the cards that it came from."
        case RefundDeclined():
            return "a refund was declined", "Its money is available again."
        case PaymentDisputed():
            body = "It left the wallet, which may be below zero now. New bids are refused then."
            return f"a bank took {event.money} back", body
        case PaymentDisputeClosed():
            if event.won:
                return "a chargeback was decided for us", "What the bank took is there again."
            return "a chargeback was decided against us", "What the bank took stays with it."


def policies(*, clock: Clock | None) -> tuple[Policy, ...]:
    """Return what tells people of wallets. clock: None: nobody is told."""
    return (
        Policy(
            name="ledger.tell-of-wallets",
            react=partial(tell_of_wallets, clock=clock),
            on=names_of(
                PaymentFailed,
                AutomaticTopUpEnded,
                RefundAsked,
                RefundApproved,
                RefundDeclined,
                PaymentDisputed,
                PaymentDisputeClosed,
            ),
        ),
    )
