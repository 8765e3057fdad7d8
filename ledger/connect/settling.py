"""What Stripe says of an owner's account, a transfer or a reversal, put on the books.

Each function may be called with the same state again, and with states in any order: what a state
says is recorded once.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

from ledger.commands import connect as commands
from ledger.domain.ids import AccountId
from ledger.domain.minor_units import money_of
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.payees import Payee
from ledger.domain.refusal import Refusal
from ledger.eventstore.port import EventStore, Meta, load
from ledger.payments.connect_port import (
    AccountState,
    BankPayoutSaid,
    Connecting,
    ReversalState,
    TransferState,
)

ACCOUNT, PAYOUT, NUMBER = "offpeak_earnings", "offpeak_payout", "offpeak_reversal"
"""Our marks on what Stripe keeps."""


class TransferOtherwise(Refusal):
    """Stripe has another amount for this transfer than the payout it says it is of."""


def marks_of(account_id: UUID, payout_id: UUID | None = None) -> dict[str, str]:
    """Return the marks by which we know again what is of an owner, and of which payout."""
    marks = {ACCOUNT: str(account_id)}
    return marks if payout_id is None else marks | {PAYOUT: str(payout_id)}


def group_of(payout_id: UUID) -> str:
    """Return by what the transfers of a payout are found again at Stripe."""
    return f"offpeak-{payout_id}"


def settle_account(store: EventStore, state: AccountState, *, by: Meta, now: datetime) -> bool:
    """Note how an owner's account stands; tell if it is one of ours."""
    account_id = id_of(state.marks, ACCOUNT)
    if account_id is None:
        return False
    payee = load(store, Payee, account_id)
    if payee is None or payee.connected is None:
        return False
    # Word of it may come before our own note that it was made.
    if not payee.connected.connected:
        commands.note_stripe_account(
            store, AccountId(account_id), made=state.account, by=by, now=now
        )
    elif payee.connected.connected != state.account:
        return False
    commands.note_account_state(
        store,
        AccountId(account_id),
        state=state.state,
        missing=state.missing,
        words=state.words,
        by=by,
        now=now,
    )
    return True


def settle_transfer(store: EventStore, state: TransferState, *, by: Meta, now: datetime) -> bool:
    """Put a transfer on the books; tell if it is one of ours. Raises: TransferOtherwise."""
    account_id, payout_id = id_of(state.marks, ACCOUNT), id_of(state.marks, PAYOUT)
    if account_id is None or payout_id is None:
        return False
    payout = (load(store, Payee, account_id) or Payee()).payouts.get(payout_id)
    if payout is None:
        return False
    if money_of(state.minor, state.currency) != payout.requested.money:
        raise TransferOtherwise(transfer=state.transfer, payout_id=payout_id)
    commands.note_transfer(
        store,
        AccountId(account_id),
        payout_id,
        reference=state.transfer,
        paid_on=state.made_on,
        currency=state.currency,
        platform_id=PLATFORM_ID,
        by=by,
        now=now,
    )
    return True


def settle_reversal(
    store: EventStore,
    transfer: TransferState,
    state: ReversalState,
    *,
    by: Meta,
    now: datetime,
) -> bool:
    """Put what came back of a transfer on the books; tell if it is one of ours.

    Notices come in any order: the transfer is put on the books first.
    """
    if not settle_transfer(store, transfer, by=by, now=now):
        return False
    number = state.marks.get(NUMBER, "")
    commands.note_back(
        store,
        AccountId(UUID(transfer.marks[ACCOUNT])),
        UUID(transfer.marks[PAYOUT]),
        number=int(number) if number.isascii() and number.isdigit() else 0,
        reference=state.reversal,
        money=money_of(state.minor, state.currency),
        platform_id=PLATFORM_ID,
        by=by,
        now=now,
    )
    return True


def settle_all_of(
    store: EventStore, payments: Connecting, transfer: str, *, by: Meta, now: datetime
) -> bool:
    """Put a transfer and all that came back of it on the books; tell if it is one of ours."""
    state = payments.transfer_state(transfer)
    if not settle_transfer(store, state, by=by, now=now):
        return False
    for back in reversed(payments.reversals_of(transfer)):
        settle_reversal(store, state, back, by=by, now=now)
    return True


def settle_bank_payout(
    store: EventStore, account: AccountState, said: BankPayoutSaid, *, by: Meta, now: datetime
) -> bool:
    """Note what became of a payout to an owner's bank; tell if it is of one of ours."""
    if not settle_account(store, account, by=by, now=now):
        return False
    commands.note_bank_payout(
        store,
        AccountId(UUID(account.marks[ACCOUNT])),
        reference=said.payout,
        state=said.state,
        money=money_of(said.minor, said.currency),
        arrives_on=said.arrives_on,
        words=said.words,
        by=by,
        now=now,
    )
    return True


def id_of(marks: Mapping[str, str], name: str) -> UUID | None:
    """Return the id that a mark of ours holds; None: there is none."""
    try:
        return UUID(marks.get(name, ""))
    except ValueError:
        return None
