"""What was asked of the payment service, carried out.

A request is an event of the wallet; it is there or not, whatever happens to the process that
recorded it. Its key at the payment service follows from its id: a process that is killed between
the call and the note of it makes the same call again, and gets the same answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from ledger.commands import refunds as refunding
from ledger.commands import wallet as commands
from ledger.domain.ids import AccountId, PaymentId, RefundId
from ledger.domain.minor_units import minor_of, unit_of
from ledger.domain.money import Money
from ledger.domain.wallet import Wallet
from ledger.eventstore.port import EventStore, Meta, load
from ledger.funding import billing
from ledger.funding.settling import PART, marks_of, settle_intent, settle_refund
from ledger.funding.tries import Call, StillOpen, carry_out
from ledger.models import WalletMethodRow, WalletPaymentRow, WalletRefundPartRow
from ledger.payments import default_payments
from ledger.payments.port import CardDeclined, PageWanted, Payments, PaymentsRefused

CALLS_MAX = 50
"""Of each kind in one pass."""
BY = Meta(actor="loop:payment-calls")
BACK = "/wallet/top-ups/{payment_id}"


def run_once(store: EventStore, *, site: str, now: datetime) -> int:
    """Ask the payment service what is to be asked of it; return how much came about.

    site: where payers come back to, as they reach it.
    """
    payments = default_payments()
    if payments is None:
        return 0
    return carry_out(_calls(store, payments, site, now), now=now)


def _calls(store: EventStore, payments: Payments, site: str, now: datetime) -> Iterator[Call]:
    asked = WalletPaymentRow.objects.filter(state="asked").order_by("asked_at", "payment_id")
    for row in asked[:CALLS_MAX]:
        yield _payment(store, payments, row, site, now)
    parts = WalletRefundPartRow.objects.filter(state="approved").order_by("part_id")
    for part in parts[:CALLS_MAX]:
        yield _refund(store, payments, part, now)
    for method in WalletMethodRow.objects.filter(state="leaving").order_by("method")[:CALLS_MAX]:
        yield _removal(store, payments, method, now)
    yield from billing.calls(store, payments, now)


def _payment(
    store: EventStore, payments: Payments, row: WalletPaymentRow, site: str, now: datetime
) -> Call:
    account_id, payment_id = AccountId(row.account_id), PaymentId(row.payment_id)

    def fail(words: str, *, declined: bool) -> None:
        commands.note_failed(
            store,
            account_id=account_id,
            payment_id=payment_id,
            reason=words,
            declined=declined,
            by=BY,
            now=now,
        )

    def act() -> None:
        payer = payer_of(store, payments, account_id, now=now)
        try:
            if row.way == "checkout":
                _open_page(store, payments, row, payer, site, now)
            else:
                _charge(store, payments, row, payer, now)
        except CardDeclined as declined:
            fail(str(declined), declined=True)

    return Call(f"payment:{payment_id}", act, lambda refused: fail(str(refused), declined=False))


def payer_of(store: EventStore, payments: Payments, account_id: AccountId, *, now: datetime) -> str:
    """Return the payer of a wallet at the payment service, which is made where there is none."""
    wallet = load(store, Wallet, account_id)
    if wallet is not None and wallet.payer:
        return wallet.payer
    title = commands.wallet_account(store, account_id).opened.title
    made = payments.payer(title, marks=marks_of(account_id), key=f"offpeak:payer:{account_id}")
    commands.note_payer(store, account_id=account_id, payer=made, by=BY, now=now)
    return made


def _open_page(
    store: EventStore,
    payments: Payments,
    row: WalletPaymentRow,
    payer: str,
    site: str,
    now: datetime,
) -> None:
    account_id, payment_id = AccountId(row.account_id), PaymentId(row.payment_id)
    back = f"{site}{BACK.format(payment_id=payment_id)}"
    wanted = PageWanted(
        payer=payer,
        minor=minor_of(Money(row.nanos, row.currency)),
        currency=row.currency,
        title="Top-up of a wallet for GPU time",
        marks=marks_of(account_id, payment_id),
        back=f"{back}?paid=1",
        away=f"{back}?left=1",
        keep_card=True,
    )
    page = payments.open_page(wanted, key=f"offpeak:payment:{payment_id}")
    commands.note_opened(
        store,
        account_id=account_id,
        payment_id=payment_id,
        reference=page.page,
        url=page.url,
        by=BY,
        now=now,
    )


def _charge(
    store: EventStore, payments: Payments, row: WalletPaymentRow, payer: str, now: datetime
) -> None:
    account_id, payment_id = AccountId(row.account_id), PaymentId(row.payment_id)
    state = payments.charge(
        payer=payer,
        method=row.method,
        minor=minor_of(Money(row.nanos, row.currency)),
        currency=row.currency,
        marks=marks_of(account_id, payment_id),
        key=f"offpeak:payment:{payment_id}",
    )
    if not settle_intent(store, state, by=BY, now=now):
        commands.note_opened(
            store,
            account_id=account_id,
            payment_id=payment_id,
            reference=state.intent,
            url="",
            by=BY,
            now=now,
        )


def _refund(
    store: EventStore, payments: Payments, part: WalletRefundPartRow, now: datetime
) -> Call:
    key = f"offpeak:refund:{part.part_id}"

    def act() -> None:
        state = payments.give_back(
            intent=part.intent,
            minor=part.nanos // unit_of(part.currency),
            marks={PART: part.part_id},
            key=key,
        )
        if not settle_refund(store, state, by=BY, now=now):
            raise StillOpen(state.refund)

    def refused(failure: PaymentsRefused) -> None:
        # It may be there already: made by a call whose answer never came and whose key is gone.
        for state in payments.refunds_of(part.intent):
            if state.marks.get(PART) == part.part_id:
                if not settle_refund(store, state, by=BY, now=now):
                    raise StillOpen(state.refund)
                return
        refunding.note_part_failed(
            store,
            account_id=AccountId(part.account_id),
            refund_id=RefundId(part.refund_id),
            number=part.number,
            reason=str(failure),
            by=BY,
            now=now,
        )

    return Call(f"refund:{part.part_id}", act, refused)


def _removal(store: EventStore, payments: Payments, row: WalletMethodRow, now: datetime) -> Call:
    def act() -> None:
        payments.forget_method(row.method, key=f"offpeak:forget:{row.method}")
        gone()

    def gone() -> None:
        commands.note_method_removed(
            store, account_id=AccountId(row.account_id), method=row.method, by=BY, now=now
        )

    return Call(f"forget:{row.method}", act, lambda refused: gone())
