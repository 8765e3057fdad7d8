"""Invoices that the platform issues for an owner, who agreed to it: agreement, numbers, tax.

One stream decides all of an owner's numbers. An invoice, its number and the entry of its tax are
one append of one stream, so nothing is between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import ClassVar, assert_never
from uuid import UUID, uuid5

from ledger.domain.account_ids import tax_account
from ledger.domain.ids import AccountId, EntryId, TenantId, UserId
from ledger.domain.invoice_events import (
    InvoiceLine,
    LineCategory,
    PartyDetails,
    TaxScheme,
    TaxTotal,
)
from ledger.domain.invoices import DraftLine, taxed
from ledger.domain.journal import transfer
from ledger.domain.money import Money
from ledger.domain.paper_events import PaperArchived, PaperSent
from ledger.domain.refusal import Refusal
from ledger.domain.rounding import lines_to_total, unit_of
from ledger.domain.self_billing_events import (
    OwnerTaxAdded,
    SelfBilledInvoiceIssued,
    SelfBillingAgreed,
    SelfBillingEnded,
    SelfBillingEvent,
)
from ledger.domain.statements import PaperUnknown
from ledger.domain.tax import EU_RATES_PERCENT_TIMES_TEN, NoTax, TaxRule, Treatment, rule_of

PREFIX = "SB"
NOT_SUPPLIED = ("owner-tax", "payout-paid", "payout-back")
"""Kinds that move earnings and are no supply: taxes of earlier invoices, and payouts."""
WORDING = "2026-12"
AGREEMENT = (
    "The platform issues invoices in our name for what our GPUs earn, with each settlement. We"
    " issue none for the same. Each counts as accepted unless we object to it. We tell the platform"
    " when our VAT id or our tax status changes."
)
"""What an owner agrees to; `WORDING` names this text."""
SMALL_BUSINESS = (
    "No VAT is charged: special scheme for small enterprises (Articles 282 to 292 of Council"
    " Directive 2006/112/EC)."
)
NO_VAT_ID = "No VAT is charged: the supplier has no VAT id."


class SelfBillingNotAgreed(Refusal):
    """This owner has not agreed that invoices are issued for it."""


class SelfBilledBefore(Refusal):
    """That settlement was invoiced already, under `number`."""


class NothingToSelfBill(Refusal):
    """The settlement has nothing that an invoice could charge."""


class SupplierUnnamed(Refusal):
    """An invoice names who supplies.

    Give legal name, address and country in the billing details.
    """


class SmallBusiness:
    """No VAT by the scheme for small enterprises."""

    def treat(
        self, category: LineCategory, *, issuer: PartyDetails, payer: PartyDetails
    ) -> Treatment:
        """Return no tax, with the words that the law wants."""
        return Treatment(code="small", title="VAT 0%", rate_ppm=0, note=SMALL_BUSINESS)


class NoVatId:
    """No VAT, since who supplies is not registered for it."""

    def treat(
        self, category: LineCategory, *, issuer: PartyDetails, payer: PartyDetails
    ) -> Treatment:
        """Return no tax, and why."""
        return Treatment(code="no-vat-id", title="VAT 0%", rate_ppm=0, note=NO_VAT_ID)


def owner_rule(scheme: TaxScheme, owner: PartyDetails, *, small_business: bool) -> TaxRule:
    """Return the tax rule of an owner's invoices. scheme: the platform's."""
    if scheme == "none":
        return NoTax()
    if small_business:
        return SmallBusiness()
    if owner.country in EU_RATES_PERCENT_TIMES_TEN and not owner.vat_id:
        return NoVatId()
    return rule_of(scheme)


@dataclass(frozen=True, slots=True, kw_only=True)
class BillDraft:
    """What an owner's invoice for a settlement is to say. slug: the owner's short name."""

    tenant_id: TenantId
    slug: str
    account_id: AccountId
    payout_id: UUID
    settlement: str
    currency: str
    issuer: PartyDetails
    payer: PartyDetails
    lines: tuple[DraftLine, ...]
    scheme: TaxScheme


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfBilling:
    """One owner's agreement, and the invoices that were issued for it.

    numbers: the last one of each year. bills: by payout. carried: by account, what the last
    invoice left out (below zero: had too much) since it is in whole cents.
    """

    STREAM: ClassVar[str] = "selfbilling"

    agreed: SelfBillingAgreed | None = None
    numbers: Mapping[str, int] = field(default_factory=dict)
    bills: Mapping[UUID, SelfBilledInvoiceIssued] = field(default_factory=dict)
    carried: Mapping[AccountId, int] = field(default_factory=dict)
    archived: frozenset[UUID] = frozenset()
    sent: frozenset[UUID] = frozenset()

    @classmethod
    def evolve(cls, state: SelfBilling | None, event: SelfBillingEvent, /) -> SelfBilling:
        """Return the invoices after `event`."""
        state = state or cls()
        match event:
            case SelfBillingAgreed():
                return replace(state, agreed=event)
            case SelfBillingEnded():
                return replace(state, agreed=None)
            case SelfBilledInvoiceIssued():
                series, _, last = event.number.rpartition("-")
                left = event.exact_nanos + event.carried_nanos - event.net_nanos
                return replace(
                    state,
                    numbers={**state.numbers, series: int(last)},
                    bills={**state.bills, event.payout_id: event},
                    carried={**state.carried, event.account_id: left},
                )
            case OwnerTaxAdded():
                return state
            case PaperArchived():
                return replace(state, archived=state.archived | {event.paper_id})
            case PaperSent():
                return replace(state, sent=state.sent | {event.paper_id})
            case _:
                assert_never(event)

    def agree(
        self,
        tenant_id: TenantId,
        *,
        details: PartyDetails | None,
        small_business: bool,
        by: UserId,
        now: datetime,
    ) -> list[SelfBillingAgreed]:
        """Put on record that an owner agreed. details: its billing details.

        Raises: SupplierUnnamed.
        """
        _need_named(details)
        before = self.agreed
        if before is not None and (before.small_business, before.wording) == (
            small_business,
            WORDING,
        ):
            return []
        return [
            SelfBillingAgreed(
                tenant_id=tenant_id,
                small_business=small_business,
                wording=WORDING,
                by_user=by,
                at=now,
            )
        ]

    def end(self, *, by: UserId, now: datetime) -> list[SelfBillingEnded]:
        """Put on record that an owner issues its invoices itself again; once."""
        if self.agreed is None:
            return []
        return [SelfBillingEnded(tenant_id=self.agreed.tenant_id, by_user=by, at=now)]

    def bill(
        self, draft: BillDraft, *, platform_id: TenantId, now: datetime
    ) -> list[SelfBilledInvoiceIssued | OwnerTaxAdded]:
        """Decide what an owner's invoice says, number it, and post its tax.

        Raises: SelfBillingNotAgreed, SelfBilledBefore, NothingToSelfBill, SupplierUnnamed,
            TaxCountryMissing.
        """
        before = self.bills.get(draft.payout_id)
        if before is not None:
            raise SelfBilledBefore(number=before.number, paper_id=before.invoice_id)
        if self.agreed is None:
            raise SelfBillingNotAgreed(tenant_id=draft.tenant_id)
        if not draft.lines:
            raise NothingToSelfBill(payout_id=draft.payout_id)
        _need_named(draft.issuer)
        carried = self.carried.get(draft.account_id, 0)
        lines, taxes = _rounded(draft, carried, small_business=self.agreed.small_business)
        net, tax = sum(line.nanos for line in lines), sum(each.nanos for each in taxes)
        invoice_id = uuid5(draft.payout_id, "self-billed")
        series = f"{PREFIX}-{draft.slug.upper()}-{now.astimezone(UTC).year}"
        number = f"{series}-{self.numbers.get(series, 0) + 1:04d}"
        issued = SelfBilledInvoiceIssued(
            tenant_id=draft.tenant_id,
            platform_id=platform_id,
            account_id=draft.account_id,
            invoice_id=invoice_id,
            number=number,
            payout_id=draft.payout_id,
            settlement=draft.settlement,
            issuer=draft.issuer,
            payer=draft.payer,
            currency=draft.currency,
            lines=lines,
            taxes=taxes,
            exact_nanos=sum(line.exact_nanos for line in lines),
            carried_nanos=carried,
            net_nanos=net,
            tax_nanos=tax,
            total_nanos=net + tax,
            agreed_at=self.agreed.at,
            at=now,
        )
        return [issued, *([_tax_of(issued)] if tax else [])]

    def archive(
        self, paper_id: UUID, *, sha256: str, size: int, renderer: str, now: datetime
    ) -> list[PaperArchived]:
        """Note the file of an invoice, once. Raises: PaperUnknown."""
        if paper_id in self.archived:
            return []
        self._need(paper_id)
        return [
            PaperArchived(paper_id=paper_id, sha256=sha256, bytes=size, renderer=renderer, at=now)
        ]

    def note_sent(self, paper_id: UUID, *, email: str, now: datetime) -> list[PaperSent]:
        """Note to which address an invoice was sent, once. Raises: PaperUnknown."""
        if paper_id in self.sent:
            return []
        self._need(paper_id)
        return [PaperSent(paper_id=paper_id, email=email, at=now)]

    def _need(self, paper_id: UUID) -> None:
        if all(each.invoice_id != paper_id for each in self.bills.values()):
            raise PaperUnknown(paper_id=paper_id)


def _need_named(details: PartyDetails | None) -> None:
    if details is None or not (details.name and details.address and details.country):
        raise SupplierUnnamed()


def _tax_of(issued: SelfBilledInvoiceIssued) -> OwnerTaxAdded:
    money = Money(issued.tax_nanos, issued.currency)
    taxes = tax_account(issued.platform_id, issued.currency)
    return OwnerTaxAdded(
        account_id=issued.account_id,
        tenant_id=issued.tenant_id,
        entry_id=EntryId(uuid5(issued.invoice_id, "tax")),
        invoice_id=issued.invoice_id,
        number=issued.number,
        money=money,
        postings=transfer(source=taxes, target=issued.account_id, money=money),
        at=issued.at,
    )


def _rounded(
    draft: BillDraft, carried: int, *, small_business: bool
) -> tuple[tuple[InvoiceLine, ...], tuple[TaxTotal, ...]]:
    """Return the lines in whole smallest units, and their taxes.

    What the invoice before left out is made good on the largest line, so that all invoices together
    are within half a cent of what the journal has.
    """
    exact = [line.nanos for line in draft.lines]
    largest = max(range(len(exact)), key=lambda index: (abs(exact[index]), -index))
    whole = lines_to_total(
        [nanos + (carried if index == largest else 0) for index, nanos in enumerate(exact)],
        unit_of(draft.currency),
    )
    rule = owner_rule(draft.scheme, draft.issuer, small_business=small_business)
    treatments: dict[str, Treatment] = {}
    lines = []
    for number, (line, nanos) in enumerate(zip(draft.lines, whole, strict=True), start=1):
        treatment = rule.treat(line.category, issuer=draft.issuer, payer=draft.payer)
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
    taxes = tuple(taxed(each, lines, draft.currency) for each in treatments.values())
    return tuple(lines), taxes
