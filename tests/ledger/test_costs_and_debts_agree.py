"""Costs, who owes whom, entries and exports are sums of the same entries, whatever they are by."""

from __future__ import annotations

import csv
import io
from collections import Counter
from decimal import Decimal
from uuid import UUID

import pytest
from django.db.models import Sum

from ledger.access import Actor
from ledger.domain.costs import COST_KINDS
from ledger.domain.netting import Owed, netted
from ledger.eventstore.memory import MemoryStore
from ledger.exports import export
from ledger.models import AccountRow, DebtRow, JournalEntryRow, PostingRow
from ledger.queries.costs import COST_BYS, CostByUnknown, costs
from ledger.queries.entries import EntryUnknown, Wanted, accounts_of_party, entries, entry, moved
from ledger.queries.matrix import between_organisations, owed
from tests.ledger import busy_month
from tests.ledger import ledgerbook as book
from tests.ledger.busy_month import AUDITOR, FEBRUARY, FINANCE, JANUARY, OWNER_FINANCE

pytestmark = pytest.mark.django_db
PAYING = ("prepaid", "chargeback")


@pytest.fixture(autouse=True)
def month(store: MemoryStore) -> MemoryStore:
    busy_month.live_through(store)
    busy_month.follow(store)
    return store


def journal(actor: Actor = AUDITOR) -> Counter[str]:
    """Return what the accounts that pay lost in January, by currency, from the lines alone."""
    mine = AccountRow.objects.filter(kind__in=PAYING)
    if not actor.sees_all:
        mine = mine.filter(tenant_id=actor.tenant_id)
    rows = PostingRow.objects.filter(
        account_id__in=mine.values("account_id"), period=str(JANUARY), kind__in=COST_KINDS
    )
    summed = rows.values("currency").annotate(sum=Sum("nanos")).order_by()
    return Counter({each["currency"]: -int(each["sum"]) for each in summed})


@pytest.mark.parametrize("by", COST_BYS)
@pytest.mark.parametrize("actor", [AUDITOR, FINANCE], ids=["all", "own"])
def test_costs_by_anything_are_what_accounts_lost(actor: Actor, by: str) -> None:
    found = list(costs(actor, JANUARY, JANUARY, by=[by]))

    added: Counter[str] = Counter()
    for each in found:
        added[each.currency] += each.nanos
    assert added == journal(actor)
    assert journal(actor)


def test_costs_are_those_of_the_focus_export(month: MemoryStore) -> None:
    data = b"".join(export(AUDITOR, "focus", period=JANUARY, position=month.head())).decode()
    rows = list(csv.DictReader(io.StringIO(data, newline="")))
    by_sku: Counter[str] = Counter()
    for each in costs(AUDITOR, JANUARY, JANUARY, by=["kind"]):
        by_sku["USD" if each.currency == "USD" else each.currency] += each.nanos

    told = {
        currency: sum(Decimal(r["EffectiveCost"]) for r in rows if r["BillingCurrency"] == currency)
        for currency in by_sku
    }
    assert told == {name: Decimal(nanos) / 10**9 for name, nanos in by_sku.items()}


@pytest.mark.parametrize("by", COST_BYS)
def test_the_entries_of_a_cost_are_those_that_it_counts(by: str) -> None:
    together: Counter[tuple[str, str]] = Counter()
    counted: Counter[str] = Counter()
    for each in costs(AUDITOR, JANUARY, JANUARY, by=[by]):
        together[each.keys[0], each.currency] += each.nanos
        counted[each.keys[0]] += each.entries

    for key, many in counted.items():
        found = list(entries(AUDITOR, Wanted(first=JANUARY, last=JANUARY, only={by: key})))
        assert len(found) == many, (by, key)
        sums: Counter[tuple[str, str]] = Counter()
        for row in found:
            sums[key, row.currency] -= moved(row, row.account_id)
        assert sums == Counter({k: v for k, v in together.items() if k[0] == key})


def test_what_is_told_apart_by_nothing_known_is_refused() -> None:
    with pytest.raises(CostByUnknown):
        list(costs(AUDITOR, JANUARY, JANUARY, by=["weather"]))
    assert list(costs(AUDITOR, JANUARY, JANUARY, by=["sku"], only={"unit": "none"})) == []
    assert list(costs(AUDITOR, JANUARY, JANUARY, by=["sku"], only={"lease": "none"})) == []


def test_the_matrix_adds_up_to_costs_and_nets_to_the_debts() -> None:
    cells = owed(AUDITOR, JANUARY, JANUARY)

    added: Counter[str] = Counter()
    for each in cells:
        added[each.currency] += each.nanos
    assert added == journal()
    debts = [
        Owed(row.debtor_id, row.creditor_id or book.PLATFORM, row.nanos, row.currency)
        for row in DebtRow.objects.filter(period=str(JANUARY))
    ]
    assert {(e.debtor_id, e.creditor_id, e.currency): e.nanos for e in netted(debts)} == {
        (e.debtor_id, e.creditor_id, e.currency): e.nanos for e in between_organisations(cells)
    }


def test_the_entries_of_a_cell_are_what_it_is_made_of() -> None:
    for cell in owed(AUDITOR, JANUARY, JANUARY):
        assert cell.other_id is not None
        only = {"tenant": str(cell.tenant_id), "unit": str(cell.unit_id or "")}
        wanted = Wanted(first=JANUARY, last=JANUARY, only=only, with_id=cell.other_id)
        theirs = accounts_of_party(cell.other_id)
        found = list(entries(AUDITOR, wanted))
        assert found and sum(moved(row, key) for row in found for key in theirs) == cell.nanos


def test_several_months_are_the_sum_of_each() -> None:
    both = sum(each.nanos for each in owed(AUDITOR, JANUARY, FEBRUARY))
    apart = [each.nanos for month in (JANUARY, FEBRUARY) for each in owed(AUDITOR, month, month)]
    assert both == sum(apart)
    assert owed(AUDITOR, FEBRUARY.next, FEBRUARY.next) == []


def test_an_owner_sees_who_owes_it_and_nothing_of_their_units() -> None:
    cells = owed(OWNER_FINANCE, JANUARY, JANUARY)

    assert cells and all(each.other_id == book.OWNER for each in cells)
    assert all(each.unit_id is None for each in cells)
    everything = owed(AUDITOR, JANUARY, JANUARY)
    mine = [each.nanos for each in everything if each.other_id == book.OWNER]
    assert sum(each.nanos for each in cells) == sum(mine)
    assert list(costs(OWNER_FINANCE, JANUARY, JANUARY, by=["unit"])) == []
    for cell in cells:
        wanted = Wanted(first=JANUARY, last=JANUARY, payer_id=cell.tenant_id, with_id=cell.other_id)
        found = [row for row in entries(OWNER_FINANCE, wanted) if row.currency == cell.currency]
        theirs = accounts_of_party(book.OWNER)
        assert sum(moved(row, key) for row in found for key in theirs) == cell.nanos


def test_an_entry_shows_others_as_one_line_and_strangers_nothing() -> None:
    mine = accounts_of_party(book.CONSUMER)
    row = next(
        each
        for each in JournalEntryRow.objects.filter(kind="usage").order_by("position")
        if each.account_id in mine and len(each.account_ids) > 2
    )
    whole, own, earned = (entry(actor, row.entry_id) for actor in (AUDITOR, FINANCE, OWNER_FINANCE))

    for seen in (whole, own, earned):
        assert sum(line.nanos for line in seen.lines) == 0
    assert len(whole.lines) == len(row.account_ids) and whole.usage is not None
    assert [line.account is None for line in own.lines] == [False, True] and own.is_whole
    assert not earned.is_whole and earned.usage is None
    stranger = Actor(tenant_id=UUID(int=5), roles=frozenset({"finance"}))  # type: ignore[arg-type]
    with pytest.raises(EntryUnknown):
        entry(stranger, row.entry_id)
    with pytest.raises(EntryUnknown):
        entry(AUDITOR, UUID(int=5))
