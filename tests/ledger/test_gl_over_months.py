"""The general ledger's months add up to the ledger: what is less than a cent is carried."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger import exports
from ledger.access import Actor
from ledger.domain.account_ids import funds_account
from ledger.domain.ids import LeaseId
from ledger.domain.money import Money, Rate
from ledger.domain.periods import Period
from ledger.domain.span import Window
from ledger.eventstore.memory import MemoryStore
from ledger.exports import gl
from ledger.exports.entries import BookAccount
from ledger.models import PostingRow
from tests.ledger import busy_month
from tests.ledger import ledgerbook as book
from tests.ledger.exported import nanos, rows_of

CENT = 10_000_000
ACCOUNTS = [
    BookAccount(account_id=UUID(int=number), kind="earnings", title=str(number), currency="USD")
    for number in range(1, 6)
]
USE = [(-90_000_000, 85_500_000, 4_500_000)]
"""Nine cents, of which 5 % are the fee."""

splits = st.lists(st.integers(-(10**11), 10**11), min_size=1, max_size=4)
months = st.lists(
    st.dictionaries(st.sampled_from(["cc-1", "cc-2", "cc-3"]), splits, max_size=3),
    min_size=1,
    max_size=12,
)
"""For each month, by cost centre, what accounts gain; a last account bears the rest."""


def journals_of(month: dict[str, list[int]]) -> gl.Journals:
    journals: gl.Journals = {}
    for centre, gains in month.items():
        lines = dict(zip(ACCOUNTS, [*gains, -sum(gains)], strict=False))
        journals["usage", centre, "USD"] = {each: gain for each, gain in lines.items() if gain}
    return {key: lines for key, lines in journals.items() if lines}


def book_months(given_months: list[gl.Journals]) -> tuple[Counter[BookAccount], list[gl.Journals]]:
    """Book month after month; return the exact totals and what was booked."""
    totals: Counter[BookAccount] = Counter()
    booked = []
    for journals in given_months:
        opening = dict(totals)
        for lines in journals.values():
            totals.update(lines)
        booked.append(gl.in_cents(journals, opening=opening, closing=dict(totals)))
    return totals, booked


def summed(booked: list[gl.Journals]) -> Counter[BookAccount]:
    sums: Counter[BookAccount] = Counter()
    for month in booked:
        for lines in month.values():
            sums.update(lines)
    return sums


@settings(max_examples=200, deadline=None)
@given(given_months=months)
def test_each_accounts_months_add_up_to_the_ledger_within_a_cent(
    given_months: list[dict[str, list[int]]],
) -> None:
    journals = [journals_of(month) for month in given_months]
    totals, booked = book_months(journals)

    for number in range(1, len(booked) + 1):
        so_far, _ = book_months(journals[:number])
        sums = summed(booked[:number])
        for account in {*so_far, *sums}:
            if account.kind == gl.ROUNDING:
                assert sums[account] == 0, "nothing stays there at the end of a month"
            assert abs(sums[account] * CENT - so_far[account]) < CENT
    assert set(totals) <= set(ACCOUNTS)


@settings(max_examples=200, deadline=None)
@given(given_months=months)
def test_every_journal_balances_and_no_line_is_off_by_two_cents(
    given_months: list[dict[str, list[int]]],
) -> None:
    journals = [journals_of(month) for month in given_months]
    _, booked = book_months(journals)

    for exact, cents in zip(journals, booked, strict=True):
        for key, lines in cents.items():
            assert sum(lines.values()) == 0
            assert all(lines.values()), "no line of zero"
            for account, minor in lines.items():
                if account.kind != gl.ROUNDING and key in exact:
                    assert abs(minor * CENT - exact[key].get(account, 0)) < 2 * CENT


def test_a_year_of_small_months_books_the_fee() -> None:
    payer, owner, fees = ACCOUNTS[:3]
    month: gl.Journals = {
        ("usage", "cc", "USD"): {payer: -90_000_000, owner: 85_500_000, fees: 4_500_000}
    }
    _, booked = book_months([month] * 12)

    sums = summed(booked)

    assert sums[payer] == -108
    assert sums[fees] in (5, 6)
    assert sums[owner] + sums[fees] == 108


def test_two_hundred_cost_centres_of_small_fees_miss_nothing() -> None:
    payer, owner, fees = ACCOUNTS[:3]
    month: gl.Journals = {
        ("usage", f"cc-{number}", "USD"): {
            payer: -90_000_000,
            owner: 85_500_000,
            fees: 4_500_000,
        }
        for number in range(200)
    }
    _, booked = book_months([month])

    sums = summed(booked)

    assert (sums[payer], sums[owner], sums[fees]) == (-1_800, 1_710, 90)


@pytest.mark.parametrize(("currency", "digits"), [("JPY", 0), ("KWD", 3), ("EUR", 2)])
def test_a_currency_is_carried_in_its_own_minor_unit(currency: str, digits: int) -> None:
    one, other = (
        BookAccount(account_id=UUID(int=each), kind="fees", title="", currency=currency)
        for each in (1, 2)
    )
    unit = 10 ** (9 - digits)
    month: gl.Journals = {("usage", "", currency): {one: unit * 2 // 5, other: -(unit * 2 // 5)}}

    _, booked = book_months([month] * 5)

    assert summed(booked)[one] == 2


@pytest.mark.django_db
@pytest.mark.parametrize(
    "actor", [busy_month.AUDITOR, busy_month.FINANCE, busy_month.OWNER_FINANCE]
)
def test_exported_months_add_up_to_the_tables(store: MemoryStore, actor: Actor) -> None:
    busy_month.live_through(store)
    account = funds_account(busy_month.unit_named("Astro"), "USD")
    hold_id = book.hold_named(900)
    book.hold(store, Money(90 * 10**9, "USD"), account=account, hold_id=hold_id)
    for month in range(1, 13):
        since = Period(2026, month).window.starts_at
        book.capture(
            store,
            Window(since, since.replace(minute=7)),
            420_000,
            account=account,
            hold_id=hold_id,
            lease_id=LeaseId(UUID(int=900)),
            price=Rate(1_043_000_000, "USD"),
            owners=((book.OWNER, 420_000),),
            cost_centre=f"CC-{month % 5}",
        )
    busy_month.follow(store)
    position = store.head()

    booked: Counter[str] = Counter()
    for month in range(1, 13):
        data = b"".join(
            exports.export(actor, "gl", period=Period(2026, month), position=position)
        ).decode()
        for row in rows_of(data):
            booked[row["account"]] += nanos(row["credit"] or "0") - nanos(row["debit"] or "0")

    assert booked.pop(gl.ROUNDING, 0) == 0
    ledger: Counter[str] = Counter()
    for line in PostingRow.objects.all():
        ledger[str(line.account_id)] += line.nanos
    seen = {name for name in booked if name != "others"}
    assert seen
    for name in seen:
        assert abs(booked[name] - ledger[name]) < CENT, name
