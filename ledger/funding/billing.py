"""Invoices between us and the payment service: handed over to be sent, and what came of each.

Its customers are mailed, so only what was just issued is handed over, and only where there is an
address. What the service took is posted; what was paid in another way is entered by somebody.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models.functions import Coalesce

from ledger.commands import payments_taken_back as taken_back
from ledger.commands import receivables as commands
from ledger.commands import wallet as payers
from ledger.domain.ids import AccountId
from ledger.domain.minor_units import money_of, unit_of
from ledger.domain.money import Money
from ledger.domain.receivable_events import Left
from ledger.domain.rounding import in_words
from ledger.domain.wallet import Wallet
from ledger.eventstore.port import EventStore, Meta, load
from ledger.funding.settling import marks_of
from ledger.funding.tries import Call
from ledger.models import InvoiceRow, PaymentNotice, ReceivableRow
from ledger.payments.port import BillState, BillWanted, DisputeState, Payments, PaymentsRefused
from ledger.turns import each_alone

CALLS_MAX = 50
ASKED_MAX = 200
"""Invoices that the service is asked about in an hour, where no notice came."""
HANDED_WITHIN = timedelta(days=3)
"""An older invoice is not handed over: whoever pays it got it in another way."""
INVOICE = "offpeak_invoice"
"""Our mark on an invoice there."""
BY = Meta(actor="loop:payment-calls")
ASKING = Meta(actor="loop:payment-reconciliation")
NO_ADDRESS = "There is no address to send it to: the payer's billing details have none."
_ENDS: dict[str, Left] = {
    "paid": "paid-elsewhere",
    "void": "voided",
    "uncollectible": "uncollectible",
}
BY_SERVICE = "pi_"
"""How the reference of a payment begins that the service took."""


def calls(store: EventStore, payments: Payments, now: datetime) -> Iterator[Call]:
    """Yield what is to be asked of the service about invoices."""
    fresh = ReceivableRow.objects.filter(
        state="open", reference="", refused="", ended="", issued_at__gte=now - HANDED_WITHIN
    )
    for row in fresh.order_by("issued_at", "invoice_id")[:CALLS_MAX]:
        yield _hand_over(store, payments, row, now)
    collected = Coalesce("collected_nanos", "total_nanos")
    less = ReceivableRow.objects.filter(state="open", ended="", left_nanos__lt=collected)
    for row in less.exclude(reference="").order_by("issued_at", "invoice_id")[:CALLS_MAX]:
        yield _lower(store, payments, row, now)
    over = ReceivableRow.objects.filter(ended="").exclude(state="open").exclude(reference="")
    over = over.exclude(paid_by__startswith=BY_SERVICE)
    for row in over.order_by("issued_at", "invoice_id")[:CALLS_MAX]:
        yield _end(store, payments, row, now)


def _hand_over(store: EventStore, payments: Payments, row: ReceivableRow, now: datetime) -> Call:
    def refuse(words: str) -> None:
        commands.note_not_handed_over(store, row.pk, reason=words, by=BY, now=now)

    def act() -> None:
        invoice = InvoiceRow.objects.get(pk=row.pk)
        email = str(invoice.payer.get("email") or "")
        if not email:
            refuse(NO_ADDRESS)
            return
        payer = _payer(store, payments, AccountId(row.account_id), invoice, email, now)
        state = payments.send_bill(_wanted(row, invoice, payer), key=f"offpeak:invoice:{row.pk}")
        commands.note_handed_over(
            store, row.pk, reference=state.bill, url=state.url, by=BY, now=now
        )

    return Call(f"invoice:{row.pk}", act, lambda refused: refuse(str(refused)))


def _payer(
    store: EventStore,
    payments: Payments,
    account_id: AccountId,
    invoice: InvoiceRow,
    email: str,
    now: datetime,
) -> str:
    """Return the payer of an account at the service, which is made where there is none."""
    known = load(store, Wallet, account_id)
    if known is not None and known.payer:
        return known.payer
    made = payments.payer(
        invoice.payer_name,
        marks=marks_of(account_id),
        key=f"offpeak:payer:{account_id}",
        email=email,
    )
    payers.note_payer(store, account_id=account_id, payer=made, by=BY, now=now)
    return made


def _wanted(row: ReceivableRow, invoice: InvoiceRow, payer: str) -> BillWanted:
    lines: list[tuple[str, int]] = [
        (_titled(line), _minor(line["nanos"], row.currency)) for line in invoice.lines
    ]
    lines += [
        (tax["title"] or "Tax", _minor(tax["nanos"], row.currency))
        for tax in invoice.taxes
        if tax["nanos"]
    ]
    settled = row.total_nanos - row.left_nanos
    if settled:
        lines.append(("Credited or paid before", -_minor(settled, row.currency)))
    return BillWanted(
        payer=payer,
        number=invoice.number,
        lines=tuple(lines),
        minor=sum(minor for _, minor in lines),
        currency=row.currency,
        due_days=invoice.due_days,
        marks=marks_of(AccountId(row.account_id)) | {INVOICE: str(row.pk)},
    )


def _titled(line: dict[str, Any]) -> str:
    amount = f"{line['quantity']} {line['unit']}".strip()
    return f"{line['title']}, {amount}" if amount else str(line["title"])


def _minor(nanos: int, currency: str) -> int:
    """Return an amount in minor units; what is smaller than one is left out."""
    minor = abs(nanos) // unit_of(currency)
    return minor if nanos >= 0 else -minor


def _lower(store: EventStore, payments: Payments, row: ReceivableRow, now: datetime) -> Call:
    """Let the service collect no more than is owed, once something was credited or paid here.

    How much less is worked out from what it says is left there: so it is taken off once, whatever
    was lost on the way.
    """

    def act() -> None:
        there = payments.bill(row.reference)
        settle_bill(store, payments, there, by=BY.step(f"lowered:{row.pk}"), now=now)
        left = commands.left_of(store, row.pk)
        minor = left.nanos // unit_of(row.currency)
        if there.state == "open" and 0 < minor < there.left:
            payments.lower_bill(
                row.reference,
                there.left - minor,
                words=f"Credited, or paid in another way: {in_words(left)} are left to pay.",
                key=f"offpeak:invoice:{row.pk}:left:{minor}",
            )
        note(left)

    def note(left: Money) -> None:
        commands.note_collection_lowered(store, row.pk, left=left, by=BY, now=now)

    return Call(
        f"invoice-less:{row.pk}:{row.left_nanos}",
        act,
        lambda _: note(commands.left_of(store, row.pk)),
    )


def _end(store: EventStore, payments: Payments, row: ReceivableRow, now: datetime) -> Call:
    """Let the service collect no longer what was settled in another way."""

    def act() -> None:
        if row.state == "paid":
            payments.settle_bill(row.reference, key=f"offpeak:invoice:{row.pk}:settled")
        else:
            payments.give_bill_up(row.reference, key=f"offpeak:invoice:{row.pk}:given-up")
        note()

    def note() -> None:
        why: Left = "paid-elsewhere" if row.state == "paid" else "uncollectible"
        commands.note_collection_ended(store, row.pk, why=why, by=BY, now=now)

    def refused(failure: PaymentsRefused) -> None:
        # It is over there in another way: what it says is put on the books, and asked no more.
        settle_bill(store, payments, payments.bill(row.reference), by=BY, now=now)
        note()

    return Call(f"invoice-over:{row.pk}", act, refused)


def settle_bill(
    store: EventStore, payments: Payments, state: BillState, *, by: Meta, now: datetime
) -> bool:
    """Put on the books what the service says of an invoice; tell if it is one of ours."""
    try:
        invoice_id = UUID(state.marks.get(INVOICE, ""))
    except ValueError:
        return False
    for intent, minor in state.payments:
        commands.post_payment(
            store,
            invoice_id,
            intent=intent,
            money=money_of(minor, state.currency),
            by=by.step(intent),
            now=now,
        )
    why = _ENDS.get(state.state)
    if why is not None and not (state.state == "paid" and state.payments):
        commands.note_collection_ended(store, invoice_id, why=why, by=by.step("ended"), now=now)
    if state.state == "open" and state.trying:
        failed = payments.intent(state.trying).words
        if failed:
            commands.note_payment_failed(
                store, invoice_id, reason=failed, by=by.step("failed"), now=now
            )
    return True


def settle_taken_back(
    store: EventStore, payments: Payments, state: DisputeState, *, by: Meta, now: datetime
) -> bool:
    """Put on the books what a bank took back of an invoice; tell if it is one of ours.

    Notices come in any order: what was paid is put on the books first.
    """
    bill = "" if state.state == "inquiry" or not state.intent else payments.bill_of(state.intent)
    if not bill:
        return False
    there = payments.bill(bill)
    if not settle_bill(store, payments, there, by=by, now=now):
        return False
    invoice_id = UUID(there.marks[INVOICE])
    taken_back.note_payment_taken_back(
        store,
        invoice_id,
        dispute=state.dispute,
        intent=state.intent,
        money=money_of(state.minor, state.currency),
        reason=state.reason,
        by=by,
        now=now,
    )
    if state.state in ("won", "lost"):
        taken_back.note_payment_decided(
            store,
            invoice_id,
            dispute=state.dispute,
            won=state.state == "won",
            by=by.step("decided"),
            now=now,
        )
    return True


def ask_about_open(store: EventStore, payments: Payments, *, now: datetime) -> int:
    """Ask the service about invoices that it collects: a notice may never have come."""
    rows = ReceivableRow.objects.filter(state="open", ended="").exclude(reference="")
    names = list(rows.order_by("due_at", "invoice_id").values_list("reference", flat=True))

    def look(reference: str) -> int:
        state = payments.bill(reference)
        return int(settle_bill(store, payments, state, by=ASKING.step(reference), now=now))

    return each_alone(
        names[:ASKED_MAX],
        look,
        event="payments.invoice-not-asked",
        told=lambda reference: {"invoice": reference},
    )


def heard(store: EventStore, payments: Payments, row: PaymentNotice, now: datetime) -> None:
    """Look into a notice about an invoice."""
    by = Meta(actor="loop:payment-notices")
    settle_bill(store, payments, payments.bill(row.about), by=by, now=now)
