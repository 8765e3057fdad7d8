"""Closed months as statements: opening and movements are the closing, numbers have no gap."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.core import mail

from ledger import invoice_mail, invoicing, stating
from ledger.commands.papers import MonthNotClosed, issue_statement
from ledger.composing import platform_named
from ledger.documents.statements import exactly
from ledger.domain.account_ids import earnings_account
from ledger.domain.ids import AccountId
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.reconciling import unexplained, with_the_rest
from ledger.domain.statements import NothingToState, StatementIssuedBefore
from ledger.eventstore.memory import MemoryStore
from ledger.following import read_up_to
from ledger.models import AccountRow, DocumentFile, PaperRow, PostingRow
from ledger.papers import file_of_paper
from ledger.projections.invoices import INVOICES
from ledger.projections.money import MONEY
from ledger.queries.invoices_add_up import journal_and_invoices
from ledger.rebuilding import fingerprint, rebuild
from tests.conftest import SOMEBODY
from tests.ledger import busy_month, invoiced
from tests.ledger import ledgerbook as book
from tests.ledger.invoiced import JOAN, MONTH
from tests.ledger.ledgerbook import hours, usd
from tests.ledger.pdf_text import text_of

pytestmark = pytest.mark.django_db
MILLIS = 3_600_000
LATER = MONTH.window.ends_at + timedelta(days=6)


@pytest.fixture
def busy(store: MemoryStore) -> MemoryStore:
    """Return a busy month that is invoiced and closed."""
    busy_month.live_through(store)
    invoiced.soft_close(store)
    invoiced.issue(store)
    invoiced.close(store)
    return store


def state(store: MemoryStore, *, most: int = 200) -> stating.Stated:
    outcome = stating.state_month(store, MONTH, user_id=JOAN, by=SOMEBODY, now=LATER, most=most)
    invoiced.follow(store)
    return outcome


def test_opening_and_movements_are_the_closing_of_the_ledger(busy: MemoryStore) -> None:
    outcome = state(busy)

    papers = list(PaperRow.objects.all())
    assert outcome.issued == len(papers) > 3 and outcome.left == 0
    for row in papers:
        assert row.opening_nanos + sum(line["nanos"] for line in row.lines) == row.total_nanos
        lines = PostingRow.objects.filter(account_id=row.account_id, period__lte=row.period)
        assert row.total_nanos == sum(lines.values_list("nanos", flat=True))
    assert {row.account_kind for row in papers} == {"prepaid", "chargeback", "earnings"}
    assert len({row.account_id for row in papers}) == len(papers)
    assert with_the_rest(journal_and_invoices(MONTH, LATER)).differences == []
    PaperRow.objects.filter(pk=papers[0].pk).update(total_nanos=papers[0].total_nanos - 1)
    [wrong] = unexplained([with_the_rest(journal_and_invoices(MONTH, LATER))])
    assert (wrong.subject, wrong.amount) == (papers[0].number, -1)


def test_an_owners_statement_has_fee_and_credits_as_lines_of_their_own(busy: MemoryStore) -> None:
    state(busy)

    earned = PaperRow.objects.filter(account_kind="earnings")
    kinds = {line["kind"] for row in earned for line in row.lines}
    assert kinds >= {"usage", "compensation"}
    for row in earned:
        for line in row.lines:
            if line["kind"] == "usage":
                assert line["gross_nanos"] - line["fee_nanos"] == line["nanos"]
                assert line["fee_nanos"] > 0
    spent = PaperRow.objects.exclude(account_kind="earnings")
    titles = {line["title"] for row in spent for line in row.lines}
    assert any(title.startswith("Use of GPUs rented from") for title in titles)


def test_numbers_count_without_gaps_and_nothing_is_stated_twice(busy: MemoryStore) -> None:
    first = state(busy, most=2)
    assert (first.issued, first.left > 0) == (2, True)
    state(busy)

    assert state(busy).issued == 0
    numbers = sorted(PaperRow.objects.values_list("number", flat=True))
    assert numbers == [f"STM-2026-{n:04d}" for n in range(1, len(numbers) + 1)]


def test_a_month_that_was_changed_is_stated_anew(busy: MemoryStore) -> None:
    state(busy)
    before = PaperRow.objects.filter(account_kind="chargeback", currency="USD").first()
    assert before is not None
    count = PaperRow.objects.count()
    invoiced.reopen(busy)
    account, hold = AccountId(before.account_id), book.hold_named("again")
    book.hold(busy, usd(30), account=account, hold_id=hold)
    lease_id = book.lease_named("again")
    book.capture(busy, hours(20), MILLIS, account=account, hold_id=hold, lease_id=lease_id)
    invoiced.soft_close(busy)
    invoiced.close(busy)

    state(busy)

    after = PaperRow.objects.filter(account_id=before.account_id).latest("position")
    assert after.replaces == before.number
    assert after.total_nanos < before.total_nanos
    changed = PaperRow.objects.count() - count
    assert 1 <= changed < count, "who got no entry keeps the statement"
    assert "Replaces" in text_of(file_of_paper(after))


def test_an_open_month_and_an_account_without_entries_are_not_stated(store: MemoryStore) -> None:
    book.open_everybody(store)
    book.open_funds(store)
    invoiced.soft_close(store)
    with pytest.raises(MonthNotClosed):
        state(store)
    invoiced.close(store)

    assert state(store).issued == 0
    account = AccountRow.objects.filter(kind="prepaid").get()
    draft = stating.compose_statement(account, MONTH, as_of=read_up_to("ledger.money"))
    with pytest.raises(NothingToState):
        issue_statement(store, draft, user_id=JOAN, by=SOMEBODY, now=LATER)


def test_the_same_figures_are_refused(busy: MemoryStore) -> None:
    state(busy)
    row = PaperRow.objects.order_by("number")[0]
    account = AccountRow.objects.get(pk=row.account_id)
    draft = stating.compose_statement(account, MONTH, as_of=read_up_to("ledger.money"))

    with pytest.raises(StatementIssuedBefore) as refused:
        issue_statement(busy, draft, user_id=JOAN, by=SOMEBODY.step("again"), now=LATER)

    assert refused.value.details["number"] == row.number


def test_files_are_put_away_once_mailed_and_survive_a_kill(
    busy: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(invoice_mail, "can_mail", lambda: True)
    owner = book.OWNER
    invoiced.details(busy, owner, name="Owner SARL", country="FR", email="books@owner.example")
    state(busy)
    row = PaperRow.objects.get(account_id=earnings_account(owner, "USD"))
    drawn = file_of_paper(row)
    assert "Owner SARL" in text_of(drawn) and "Consumers paid" in text_of(drawn)
    # Killed between putting a file away and noting it: the same file is found again.
    DocumentFile.objects.create(document_id=row.pk, sha256="0" * 64, data=b"as it was")

    done = stating.archive_papers(busy, now=LATER)
    invoiced.follow(busy)

    assert done == PaperRow.objects.count()
    assert stating.archive_papers(busy, now=LATER) == 0
    row.refresh_from_db()
    assert (row.sha256, file_of_paper(row)) == ("0" * 64, b"as it was")
    [told] = [each for each in invoicing.documents_that_differ() if row.number in each]
    assert "was changed" in told
    DocumentFile.objects.filter(pk=row.pk).delete()
    assert any("not what was put" in each for each in invoicing.documents_that_differ())
    DocumentFile.objects.create(document_id=row.pk, sha256=row.sha256, data=b"as it was")

    assert invoice_mail.mail_documents(busy, now=LATER) == 2, "one for each currency"
    invoiced.follow(busy)
    assert invoice_mail.mail_documents(busy, now=LATER) == 0
    sent = next(each for each in mail.outbox if each.subject == row.number)
    assert sent.to == ["books@owner.example"] and str(row.pk) in str(sent.body)
    row.refresh_from_db()
    assert row.sent_to == "books@owner.example"


def test_closed_months_are_stated_by_themselves_where_that_is_said(busy: MemoryStore) -> None:
    assert stating.see_to_papers(busy, now=LATER) == 0
    invoiced.details(busy, PLATFORM_ID, name="Offpeak GmbH", issues_by_itself=True)
    assert platform_named().name == "Offpeak GmbH"

    assert stating.see_to_papers(busy, now=LATER) > 3
    invoiced.follow(busy)
    stating.see_to_papers(busy, now=LATER)
    invoiced.follow(busy)
    assert stating.see_to_papers(busy, now=LATER) == 0
    assert not PaperRow.objects.filter(sha256="")


def test_amounts_below_each_other_align() -> None:
    said = [exactly(each) for each in (1_234_500_000_000, -1, 0)]
    assert said == ["1,234.500000000", "-0.000000001", "0.000000000"]


def test_statements_are_rebuilt_as_they_were(busy: MemoryStore) -> None:
    state(busy)
    stating.archive_papers(busy, now=LATER)
    invoiced.follow(busy)
    before = fingerprint(INVOICES.tables)

    rebuild(busy, MONEY)
    rebuild(busy, INVOICES)

    assert fingerprint(INVOICES.tables) == before
