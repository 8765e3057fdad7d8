"""Invoices that others pay, as time goes by: told when overdue, credit stopped, and given again."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from uuid import UUID

from ledger.commands import receivables as commands
from ledger.commands.notices import give_notice
from ledger.domain.accounts import Account
from ledger.domain.ids import AccountId, TenantId
from ledger.domain.invoice_events import CreditNoteIssued
from ledger.domain.notices import To, to_platform
from ledger.domain.parties import TenantUnknown
from ledger.domain.receivable_events import (
    CollectionEnded,
    CreditResumed,
    CreditStopped,
    InvoiceOverdue,
    InvoicePaid,
    InvoicePaymentDecided,
    InvoicePaymentFailed,
    InvoicePaymentTakenBack,
    Left,
    WriteOffApproved,
    WriteOffAsked,
)
from ledger.domain.receivables import Receivable
from ledger.eventstore.port import EventStore, Meta, Recorded, load
from ledger.following import Policy, names_of
from ledger.models import ReceivableRow
from ledger.turns import each_alone

LOOKED_AT_MAX = 200
LOOP = Meta(actor="loop:receivables")
ENDED: dict[Left, str] = {
    "voided": "was voided at Stripe",
    "uncollectible": "was marked as uncollectible at Stripe",
    "paid-elsewhere": "was marked as paid in another way at Stripe",
}
Told = (
    InvoiceOverdue
    | InvoicePaymentFailed
    | InvoicePaymentTakenBack
    | InvoicePaymentDecided
    | CollectionEnded
    | WriteOffAsked
    | CreditStopped
    | CreditResumed
)


def see_to_receivables(store: EventStore, *, now: datetime) -> int:
    """Note what is overdue, stop credit where it is so for long, and give it again.

    Decided on the streams: rows that lag cost a look too many. Returns: how many were looked at.
    """
    rows = ReceivableRow.objects.order_by("due_at", "invoice_id")
    overdue = rows.filter(state="open", overdue_at=None, due_at__lte=now)
    stopping = rows.filter(state="open", blocked=False, blocks_at__lte=now)
    resuming = rows.filter(blocked=True).exclude(state="open")
    steps = (
        (overdue, commands.note_overdue),
        (stopping, commands.stop_credit),
        (resuming, commands.resume_credit),
    )
    done = 0
    for found, step in steps:

        def take(invoice_id: UUID, step: commands.Step = step) -> int:
            step(store, invoice_id, by=LOOP, now=now)
            return 1

        done += each_alone(
            list(found.values_list("invoice_id", flat=True)[:LOOKED_AT_MAX]),
            take,
            event="receivable.not-looked-at",
            told=lambda invoice_id: {"invoice": str(invoice_id)},
        )
    return done


def resume_when_settled(recorded: Recorded, store: EventStore) -> None:
    """Let an account bid again at once when the invoice that stood in the way is settled."""
    event = recorded.event
    assert isinstance(
        event, InvoicePaid | InvoicePaymentDecided | WriteOffApproved | CreditNoteIssued
    )
    by = Meta.because(recorded, policy="resume-when-settled")
    commands.resume_credit(store, event.invoice_id, by=by, now=event.at)


def tell_of_receivable(recorded: Recorded, store: EventStore) -> None:
    """Tell who pays what concerns them, and the platform's finance what they decide on."""
    event = recorded.event
    assert isinstance(event, Told)
    account = load(store, Account, AccountId(event.account_id))
    said = _words(event)
    if account is None or said is None or _is_settled(store, event):
        return
    title, body, receivers = said
    mine = TenantId(account.opened.tenant_id)
    for to in [To(tenant_id=mine) if each == "payer" else to_platform() for each in receivers]:
        with suppress(TenantUnknown):  # nobody is there to be told
            give_notice(
                store,
                to=to,
                topic="invoice",
                key=str(recorded.id),
                title=title,
                body=body,
                link=f"/invoices/{event.number}",
                facts={"number": event.number, "event": event.name},
                by=Meta.because(recorded, policy="tell-of-receivable").step(str(to.tenant_id)),
                now=event.at,
            )


def _is_settled(store: EventStore, event: Told) -> bool:
    """Tell if it is collected no longer because nothing is owed: that is as it should be."""
    if not isinstance(event, CollectionEnded):
        return False
    state = load(store, Receivable, event.invoice_id) or Receivable()
    return state.left(commands.bill_of(store, event.invoice_id)).nanos == 0


def _words(event: Told) -> tuple[str, str, tuple[str, ...]] | None:
    """Return title, text and receivers of what is told; None: it is not worth it."""
    match event:
        case InvoiceOverdue():
            title = f"{event.number} is overdue: {event.left} were to be paid"
            body = (
                f"It was due on {event.due_at:%Y-%m-%d}. From {event.blocks_at:%Y-%m-%d %H:%M} UTC"
                " on its account takes no new bids until it is paid. What runs goes on."
            )
            return title, body, ("payer", "platform")
        case InvoicePaymentFailed():
            title = f"{event.number}: a payment did not come about"
            return title, f"{event.reason}\n\nIt is still to be paid.", ("payer",)
        case InvoicePaymentTakenBack():
            title = f"A bank took {event.money} of {event.number} back"
            body = (
                f"The reason it gives: {event.reason}. That is owed again; Stripe does not collect"
                " it a second time. Contest it in Stripe's dashboard, or enter the next payment."
            )
            return title, body, ("payer", "platform")
        case InvoicePaymentDecided():
            whose = "is paid again" if event.won else "stays owed"
            title = f"{event.number}: the bank has decided, {event.money} {whose}"
            return title, "", ("payer", "platform")
        case CollectionEnded():
            body = (
                "Nothing was entered for it. Enter the payment on its page, credit it, or write it"
                " off: that takes two people."
            )
            return f"{event.number} {ENDED[event.why]}", body, ("platform",)
        case WriteOffAsked():
            title = f"Write off {event.money} of {event.number}?"
            return title, f"The reason: {event.reason}", ("platform",)
        case CreditStopped():
            body = "Leases go on. New bids are taken again as soon as it is paid."
            title = f"No new bids: {event.number} is overdue"
            return title, body, ("payer", "platform")
        case CreditResumed():
            return f"{event.number} is settled: bids are taken again", "", ("payer",)


RESUME = Policy(
    name="ledger.resume-when-settled",
    react=resume_when_settled,
    on=names_of(InvoicePaid, InvoicePaymentDecided, WriteOffApproved, CreditNoteIssued),
)
TELL = Policy(
    name="ledger.tell-of-receivable",
    react=tell_of_receivable,
    on=names_of(
        InvoiceOverdue,
        InvoicePaymentFailed,
        InvoicePaymentTakenBack,
        InvoicePaymentDecided,
        CollectionEnded,
        WriteOffAsked,
        CreditStopped,
        CreditResumed,
    ),
)
