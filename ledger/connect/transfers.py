"""What owners are paid over Stripe, carried out: accounts, transfers, parts of them taken back.

What is to be done is on record before Stripe is asked. A process that is killed between the call
and the note of it asks again, with the same key, and looks first if the transfer is there: Stripe
forgets keys after a day.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from uuid import UUID
from weakref import WeakKeyDictionary

from ledger.commands import connect as commands
from ledger.connect.settling import (
    NUMBER,
    PAYOUT,
    group_of,
    marks_of,
    settle_account,
    settle_reversal,
    settle_transfer,
)
from ledger.domain import transfers
from ledger.domain.ids import AccountId
from ledger.domain.minor_units import unit_of
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.payees import Payee
from ledger.eventstore.port import EventStore, Meta, load
from ledger.funding.tries import Call, carry_out
from ledger.models import PayeeRow, PayoutRow, TransferReversalRow
from ledger.payments import default_payments
from ledger.payments.port import Payments, PaymentsRefused
from ledger.queries.payouts import short_accounts

BY = Meta(actor="loop:owner-transfers")
CALLS_MAX = 50
"""Of each kind in one pass."""
LOOKS_MAX = 20
LOOK_AGAIN, LOOK_AT_READY = timedelta(minutes=10), timedelta(days=1)
"""How often an account is looked at although no notice came: those that wait, and the others."""
TRIED_FOR = timedelta(days=7)
TOO_LITTLE = frozenset({"balance_insufficient", "insufficient_funds"})
OUR_OWN_FAULT = frozenset(
    {
        "AuthenticationError",
        "PermissionError",
        "IdempotencyError",
        "api_key_expired",
        "platform_api_key_expired",
        "secret_key_required",
    }
)
"""Refusals that say nothing about the owner: nothing is decided by them, and it is tried again."""

_looked: WeakKeyDictionary[EventStore, dict[UUID, datetime]] = WeakKeyDictionary()


def run_once(store: EventStore, *, now: datetime) -> int:
    """Ask Stripe for what owners are to be paid; return how much came about."""
    payments = default_payments()
    if payments is None:
        return 0
    return carry_out(_calls(store, payments, now), now=now)


def _calls(store: EventStore, payments: Payments, now: datetime) -> Iterator[Call]:
    for payee in PayeeRow.objects.filter(stripe_state="asked").order_by("pk")[:CALLS_MAX]:
        yield _account(store, payments, payee, now)
    for row in _sendable(store, now):
        yield _sending(store, row, now)
    sent = PayoutRow.objects.filter(state="sent", channel="stripe")
    for row in sent.order_by("again_at", "sent_at", "pk")[:CALLS_MAX]:
        if row.again_at is None or row.again_at <= now:
            yield _transfer(store, payments, row, now)
    asked = TransferReversalRow.objects.filter(state="asked").order_by("changed_at", "key")
    for back in asked[:CALLS_MAX]:
        yield _reversal(store, payments, back, now)
    for payee in _to_look_at(store, now):
        yield _look(store, payments, payee, now)


# --- accounts ----------------------------------------------------------------------------------


def make_account(store: EventStore, payments: Payments, row: PayeeRow, *, now: datetime) -> str:
    """Have an account made for an owner who asked for one, once; return its id."""
    payee = load(store, Payee, row.account_id) or Payee()
    if payee.connected is not None and payee.connected.connected:
        return payee.connected.connected
    country = "" if payee.connected is None else payee.connected.asked.country
    state = payments.connect(
        country=country,
        marks=marks_of(row.account_id),
        key=f"offpeak:connect:{row.account_id}",
    )
    settle_account(store, state, by=BY, now=now)
    return state.account


def _account(store: EventStore, payments: Payments, row: PayeeRow, now: datetime) -> Call:
    def refused(failure: PaymentsRefused) -> None:
        raise failure

    return Call(
        f"connect:{row.account_id}",
        lambda: make_account(store, payments, row, now=now),
        refused,
        tried_for=TRIED_FOR,
    )


def _to_look_at(store: EventStore, now: datetime) -> list[PayeeRow]:
    """Return the owners whose accounts are due to be looked at, though no notice came."""
    looked = _looked.setdefault(store, {})
    found = []
    for row in PayeeRow.objects.exclude(stripe_account="").order_by("pk"):
        pause = LOOK_AT_READY if row.stripe_state == "ready" else LOOK_AGAIN
        if now - looked.setdefault(row.account_id, now) >= pause:
            looked[row.account_id] = now
            found.append(row)
            if len(found) == LOOKS_MAX:
                break
    return found


def _look(store: EventStore, payments: Payments, row: PayeeRow, now: datetime) -> Call:
    def act() -> None:
        settle_account(store, payments.connected(row.stripe_account), by=BY, now=now)

    def refused(failure: PaymentsRefused) -> None:
        if failure.code in OUR_OWN_FAULT:
            raise failure
        commands.note_account_state(
            store,
            AccountId(row.account_id),
            state="restricted",
            missing=(),
            words=str(failure),
            by=BY,
            now=now,
        )

    return Call(f"account:{row.account_id}", act, refused)


# --- transfers ---------------------------------------------------------------------------------


def _sendable(store: EventStore, now: datetime) -> list[PayoutRow]:
    ready = PayeeRow.objects.filter(
        channel="stripe", stripe_state="ready", channel_from__lte=now
    ).values("account_id")
    rows = PayoutRow.objects.filter(state="approved", account_id__in=ready)
    rows = rows.exclude(account_id__in=short_accounts().values("account_id"))
    return [
        row
        for row in rows.order_by("requested_at", "pk")[:CALLS_MAX]
        if transfers.is_sendable(load(store, Payee, row.account_id) or Payee(), row.pk, now)
    ]


def _sending(store: EventStore, row: PayoutRow, now: datetime) -> Call:
    def act() -> None:
        commands.send_over_stripe(store, AccountId(row.account_id), row.payout_id, by=BY, now=now)

    return Call(f"send:{row.payout_id}", act, lambda refused: None, tried_for=TRIED_FOR)


def _transfer(store: EventStore, payments: Payments, row: PayoutRow, now: datetime) -> Call:
    account_id, payout_id = AccountId(row.account_id), row.payout_id

    def found() -> bool:
        """Settle a transfer that is there already, by whichever call it was made."""
        for state in payments.transfers_of(group_of(payout_id)):
            if state.marks.get(PAYOUT) == str(payout_id):
                return settle_transfer(store, state, by=BY, now=now)
        return False

    def act() -> None:
        payee = load(store, Payee, account_id) or Payee()
        payout = payee.payout(payout_id)
        if payout.state != "sent" or payee.connected is None or found():
            return
        money = payout.requested.money
        tries = 0 if payout.waited is None else payout.waited.tries
        state = payments.transfer(
            account=payee.connected.connected,
            minor=money.nanos // unit_of(money.currency),
            currency=money.currency,
            group=group_of(payout_id),
            marks=marks_of(account_id, payout_id),
            key=f"offpeak:transfer:{payout_id}:{tries}",
        )
        settle_transfer(store, state, by=BY, now=now)

    def refused(failure: PaymentsRefused) -> None:
        if failure.code in OUR_OWN_FAULT:
            raise failure
        if found():
            return
        payout = (load(store, Payee, account_id) or Payee()).payout(payout_id)
        if failure.code in TOO_LITTLE and not transfers.is_over(payout, now):
            commands.note_waiting(store, account_id, payout_id, reason=str(failure), by=BY, now=now)
            return
        commands.note_refused(
            store,
            account_id,
            payout_id,
            reason=f"Stripe: {failure}",
            currency=row.currency,
            platform_id=PLATFORM_ID,
            by=BY,
            now=now,
        )

    return Call(f"transfer:{payout_id}", act, refused, tried_for=TRIED_FOR)


def _reversal(
    store: EventStore, payments: Payments, row: TransferReversalRow, now: datetime
) -> Call:
    account_id, payout_id = AccountId(row.account_id), row.payout_id

    def transfer_of() -> str:
        payout = (load(store, Payee, account_id) or Payee()).payout(payout_id)
        assert payout.paid is not None, "only what arrived is asked back"
        return payout.paid.reference

    def found() -> bool:
        transfer = transfer_of()
        for state in payments.reversals_of(transfer):
            if state.marks.get(NUMBER) == str(row.number):
                known = payments.transfer_state(transfer)
                return settle_reversal(store, known, state, by=BY, now=now)
        return False

    def act() -> None:
        if found():
            return
        transfer = transfer_of()
        state = payments.take_back(
            transfer,
            minor=row.nanos // unit_of(row.currency),
            marks={**marks_of(account_id, payout_id), NUMBER: str(row.number)},
            key=f"offpeak:reversal:{payout_id}:{row.number}",
        )
        settle_reversal(store, payments.transfer_state(transfer), state, by=BY, now=now)

    def refused(failure: PaymentsRefused) -> None:
        if failure.code in OUR_OWN_FAULT:
            raise failure
        if not found():
            commands.note_nothing_back(
                store,
                account_id,
                payout_id,
                number=row.number,
                reason=f"Stripe: {failure}",
                by=BY,
                now=now,
            )

    return Call(f"reversal:{row.key}", act, refused, tried_for=TRIED_FOR)
