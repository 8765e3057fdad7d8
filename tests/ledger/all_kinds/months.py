"""Rules of months: they are closed and opened again, invoiced and credited."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import Sum
from hypothesis import strategies as st

from ledger import invoicing
from ledger.commands import closing, invoices
from ledger.commands.invoices import MonthOpenStill
from ledger.domain.account_ids import fee_account, rounding_account, tax_account
from ledger.domain.closing import Check
from ledger.domain.ids import AccountId, UserId
from ledger.domain.invoice_events import CreditedLine, CreditNoteIssued, InvoiceIssued
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.periods import Period
from ledger.models import PostingRow
from tests.conftest import SOMEBODY
from tests.ledger.all_kinds import world
from tests.ledger.all_kinds.paper import CENT, PaperInvoice, nearest
from tests.ledger.all_kinds.world import INSIDE, JOAN, PEOPLE, START, UNITS, asks, pick

MONTHS = tuple(Period(2028, month) for month in (2, 3, 4, 5))
MET = Check(name="trial-balance", title="Trial balance", passed=True, words="")
NUMBERS = st.integers(0, 40)
INVOICES = f"invoices-{PLATFORM_ID}"


class Months(world.People):
    """What the platform's finance people do at the end of a month."""

    def begin(self, store: object) -> None:
        super().begin(store)
        self.soft: set[Period] = set()
        self.reopening: dict[Period, UserId] = {}
        self.frozen: dict[Period, dict[AccountId, int]] = {}
        self.lines: dict[UUID, InvoiceIssued] = {}
        self.credits: dict[UUID, tuple[UUID, int, UserId, str]] = {}

    @asks(days=st.sampled_from([0.5, 1, 3, 20, 40]))
    def time_passes(self, days: float) -> None:
        if self.now < START.replace(year=2029):
            self.later(days=days)

    @asks(period=st.sampled_from(MONTHS))
    def soft_close(self, period: Period) -> None:
        done = self.succeeds(closing.soft_close_period, period, user_id=JOAN)
        if done:
            assert self.now >= period.window.ends_at
            assert not self.paper.is_closed(period) and period not in self.soft
            self.soft.add(period)

    @asks(when=lambda self: self.soft, period=st.sampled_from(MONTHS))
    def close(self, period: Period) -> None:
        done = self.succeeds(closing.close_period, period, checks=[MET], user_id=JOAN)
        assert not done or period in self.soft
        if not done:
            return
        self.soft.discard(period)
        self.paper.opened_again.discard(period)
        through = self.paper.closed_through
        self.paper.closed_through = period if through is None else max(period, through)
        self.look()
        self.follow()
        for each in MONTHS:
            if self.paper.is_closed(each) and each not in self.frozen:
                self.frozen[each] = self.sums_of(each)

    def sums_of(self, period: Period) -> dict[AccountId, int]:
        """Return what the tables have of a month, by account."""
        rows = PostingRow.objects.filter(period=str(period)).values("account_id").order_by()
        found = rows.annotate(sum=Sum("nanos"))
        return {AccountId(each["account_id"]): int(each["sum"]) for each in found if each["sum"]}

    @asks(
        when=lambda self: self.paper.closed_through,
        period=st.sampled_from(MONTHS),
        person=st.sampled_from(PEOPLE),
    )
    def ask_to_open_again(self, period: Period, person: UserId) -> None:
        done = self.succeeds(
            closing.ask_to_reopen_period, period, reason="wrong rate", user_id=person
        )
        before = self.reopening.get(period)
        assert done == (self.paper.is_closed(period) and before in (None, person))
        if done:
            self.reopening[period] = person

    @asks(
        when=lambda self: self.reopening,
        period=st.sampled_from(MONTHS),
        person=st.sampled_from(PEOPLE),
    )
    def open_again(self, period: Period, person: UserId) -> None:
        done = self.succeeds(closing.approve_reopening, period, user_id=person)
        assert done == (self.reopening.get(period) not in (None, person))
        if done:
            del self.reopening[period]
            self.paper.opened_again.add(period)
            self.frozen.pop(period, None)

    # --- invoices ---------------------------------------------------------------------------

    @asks(when=lambda self: self.soft or self.paper.closed_through, period=st.sampled_from(MONTHS))
    def invoice(self, period: Period) -> None:
        self.look()
        self.follow()
        terms: dict[str, Any] = {"user_id": JOAN, "by": SOMEBODY, "now": self.now}
        head = self.store.head()
        try:
            invoicing.issue_month(self.store, period, **terms)
        except MonthOpenStill:
            assert self.store.head() == head
            assert not self.paper.is_closed(period) and period not in self.soft
            return
        self._note_issued()
        self.follow()
        head = self.store.head()
        invoicing.issue_month(self.store, period, **terms)
        assert self.store.head() == head, "a month is invoiced once"

    def _note_issued(self) -> None:
        for recorded in self.store.read_stream(INVOICES):
            event = recorded.event
            if isinstance(event, InvoiceIssued) and event.invoice_id not in self.lines:
                self._note_invoice(event)

    def _note_invoice(self, said: InvoiceIssued) -> None:
        paper, account_id, period = self.paper, said.account_id, Period(*_split(said.period))
        unit = next(each for each in UNITS if each.account_id == account_id)
        before = [
            Period(*_split(each.period))
            for each in self.lines.values()
            if each.account_id == account_id
        ]
        first = min([*before, period])
        covered = [
            each
            for each in paper.charges
            if each.account_id == account_id
            and each.invoice is None
            and first <= each.period <= period
        ]
        exact = sum(each.nanos for each in covered)
        is_taxed = unit.tenant != INSIDE
        net = nearest(exact, CENT)
        tax = nearest(net * 19, 100 * CENT) // 100 if is_taxed else 0
        assert (said.exact_nanos, said.net_nanos) == (exact, net), "each charge is on one invoice"
        assert said.tax_nanos == tax
        assert sum(line.nanos for line in said.lines) == net
        assert all(abs(line.nanos - line.exact_nanos) < CENT for line in said.lines)
        rounding = net - exact if unit.kind != "prepaid" else 0
        assert rounding + tax <= 0 or paper.affords(account_id, rounding + tax)
        paper.move(account_id, rounding_account(PLATFORM_ID, unit.currency), rounding)
        paper.move(account_id, tax_account(PLATFORM_ID, unit.currency), tax)
        for each in covered:
            each.invoice = said.invoice_id
        paper.invoices[said.invoice_id] = PaperInvoice(account_id, net, tax, is_taxed)
        self.lines[said.invoice_id] = said

    @asks(
        when=lambda self: self.lines,
        number=NUMBERS,
        line=NUMBERS,
        percent=st.integers(0, 110),
        person=st.sampled_from(PEOPLE),
    )
    def ask_for_a_credit(self, number: int, line: int, percent: int, person: UserId) -> None:
        """All that is left, or a part of a line; more than the line has is refused."""
        if not self.lines:
            return
        said: InvoiceIssued = pick(list(self.lines.values()), number)
        charged = [each for each in said.lines if each.nanos > 0]
        lines = []
        if percent and charged:
            chosen = pick(charged, line)
            nanos = chosen.nanos * percent // 100 // CENT * CENT
            lines = [CreditedLine(line_id=chosen.line_id, nanos=nanos)]
        credit_id = self.named("credit")
        pending = sum(
            nanos
            for invoice_id, nanos, _, state in self.credits.values()
            if invoice_id == said.invoice_id and state == "asked"
        )
        left = said.net_nanos - self.paper.invoices[said.invoice_id].credited - pending
        done = self.succeeds(
            invoices.ask_credit_note,
            credit_id=credit_id,
            invoice_id=said.invoice_id,
            lines=lines,
            reason="charged twice",
            user_id=person,
        )
        if done:
            asked = list(self.store.read_stream(INVOICES))[-1].event
            nanos = sum(each.nanos for each in asked.lines)
            assert 0 < nanos <= left and nanos % CENT == 0
            self.credits[credit_id] = (said.invoice_id, nanos, person, "asked")

    @asks(
        when=lambda self: self.credits,
        number=NUMBERS,
        person=st.sampled_from(PEOPLE),
        yes=st.booleans(),
    )
    def decide_on_a_credit(self, number: int, person: UserId, *, yes: bool) -> None:
        if not self.credits:
            return
        credit_id: UUID = pick(list(self.credits), number)
        invoice_id, nanos, asked_by, state = self.credits[credit_id]
        if not yes:
            done = self.succeeds(invoices.decline_credit_note, credit_id, user_id=person)
            assert done == (state == "asked")
            if done:
                self.credits[credit_id] = (invoice_id, nanos, asked_by, "declined")
            return
        done = self.succeeds(invoices.approve_credit_note, credit_id, user_id=person)
        if state != "asked":
            return
        assert done == (person != asked_by), "nobody approves their own"
        if not done:
            return
        invoice = self.paper.invoices[invoice_id]
        [note] = [
            each.event
            for each in self.store.read_stream(INVOICES)
            if isinstance(each.event, CreditNoteIssued) and each.event.credit_id == credit_id
        ]
        invoice.credited += nanos
        whole = nearest(invoice.credited * 19, 100 * CENT) // 100 if invoice.is_taxed else 0
        tax, invoice.tax_back = whole - invoice.tax_back, whole
        assert (note.net_nanos, note.tax_nanos) == (nanos, tax)
        assert invoice.credited <= invoice.net
        assert invoice.credited != invoice.net or invoice.tax_back == invoice.tax
        currency = self.currency(invoice.account_id)
        self.paper.move(fee_account(PLATFORM_ID, currency), invoice.account_id, nanos)
        self.paper.move(tax_account(PLATFORM_ID, currency), invoice.account_id, tax)
        self.credits[credit_id] = (invoice_id, nanos, asked_by, "issued")

    def look(self) -> None:
        """Read what is new; the machine says how."""
        raise NotImplementedError


def _split(period: str) -> tuple[int, int]:
    year, month = period.split("-")
    return int(year), int(month)
