"""Invoices of the visitor's organisation; for the platform's finance, to issue and to credit."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from config.site.forms.answers import done, meta_of, page
from config.site.pages.invoices.forms import CreditForm, PaymentForm, WriteOffForm
from config.site.parts.paging import part_of
from ledger import invoicing
from ledger.access import Actor
from ledger.access.visits import actor_of
from ledger.commands import invoices as commands
from ledger.domain.ids import UserId
from ledger.domain.periods import read_period
from ledger.domain.refusal import Refusal
from ledger.eventstore import default_store
from ledger.models import CreditNoteRow, InvoiceRow
from ledger.papers import file_of_credit_note, file_of_invoice
from ledger.queries import invoices as queries
from ledger.queries import people, receivables
from ledger.queries.closing import months

MONTHS_SHOWN = 6
KINDS = {"invoice": "Invoice", "internal": "Internal invoice", "receipt": "Receipt"}
REFUSED_SHOWN = 20


def _reader(request: HttpRequest) -> Actor:
    actor = actor_of(request)
    actor.need("finance", "auditor", "operator")
    return actor


def issuer_of(request: HttpRequest) -> tuple[Actor, UserId]:
    """Return who issues and credits. Raises: InvoicesByPlatformOnly, PersonNeeded."""
    actor = actor_of(request)
    if not actor.has_platform_money:
        raise invoicing.InvoicesByPlatformOnly()
    return actor, actor.need_person()


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """Every invoice that the visitor may see; what is to be issued and approved."""
    return _index(request)


def _index(request: HttpRequest, *, refusal: Refusal | None = None) -> HttpResponse:
    actor = _reader(request)
    rows = queries.invoices(actor).order_by(*queries.NEWEST_INVOICES)
    notes = queries.credit_notes(actor).order_by(*queries.NEWEST_CREDIT_NOTES)
    part = part_of(request, rows, "invoices")
    owed = receivables.states_of(actor, [row.pk for row in part.rows])
    context = {
        "invoices": part,
        "states": {
            row.pk: receivables.state_of(owed[row.pk]) if row.pk in owed else ""
            for row in part.rows
        },
        "overdue": receivables.receivables(actor, state="overdue").order_by(*receivables.FIRST_DUE)[
            :REFUSED_SHOWN
        ],
        "notes": part_of(request, notes.exclude(state="asked"), "credit-notes", size=20),
        "asked": [_asked(actor, row) for row in notes.filter(state="asked")],
        "kinds": KINDS,
        "may_issue": actor.has_platform_money,
        "months": _to_issue() if actor.has_platform_money else [],
        "many": actor.is_platform,
    }
    return page(request, "pages/invoices.html", context, refusal=refusal)


def _to_issue() -> list[dict[str, Any]]:
    """Return the newest months that may be invoiced, and how many accounts are left in each."""
    found = [each for each in months(now=timezone.now()) if each.state != "open"][:MONTHS_SHOWN]
    return [
        {"period": each.period, "state": each.state, "left": left}
        for each in found
        if (left := invoicing.to_invoice(each.period).count())
    ]


def _asked(actor: Actor, row: CreditNoteRow) -> dict[str, Any]:
    known = people([row.asked_by])
    who = known[row.asked_by].title if row.asked_by in known else "somebody"
    return {"row": row, "who": who, "mine": row.asked_by == actor.user_id}


@require_POST
def issue(request: HttpRequest) -> HttpResponse:
    """Issue the invoices of a month."""
    actor, user_id = issuer_of(request)
    try:
        period = read_period(request.POST.get("period", ""))
        outcome = invoicing.issue_month(
            default_store(), period, user_id=user_id, by=meta_of(actor), now=timezone.now()
        )
    except Refusal as refusal:
        return _index(request, refusal=refusal)
    said = [f"{len(outcome.issued)} issued for {period}."]
    said += [f"{each.title}: {each.refusal.message()}" for each in outcome.refused[:REFUSED_SHOWN]]
    if outcome.left:
        said.append(f"{outcome.left} are left: issue again.")
    return done(request, "/invoices", outcome.position, " ".join(said))


@require_safe
def one(request: HttpRequest, number: str) -> HttpResponse:
    """One invoice with its lines, its taxes and its credit notes."""
    return show_one(request, number)


def show_one(
    request: HttpRequest,
    number: str,
    *,
    form: CreditForm | None = None,
    payment: PaymentForm | None = None,
    write_off: WriteOffForm | None = None,
    refusal: Refusal | None = None,
) -> HttpResponse:
    """Show an invoice, with what was entered and refused."""
    actor = _reader(request)
    row = queries.invoice(actor, number)
    notes = queries.credit_notes(actor).filter(invoice_id=row.pk).order_by("asked_at")
    left = row.total_nanos - row.credited_nanos
    context: dict[str, Any] = {
        "row": row,
        "kind": KINDS[row.kind],
        "notes": notes,
        "rounded": row.net_nanos - row.exact_nanos,
        "left": left,
        "may_credit": actor.has_platform_money and left > 0,
        "form": form or CreditForm(lines=row.lines),
        "token": uuid4(),
        **_owed(actor, row, payment, write_off),
    }
    invalid = any(each is not None and each.errors for each in (form, payment, write_off))
    return page(request, "pages/invoice.html", context, refusal=refusal, invalid=invalid)


def _owed(
    actor: Actor, row: InvoiceRow, payment: PaymentForm | None, write_off: WriteOffForm | None
) -> dict[str, Any]:
    """Return what is owed of an invoice, and what may be done about it."""
    owed = receivables.receivable_of(actor, row.pk)
    if owed is None:
        return {"owed": None}
    by = owed.write_off_by
    return {
        "owed": owed,
        "owed_state": receivables.state_of(owed),
        "may_settle": actor.has_platform_money and owed.left_nanos > 0,
        "payment": payment or PaymentForm(currency=row.currency),
        "write_off": write_off or WriteOffForm(),
        "asked_by": people([by])[by].title if by and by in people([by]) else "somebody",
        "mine": by == actor.user_id,
    }


@require_safe
def file(request: HttpRequest, number: str) -> HttpResponse:
    """Send an invoice as PDF."""
    row: InvoiceRow = queries.invoice(_reader(request), number)
    return pdf(file_of_invoice(row), row.number)


@require_safe
def note_file(request: HttpRequest, credit_id: UUID) -> HttpResponse:
    """Send a credit note as PDF."""
    actor = _reader(request)
    row = queries.credit_note(actor, credit_id)
    return pdf(file_of_credit_note(row, queries.invoice(actor, row.invoice_number)), row.number)


@require_POST
def credit(request: HttpRequest, number: str) -> HttpResponse:
    """Ask to credit lines of an invoice, or all that is left of it."""
    actor, user_id = issuer_of(request)
    row = queries.invoice(actor, number)
    form = CreditForm(request.POST, lines=row.lines)
    if not form.is_valid():
        return show_one(request, number, form=form)
    try:
        position = commands.ask_credit_note(
            default_store(),
            credit_id=token_of(request),
            invoice_id=row.pk,
            lines=form.cleaned_data["lines"],
            reason=form.cleaned_data["reason"],
            user_id=user_id,
            by=meta_of(actor),
            now=timezone.now(),
        )
    except Refusal as refusal:
        return show_one(request, number, form=form, refusal=refusal)
    return done(request, f"/invoices/{number}", position, "Asked. Somebody else has to approve.")


@require_POST
def approve(request: HttpRequest, credit_id: UUID) -> HttpResponse:
    """Issue a credit note that somebody else asked for."""
    actor, user_id = issuer_of(request)
    try:
        position = commands.approve_credit_note(
            default_store(), credit_id, user_id=user_id, by=meta_of(actor), now=timezone.now()
        )
    except Refusal as refusal:
        return _index(request, refusal=refusal)
    return done(request, "/invoices", position, "The credit note is issued.")


@require_POST
def decline(request: HttpRequest, credit_id: UUID) -> HttpResponse:
    """Issue no credit note."""
    actor, user_id = issuer_of(request)
    try:
        position = commands.decline_credit_note(
            default_store(), credit_id, user_id=user_id, by=meta_of(actor), now=timezone.now()
        )
    except Refusal as refusal:
        return _index(request, refusal=refusal)
    return done(request, "/invoices", position, "No credit note is issued.")


def token_of(request: HttpRequest) -> UUID:
    """Return the id made with the form, so that sending it twice is once."""
    try:
        return UUID(request.POST.get("token", ""))
    except ValueError:
        return uuid4()


def pdf(data: bytes, name: str) -> HttpResponse:
    """Send a document as a file to be kept."""
    return HttpResponse(
        data,
        content_type="application/pdf",
        headers={"Content-Disposition": f'attachment; filename="{name}.pdf"'},
    )
