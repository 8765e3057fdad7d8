"""What people are told of their money: it runs out, work waits for it, goes on, or does not."""

from __future__ import annotations

from datetime import datetime

from ledger.commands.notices import give_notice
from ledger.domain.accounts import Account
from ledger.domain.depletion_events import AccountDepletes, AccountRunsOut
from ledger.domain.ids import BidId
from ledger.domain.notices import To
from ledger.domain.rounding import in_words
from ledger.eventstore.port import EventStore, Meta, Recorded, load
from ledger.following import Policy, names_of
from marketplace.domain.bids.bid import Bid
from marketplace.domain.facts.close_reasons import FUNDS_TAKEN, WITHOUT_MONEY
from marketplace.domain.facts.events import (
    BidAwaitsMoney,
    BidChainEnded,
    BidPlaced,
    ExtensionRefused,
)
from marketplace.domain.leases.lease import Lease
from marketplace.domain.leases.renewals import NO_MONEY

SHORT = {"budget-spent": "Its bid's budget", "budget-used-up": "A budget of your organisation"}
"""What does not cover a step, where it is not the account."""


def tell_of_account(recorded: Recorded, store: EventStore) -> None:
    """Tell an organisation's finance people, and those of its unit, that an account runs out."""
    event = recorded.event
    assert isinstance(event, AccountRunsOut | AccountDepletes)
    account = load(store, Account, event.account_id)
    unit = None if account is None else account.opened.subscriber_id
    facts = {"account_id": str(event.account_id), "left_nanos": str(event.left.nanos)}
    lasts = "" if event.lasts_until is None else f" It lasts until {_said(event.lasts_until)}."
    if event.lasts_until is not None:
        facts["lasts_until"] = event.lasts_until.isoformat()
    if isinstance(event, AccountRunsOut):
        title = f"{event.title}: {event.level} % is charged or set aside"
        body = (
            f"Of {in_words(event.there)} that could be set aside when money last came in,"
            f" {in_words(event.left)} are left.{lasts}\n\nBids and steps of leases that it does"
            " not cover are refused; work that saves itself is paused, and goes on after a top-up."
        )
        facts["level"] = str(event.level)
    else:
        title = f"{event.title} lasts until {_said(event.lasts_until)}"
        body = (
            f"What runs on it and goes on by itself needs more than the {event.left} that are left."
            " Add money before then, or work that saves itself is paused until there is some."
        )
    give_notice(
        store,
        to=To(tenant_id=event.tenant_id, subscriber_id=unit, roles=("finance", "operator")),
        topic="money",
        key=f"runs-out:{event.account_id}:{recorded.version}",
        title=title,
        body=body,
        link="/finance",
        facts=facts,
        by=Meta.because(recorded, policy="tell-of-account"),
        now=event.at,
    )


def tell_of_step(recorded: Recorded, store: EventStore) -> None:
    """Tell a lease's unit that its next step is not covered, as long as money can still help."""
    event = recorded.event
    assert isinstance(event, ExtensionRefused)
    if event.reason not in (*WITHOUT_MONEY, FUNDS_TAKEN):
        return
    lease = load(store, Lease, event.lease_id)
    assert lease is not None
    until = _said(event.ends_at if event.reason == FUNDS_TAKEN else lease.ends_at)
    then = (
        "its work is paused, and goes on by itself after a top-up" if event.pausing else "it ends"
    )
    short = SHORT.get(event.reason, "The account")
    lacks = "does not cover its next step"
    if event.reason == FUNDS_TAKEN:
        lacks = "is below zero, since a bank took a payment back"
    give_notice(
        store,
        to=To(tenant_id=lease.terms.tenant_id, subscriber_id=lease.terms.subscriber_id),
        topic="money",
        key=f"step:{event.lease_id}:{event.ends_at.isoformat()}:{event.reason}",
        title=f"A lease has no money to go on after {until}",
        body=f"{short} {lacks}. It runs until {until}; then {then}.",
        link=f"/leases/{event.lease_id}",
        facts={"lease_id": str(event.lease_id), "ends_at": lease.ends_at.isoformat()},
        by=Meta.because(recorded, policy="tell-of-step"),
        now=event.at,
    )


def tell_of_wait(recorded: Recorded, store: EventStore) -> None:
    """Tell a bid's unit that what is to follow waits for money, or that it is over."""
    event = recorded.event
    assert isinstance(event, BidAwaitsMoney | BidChainEnded)
    if isinstance(event, BidChainEnded) and event.because != NO_MONEY:
        return
    facts = {"bid_id": str(event.bid_id)}
    if isinstance(event, BidAwaitsMoney):
        title = f"Work waits for money: {event.needs}"
        body = (
            f"The account has to cover {event.needs} for it to go on. It waits until"
            f" {_said(event.until)}, and goes on by itself after a top-up; then it ends."
        )
        if event.budget:
            title = f"Work waits for the budget {event.budget}: {event.needs}"
            body = (
                f"The budget has to have room for {event.needs}. It goes on by itself with a grant,"
                f" a higher amount, or in the next period. It waits until {_said(event.until)};"
                " then it ends."
            )
        facts |= {"needs_nanos": str(event.needs.nanos), "until": event.until.isoformat()}
    else:
        title = "Work that waited for money has ended"
        body = "No money came in time. What it had saved is still there; bid anew to go on."
    _tell_unit(
        recorded, store, bid_id=event.bid_id, title=title, body=body, facts=facts, now=event.at
    )


def tell_that_it_goes_on(recorded: Recorded, store: EventStore) -> None:
    """Tell a bid's unit that work goes on that had waited for money."""
    placed = recorded.event
    assert isinstance(placed, BidPlaced)
    if placed.continues is None:
        return
    before = load(store, Bid, placed.continues.bid_id)
    if before is None or before.awaits is None:
        return
    _tell_unit(
        recorded,
        store,
        bid_id=placed.bid_id,
        title="Work goes on that waited for money",
        body="The money for it is there: the next bid is placed, and runs when there is room.",
        facts={"bid_id": str(placed.bid_id)},
        now=placed.at,
    )


def _tell_unit(
    recorded: Recorded,
    store: EventStore,
    *,
    bid_id: BidId,
    title: str,
    body: str,
    facts: dict[str, str],
    now: datetime,
) -> None:
    bid = load(store, Bid, bid_id)
    assert bid is not None
    give_notice(
        store,
        to=To(tenant_id=bid.terms.tenant_id, subscriber_id=bid.terms.subscriber_id),
        topic="pause",
        key=f"money:{bid_id}:{recorded.version}",
        title=title,
        body=body,
        link=f"/bids/{bid_id}",
        facts=facts,
        by=Meta.because(recorded, policy="tell-of-wait"),
        now=now,
    )


def _said(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


POLICIES: tuple[Policy, ...] = (
    Policy(
        name="marketplace.tell-of-account",
        react=tell_of_account,
        on=names_of(AccountRunsOut, AccountDepletes),
    ),
    Policy(
        name="marketplace.tell-of-step",
        react=tell_of_step,
        on=names_of(ExtensionRefused),
    ),
    Policy(
        name="marketplace.tell-of-wait",
        react=tell_of_wait,
        on=names_of(BidAwaitsMoney, BidChainEnded),
    ),
    Policy(
        name="marketplace.tell-that-it-goes-on",
        react=tell_that_it_goes_on,
        on=names_of(BidPlaced),
    ),
)
