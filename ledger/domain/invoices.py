"""The invoices and credit notes of one issuer, and the numbers they get.

One stream decides all of an issuer's numbers, so that none is left out and none is given twice,
whoever issues at once and whoever is killed at which step: a number is there with its invoice or
not at all.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import ClassVar, assert_never
from uuid import UUID, uuid5

from ledger.domain.closing import SecondPersonNeeded
from ledger.domain.credit_notes import (
    CreditNoteAskedOtherwise,
    CreditNoteUnknown,
    need_reason,
    taxes_credited,
    within_lines,
)
from ledger.domain.ids import AccountId, SubscriberId, TenantId, UserId
from ledger.domain.invoice_events import (
    CreditedLine,
    CreditNoteAsked,
    CreditNoteDeclined,
    CreditNoteIssued,
    DocumentArchived,
    InvoiceEvent,
    InvoiceIssued,
    InvoiceKind,
    InvoiceLine,
    InvoiceSent,
    LineCategory,
    PartyDetails,
    TaxTotal,
)
from ledger.domain.periods import Period
from ledger.domain.refusal import Refusal, Unknown
from ledger.domain.rounding import lines_to_total, unit_of
from ledger.domain.tax import TaxRule, Treatment, tax_on

PREFIX: dict[InvoiceKind, str] = {"invoice": "INV", "internal": "INT", "receipt": "REC"}
CREDIT_PREFIX = "CN"


class InvoiceUnknown(Unknown):
    """There is no such invoice."""


class InvoiceIssuedBefore(Refusal):
    """That month of this account was invoiced already, under `number`.

    What came to the month since is on the next month's invoice; what was wrong is credited.
    """


class LaterMonthInvoiced(Refusal):
    """A later month of this account was invoiced already.

    It has what was left of earlier months.
    """


class NothingToInvoice(Refusal):
    """Nothing was charged to this account in that month that is not on an invoice yet."""


class InvoicesMoved(Refusal):
    """The account was invoiced meanwhile.

    Ask again: what is left of it is worked out anew.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftLine:
    """A line before it is rounded. nanos: what is charged; what is given back is below zero."""

    category: LineCategory
    sku: str
    title: str
    quantity: str = ""
    unit: str = ""
    period: str
    corrects: str = ""
    nanos: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What an invoice is to say. follows: the account's invoice before it. as_of: entries up to
    that position are in it."""

    kind: InvoiceKind
    account_id: AccountId
    tenant_id: TenantId
    subscriber_id: SubscriberId | None
    period: Period
    currency: str
    issuer: PartyDetails
    payer: PartyDetails
    lines: tuple[DraftLine, ...]
    rule: TaxRule
    due_days: int
    as_of: int
    follows: UUID | None


def invoice_id_of(account_id: AccountId, period: Period) -> UUID:
    """Return the id of an account's invoice of a month: always the same."""
    return uuid5(account_id, f"invoice:{period}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Invoices:
    """All documents of one issuer. `evolve` hands its mappings on: only the newest may be asked.

    numbers: the last one of each series and year. newest: by account, its last invoice.
    """

    STREAM: ClassVar[str] = "invoices"

    numbers: MutableMapping[str, int] = field(default_factory=dict)
    invoices: MutableMapping[UUID, InvoiceIssued] = field(default_factory=dict)
    newest: MutableMapping[AccountId, UUID] = field(default_factory=dict)
    asked: MutableMapping[UUID, CreditNoteAsked] = field(default_factory=dict)
    """Credit notes that nobody decided on yet."""
    credited: MutableMapping[UUID, tuple[CreditNoteIssued, ...]] = field(default_factory=dict)
    """By invoice."""
    credits: MutableMapping[UUID, CreditNoteIssued] = field(default_factory=dict)
    archived: MutableMapping[UUID, str] = field(default_factory=dict)
    sent: MutableMapping[UUID, str] = field(default_factory=dict)

    def branch(self) -> Invoices:
        """Return these so that they may go on without changing what was handed on."""
        return Invoices(
            numbers=ChainMap({}, self.numbers),
            invoices=ChainMap({}, self.invoices),
            newest=ChainMap({}, self.newest),
            asked=dict(self.asked),
            credited=ChainMap({}, self.credited),
            credits=ChainMap({}, self.credits),
            archived=ChainMap({}, self.archived),
            sent=ChainMap({}, self.sent),
        )

    @classmethod
    def evolve(cls, state: Invoices | None, event: InvoiceEvent, /) -> Invoices:
        """Return the documents after `event`."""
        state = state or cls()
        match event:
            case InvoiceIssued():
                state._count(event.number)
                state.invoices[event.invoice_id] = event
                state.newest[event.account_id] = event.invoice_id
            case CreditNoteAsked():
                state.asked[event.credit_id] = event
            case CreditNoteDeclined():
                state.asked.pop(event.credit_id, None)
            case CreditNoteIssued():
                state._count(event.number)
                state.asked.pop(event.credit_id, None)
                state.credits[event.credit_id] = event
                before = state.credited.get(event.invoice_id, ())
                state.credited[event.invoice_id] = (*before, event)
            case DocumentArchived():
                state.archived[event.document_id] = event.sha256
            case InvoiceSent():
                state.sent[event.document_id] = event.email
            case _:
                assert_never(event)
        return state

    def _count(self, number: str) -> None:
        series, _, last = number.rpartition("-")
        self.numbers[series] = int(last)

    def _next(self, prefix: str, now: datetime) -> str:
        series = f"{prefix}-{now.astimezone(UTC).year}"
        return f"{series}-{self.numbers.get(series, 0) + 1:04d}"

    # --- invoices --------------------------------------------------------------------------

    def issue(
        self, draft: Draft, *, issuer_id: TenantId, by: UserId | None, now: datetime
    ) -> list[InvoiceIssued]:
        """Decide what the invoice of a month says, and number it.

        Raises: InvoiceIssuedBefore, LaterMonthInvoiced, InvoicesMoved, NothingToInvoice,
            TaxCountryMissing.
        """
        invoice_id = invoice_id_of(draft.account_id, draft.period)
        before = self.invoices.get(invoice_id)
        if before is not None:
            raise InvoiceIssuedBefore(number=before.number, invoice_id=invoice_id)
        newest = self.newest.get(draft.account_id)
        if newest is not None and self.invoices[newest].period > str(draft.period):
            raise LaterMonthInvoiced(number=self.invoices[newest].number)
        if newest != draft.follows:
            raise InvoicesMoved(account_id=draft.account_id)
        if not draft.lines:
            raise NothingToInvoice(account_id=draft.account_id, period=str(draft.period))
        lines, treatments = _rounded(draft)
        net = sum(line.nanos for line in lines)
        taxes = tuple(taxed(treatment, lines, draft.currency) for treatment in treatments.values())
        tax = sum(each.nanos for each in taxes)
        return [
            InvoiceIssued(
                issuer_id=issuer_id,
                invoice_id=invoice_id,
                number=self._next(PREFIX[draft.kind], now),
                kind=draft.kind,
                account_id=draft.account_id,
                tenant_id=draft.tenant_id,
                subscriber_id=draft.subscriber_id,
                issuer=draft.issuer,
                payer=draft.payer,
                period=str(draft.period),
                currency=draft.currency,
                lines=lines,
                taxes=taxes,
                exact_nanos=sum(line.exact_nanos for line in lines),
                net_nanos=net,
                tax_nanos=tax,
                total_nanos=net + tax,
                due_days=draft.due_days,
                as_of=draft.as_of,
                by_user=by,
                at=now,
            )
        ]

    def _invoice(self, invoice_id: UUID) -> InvoiceIssued:
        found = self.invoices.get(invoice_id)
        if found is None:
            raise InvoiceUnknown(invoice_id=invoice_id)
        return found

    # --- credit notes ----------------------------------------------------------------------

    def ask_credit(
        self,
        *,
        credit_id: UUID,
        invoice_id: UUID,
        lines: Sequence[CreditedLine],
        reason: str,
        by: UserId,
        now: datetime,
    ) -> list[CreditNoteAsked]:
        """Ask to credit lines of an invoice, for a reason. Nothing changes before it is approved.

        lines: empty for all that is left of the invoice.
        Raises: InvoiceUnknown, CreditReasonMissing, TextUnreadable, CreditLineUnknown,
            CreditNotWhole, CreditExceedsLine, NothingToCredit, CreditNoteAskedOtherwise.
        """
        invoice = self._invoice(invoice_id)
        need_reason(reason)
        known = self.asked.get(credit_id) or self.credits.get(credit_id)
        if known is not None:
            same = (known.invoice_id, known.reason, known.asked_by) == (invoice_id, reason, by)
            if same and tuple(lines) in ((), known.lines):
                return []
            raise CreditNoteAskedOtherwise(credit_id=credit_id)
        pending = [each for each in self.asked.values() if each.invoice_id == invoice_id]
        given = [each.lines for each in self.credited.get(invoice_id, ())]
        chosen = within_lines(invoice, lines, [*given, *(each.lines for each in pending)])
        return [
            CreditNoteAsked(
                issuer_id=invoice.issuer_id,
                credit_id=credit_id,
                invoice_id=invoice_id,
                lines=chosen,
                reason=reason,
                asked_by=by,
                at=now,
            )
        ]

    def approve_credit(
        self, credit_id: UUID, *, by: UserId, now: datetime
    ) -> list[CreditNoteIssued]:
        """Issue a credit note that somebody else asked for; approving it again changes nothing.

        Raises: CreditNoteUnknown, SecondPersonNeeded.
        """
        if credit_id in self.credits and self.credits[credit_id].approved_by == by:
            return []
        asked = self._asked(credit_id)
        if asked.asked_by == by:
            raise SecondPersonNeeded(credit_id=credit_id)
        invoice = self._invoice(asked.invoice_id)
        net = sum(each.nanos for each in asked.lines)
        before = self.credited.get(invoice.invoice_id, ())
        taxes = taxes_credited(invoice, asked.lines, before)
        tax = sum(each.nanos for each in taxes)
        return [
            CreditNoteIssued(
                issuer_id=invoice.issuer_id,
                credit_id=credit_id,
                invoice_id=invoice.invoice_id,
                number=self._next(CREDIT_PREFIX, now),
                account_id=invoice.account_id,
                currency=invoice.currency,
                lines=asked.lines,
                taxes=taxes,
                net_nanos=net,
                tax_nanos=tax,
                total_nanos=net + tax,
                reason=asked.reason,
                asked_by=asked.asked_by,
                approved_by=by,
                at=now,
            )
        ]

    def decline_credit(
        self, credit_id: UUID, *, by: UserId, now: datetime
    ) -> list[CreditNoteDeclined]:
        """Issue no credit note; who asked may take it back like this.

        Raises: CreditNoteUnknown.
        """
        asked = self._asked(credit_id)
        return [
            CreditNoteDeclined(
                issuer_id=asked.issuer_id, credit_id=credit_id, declined_by=by, at=now
            )
        ]

    def _asked(self, credit_id: UUID) -> CreditNoteAsked:
        found = self.asked.get(credit_id)
        if found is None:
            raise CreditNoteUnknown(credit_id=credit_id)
        return found

    # --- files -----------------------------------------------------------------------------

    def archive(
        self, document_id: UUID, *, sha256: str, size: int, renderer: str, now: datetime
    ) -> list[DocumentArchived]:
        """Note the file of a document, once."""
        if document_id in self.archived:
            return []
        issuer_id = self._issuer_of(document_id)
        return [
            DocumentArchived(
                issuer_id=issuer_id,
                document_id=document_id,
                sha256=sha256,
                bytes=size,
                renderer=renderer,
                at=now,
            )
        ]

    def note_sent(self, document_id: UUID, *, email: str, now: datetime) -> list[InvoiceSent]:
        """Note to which address a document was sent, once."""
        if document_id in self.sent:
            return []
        issuer_id = self._issuer_of(document_id)
        return [InvoiceSent(issuer_id=issuer_id, document_id=document_id, email=email, at=now)]

    def _issuer_of(self, document_id: UUID) -> TenantId:
        found = self.invoices.get(document_id) or self.credits.get(document_id)
        if found is None:
            raise InvoiceUnknown(invoice_id=document_id)
        return found.issuer_id


def _rounded(draft: Draft) -> tuple[tuple[InvoiceLine, ...], dict[str, Treatment]]:
    """Return the lines in whole smallest units, and how they are taxed, by code."""
    unit = unit_of(draft.currency)
    whole = lines_to_total([line.nanos for line in draft.lines], unit)
    treatments: dict[str, Treatment] = {}
    lines = []
    for number, (line, nanos) in enumerate(zip(draft.lines, whole, strict=True), start=1):
        treatment = (
            None  # within one organisation nothing is sold
            if draft.kind == "internal"
            else draft.rule.treat(line.category, issuer=draft.issuer, payer=draft.payer)
        )
        if treatment is not None:
            treatments[treatment.code] = treatment
        lines.append(
            InvoiceLine(
                line_id=f"{number:03d}",
                category=line.category,
                sku=line.sku,
                title=line.title,
                quantity=line.quantity,
                unit=line.unit,
                period=line.period,
                corrects=line.corrects,
                exact_nanos=line.nanos,
                nanos=nanos,
                tax=treatment.code if treatment else "",
            )
        )
    return tuple(lines), treatments


def taxed(treatment: Treatment, lines: Sequence[InvoiceLine], currency: str) -> TaxTotal:
    """Return the tax on the lines of one treatment: on their sum."""
    base = sum(line.nanos for line in lines if line.tax == treatment.code)
    return TaxTotal(
        code=treatment.code,
        title=treatment.title,
        rate_ppm=treatment.rate_ppm,
        base_nanos=base,
        nanos=tax_on(base, treatment.rate_ppm, unit_of(currency)),
        note=treatment.note,
    )
