"""Issuing the invoices of months, and putting their files away."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import structlog
from django.db.models import Exists, OuterRef, QuerySet, Subquery

from ledger.commands.invoices import (
    MonthOpenStill,
    issue_invoice,
    note_archived,
    post_credit_note,
    post_invoice,
)
from ledger.commands.notices import give_notice
from ledger.composing import compose
from ledger.documents import RENDERER, pdf_of
from ledger.documents.papers import credit_paper, invoice_paper
from ledger.domain.accounts import PAYING_KINDS
from ledger.domain.billed import BILLED
from ledger.domain.ids import AccountId, TenantId, UserId
from ledger.domain.invoice_events import CreditNoteIssued, InvoiceIssued
from ledger.domain.invoices import InvoiceIssuedBefore, Invoices, NothingToInvoice
from ledger.domain.money import Money
from ledger.domain.notices import To
from ledger.domain.paper_events import StatementIssued
from ledger.domain.parties import PLATFORM_ID, TenantUnknown
from ledger.domain.periods import Period, read_period
from ledger.domain.refusal import Forbidden, Refusal
from ledger.domain.self_billing_events import SelfBilledInvoiceIssued
from ledger.eventstore.port import EventStore, Meta, Position, Recorded, load
from ledger.following import Policy, names_of, read_up_to
from ledger.models import (
    AccountRow,
    BillingDetailsRow,
    CreditNoteRow,
    DocumentFile,
    InvoiceRow,
    PaperRow,
    PeriodRow,
    PostingRow,
)
from ledger.queries.closing import month

MONEY = "ledger.money"
ISSUED_MAX = 200
"""Invoices issued at once; what is left is told."""
ARCHIVED_MAX = 50
LOOP = Meta(actor="loop:invoices")

log = structlog.get_logger()


class InvoicesByPlatformOnly(Forbidden):
    """Only finance people and operators of the platform issue invoices and settle them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """An account that could not be invoiced, and why."""

    account_id: UUID
    title: str
    refusal: Refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of invoicing a month. left: accounts that are still to be invoiced."""

    issued: tuple[UUID, ...]
    refused: tuple[Refused, ...]
    left: int
    position: Position


def issue_one(
    store: EventStore,
    account: AccountRow,
    period: Period,
    *,
    user_id: UserId | None,
    by: Meta,
    now: datetime,
) -> tuple[UUID, Position]:
    """Issue the invoice of one account.

    Returns: its id, and the position at which it is issued.
    Raises: what `ledger.commands.invoices.issue_invoice` raises.
    """
    if month(period).state == "open":
        raise MonthOpenStill(period=str(period))
    draft = compose(account, period, as_of=read_up_to(MONEY))
    return issue_invoice(store, draft, user_id=user_id, by=by, now=now)


def issue_month(
    store: EventStore,
    period: Period,
    *,
    user_id: UserId | None,
    by: Meta,
    now: datetime,
    most: int = ISSUED_MAX,
) -> Outcome:
    """Issue the invoices of a month for all accounts that have none and were charged in it.

    Raises: MonthOpenStill. What is refused for one account stands in nobody else's way.
    """
    issued, refused, position = list[UUID](), list[Refused](), read_up_to(MONEY)
    due = to_invoice(period)
    accounts = list(due[: most + 1])
    for account in accounts[:most]:
        try:
            of_this = by.step(f"account:{account.pk}")
            invoice_id, position = issue_one(
                store, account, period, user_id=user_id, by=of_this, now=now
            )
        except (InvoiceIssuedBefore, NothingToInvoice):
            continue
        except MonthOpenStill:
            raise
        except Refusal as refusal:
            refused.append(Refused(account_id=account.pk, title=account.title, refusal=refusal))
        else:
            issued.append(invoice_id)
    left = max(0, due.count() - most) if len(accounts) > most else 0
    return Outcome(issued=tuple(issued), refused=tuple(refused), left=left, position=position)


def to_invoice(period: Period) -> QuerySet[AccountRow]:
    """Return the accounts with charges that the invoice of a month would have, by title."""
    charged = PostingRow.objects.filter(
        account_id=OuterRef("pk"), period=str(period), kind__in=BILLED
    )
    mine = InvoiceRow.objects.filter(account_id=OuterRef("pk"))
    invoiced = mine.filter(period__gte=str(period))
    late = PostingRow.objects.filter(
        account_id=OuterRef("pk"),
        period__lt=str(period),
        period__gte=OuterRef("first"),
        position__gt=OuterRef("last"),
        kind__in=BILLED,
    )
    return (
        AccountRow.objects.filter(kind__in=PAYING_KINDS)
        .alias(
            first=Subquery(mine.order_by("period").values("period")[:1]),
            last=Subquery(mine.order_by("-period").values("as_of")[:1]),
        )
        .filter(Exists(charged) | Exists(late), ~Exists(invoiced))
        .order_by("title", "account_id")
    )


def see_to_invoices(store: EventStore, *, now: datetime) -> int:
    """Issue the invoices of closed months where that is wanted, and put files away.

    Returns: how many documents that were.
    """
    return _issue_closed(store, now=now) + archive_documents(store, now=now)


def _issue_closed(store: EventStore, *, now: datetime) -> int:
    details = BillingDetailsRow.objects.filter(pk=PLATFORM_ID).first()
    if details is None or not details.issues_by_itself:
        return 0
    read = read_up_to(MONEY)
    done = 0
    for row in PeriodRow.objects.filter(state="closed").order_by("period"):
        if row.closed_position is None or read < row.closed_position:
            continue
        period = read_period(row.period)
        if not to_invoice(period).exists():
            continue
        outcome = issue_month(store, period, user_id=None, by=LOOP, now=now)
        for each in outcome.refused:
            log.warning("invoice.not-issued", account=str(each.account_id), why=each.refusal.code)
        done += len(outcome.issued)
    return done


def archive_documents(store: EventStore, *, now: datetime) -> int:
    """Write the files of documents that have none yet, and put on record what they are.

    A file is put away before it is on record: killed in between, the same file is found again.
    Returns: how many.
    """
    done = 0
    for document_id, data in _unwritten():
        file, _ = DocumentFile.objects.get_or_create(
            document_id=document_id,
            defaults={"sha256": hashlib.sha256(data).hexdigest(), "data": data},
        )
        note_archived(
            store,
            document_id,
            sha256=file.sha256,
            size=len(bytes(file.data)),
            renderer=RENDERER,
            by=LOOP,
            now=now,
        )
        done += 1
    return done


def _unwritten() -> Iterator[tuple[UUID, bytes]]:
    for row in InvoiceRow.objects.filter(sha256="").order_by("position")[:ARCHIVED_MAX]:
        yield row.pk, pdf_of(invoice_paper(row))
    notes = CreditNoteRow.objects.filter(sha256="", state="issued").order_by("position")
    for note in notes[:ARCHIVED_MAX]:
        yield note.pk, pdf_of(credit_paper(note, InvoiceRow.objects.get(pk=note.invoice_id)))


def documents_that_differ() -> list[str]:
    """Return the documents whose file is missing, or is not what was put on record.

    For `manage.py doctor`: reads all of them.
    """
    wrong = []
    files = dict(DocumentFile.objects.values_list("document_id", "sha256"))
    rows = [
        *InvoiceRow.objects.exclude(sha256="").values_list("invoice_id", "number", "sha256"),
        *CreditNoteRow.objects.exclude(sha256="").values_list("credit_id", "number", "sha256"),
        *PaperRow.objects.exclude(sha256="").values_list("paper_id", "number", "sha256"),
    ]
    for document_id, number, sha256 in rows:
        if files.get(document_id) != sha256:
            wrong.append(f"{number}: its file is not what was put on record")
            continue
        data = DocumentFile.objects.get(pk=document_id).data
        if hashlib.sha256(bytes(data)).hexdigest() != sha256:
            wrong.append(f"{number}: its file was changed")
    return wrong


def account_to_invoice(account_id: AccountId) -> AccountRow | None:
    """Return an account that pays, for the platform's people; None: there is none."""
    return AccountRow.objects.filter(pk=account_id, kind__in=PAYING_KINDS).first()


def post_when_document_issued(recorded: Recorded, store: EventStore) -> None:
    """Post the entries of a document: there already where the store appends all or nothing."""
    by = Meta.because(recorded, policy="post-when-document-issued")
    match recorded.event:
        case InvoiceIssued() as invoice:
            post_invoice(store, invoice, by=by)
        case CreditNoteIssued() as note:
            post_credit_note(store, note, by=by)


def tell_when_document_issued(recorded: Recorded, store: EventStore) -> None:
    """Tell whom a document is for that there is one to look at: once, by its own id."""
    by = Meta.because(recorded, policy="tell-when-document-issued")
    match recorded.event:
        case InvoiceIssued() as invoice:
            total = Money(invoice.total_nanos, invoice.currency)
            _tell(
                store,
                invoice.tenant_id,
                key=str(invoice.invoice_id),
                title=f"{invoice.number} for {invoice.period}: {total}",
                body=f"What {invoice.payer.name} used in {invoice.period} was invoiced.",
                link=f"/invoices/{invoice.number}",
                by=by,
                now=invoice.at,
            )
        case CreditNoteIssued() as note:
            known = load(store, Invoices, note.issuer_id)
            assert known is not None, "the note is one of them"
            corrected = known.invoices[note.invoice_id]
            total = Money(note.total_nanos, note.currency)
            _tell(
                store,
                corrected.tenant_id,
                key=str(note.credit_id),
                title=f"{note.number}: {total} of {corrected.number} credited",
                body=f"The amount is on the account. Reason: {note.reason}",
                link=f"/invoices/{corrected.number}",
                by=by,
                now=note.at,
            )
        case StatementIssued() as stated:
            closing = Money(stated.closing_nanos, stated.currency)
            replaced = f" It takes the place of {stated.replaces}." if stated.replaces else ""
            _tell(
                store,
                stated.tenant_id,
                key=str(stated.statement_id),
                title=f"{stated.number}: {stated.account_title} in {stated.period}",
                body=f"The statement of the closed month ends with {closing}.{replaced}",
                link=f"/documents/{stated.statement_id}",
                by=by,
                now=stated.at,
            )
        case SelfBilledInvoiceIssued() as billed:
            total = Money(billed.total_nanos, billed.currency)
            _tell(
                store,
                billed.tenant_id,
                key=str(billed.invoice_id),
                title=f"{billed.number}: {total} invoiced in your name",
                body=f"The platform issued it for settlement {billed.settlement}, as you agreed.",
                link=f"/documents/{billed.invoice_id}",
                by=by,
                now=billed.at,
            )


def _tell(
    store: EventStore,
    tenant_id: TenantId,
    *,
    key: str,
    title: str,
    body: str,
    link: str,
    by: Meta,
    now: datetime,
) -> None:
    with suppress(TenantUnknown):  # nobody is there to be told
        give_notice(
            store,
            to=To(tenant_id=tenant_id),
            topic="invoice",
            key=key,
            title=title,
            body=body,
            link=link,
            by=by,
            now=now,
        )


TELL_OF_DOCUMENTS = Policy(
    name="ledger.tell-when-document-issued",
    react=tell_when_document_issued,
    on=names_of(InvoiceIssued, CreditNoteIssued, StatementIssued, SelfBilledInvoiceIssued),
)
POST_DOCUMENTS = Policy(
    name="ledger.post-when-document-issued",
    react=post_when_document_issued,
    on=names_of(InvoiceIssued, CreditNoteIssued),
)
