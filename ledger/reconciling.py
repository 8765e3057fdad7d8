"""Reconciliation: each record of a month's money against the next one (decision 117).

The apps above know meters, invoices and what left the bank; they hand their legs in at start
(`install`). The book of record compares what was charged with its journal, and that with itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from django.db import connection
from django.db.models import Sum

from ledger.domain.periods import Period
from ledger.domain.reconciling import Comparing, Difference, Leg, Pair, with_the_rest
from ledger.models import AccountRow, PostingRow, UsageChargeRow
from ledger.queries.money import disagreements

NAMED_MAX = 20
_OTHERWISE = "the journal takes another amount for this charge"
_CHARGED_OTHERWISE = """
SELECT c.entry_id, c.currency, c.charged_nanos + coalesce(p.nanos, 0)
  FROM ledger_usagechargerow c
  LEFT JOIN ledger_postingrow p ON p.entry_id = c.entry_id AND p.account_id = c.account_id
 WHERE c.starts_at >= %s AND c.starts_at < %s AND c.charged_nanos + coalesce(p.nanos, 0) <> 0
 ORDER BY c.entry_id LIMIT %s
"""
_installed: tuple[Comparing, ...] = ()


def install(legs: Sequence[Comparing]) -> None:
    """Say what else is compared, in the order of the money's way."""
    global _installed
    _installed = tuple(legs)


def reconcile(period: Period, *, now: datetime) -> list[Leg]:
    """Compare all records of a month; what differs without a reason is among the differences."""
    legs = (*_installed, charges_and_journal, journal_and_accounts)
    return [with_the_rest(compare(period, now)) for compare in legs]


def charges_and_journal(period: Period, now: datetime) -> Leg:
    """Compare what use of the month was charged with what the journal counts in it, by account."""
    charged: Counter[tuple[str, str]] = Counter()
    differences: list[Difference] = []
    within = period.window
    of_month = UsageChargeRow.objects.filter(
        starts_at__gte=within.starts_at, starts_at__lt=within.ends_at
    )
    sums = of_month.values("account_id", "currency", "period").annotate(nanos=Sum("charged_nanos"))
    for each in sums.order_by():
        key = _key(each["account_id"], each["currency"])
        charged[key] += int(each["nanos"])
        if each["period"] != str(period):
            words = f"use of {period} that counts in {each['period']}, after it was closed"
            differences.append(Difference(*key, -int(each["nanos"]), "late", words))
    earlier = UsageChargeRow.objects.filter(period=str(period), starts_at__lt=within.starts_at)
    sums = earlier.values("account_id", "currency").annotate(nanos=Sum("charged_nanos"))
    for each in sums.order_by():
        key = _key(each["account_id"], each["currency"])
        words = f"use of before that counts in {period}, since its month was closed"
        differences.append(Difference(*key, int(each["nanos"]), "late", words))
    posted: Counter[tuple[str, str]] = Counter()
    lines = PostingRow.objects.filter(period=str(period), kind="usage", nanos__lt=0)
    for each in lines.values("account_id", "currency").annotate(sum=Sum("nanos")).order_by():
        posted[_key(each["account_id"], each["currency"])] -= int(each["sum"])
    differences += _charged_otherwise(period)
    pairs = [Pair(*key, charged[key], posted[key]) for key in sorted({*charged, *posted})]
    return Leg("charges-journal", "Charges and the journal", pairs, differences)


def _charged_otherwise(period: Period) -> list[Difference]:
    """Return the charges whose own entries take another amount: sums of many may hide two."""
    with connection.cursor() as cursor:
        cursor.execute(
            _CHARGED_OTHERWISE, [period.window.starts_at, period.window.ends_at, NAMED_MAX]
        )
        return [
            Difference(f"entry {entry_id}", f"{currency} nanos", -nanos, "unexplained", _OTHERWISE)
            for entry_id, currency, nanos in cursor.fetchall()
        ]


def journal_and_accounts(period: Period, now: datetime) -> Leg:
    """Compare every account's total with its postings, and all of them with zero."""
    summed = {
        each["account_id"]: int(each["sum"])
        for each in PostingRow.objects.values("account_id").annotate(sum=Sum("nanos")).order_by()
    }
    pairs = [
        Pair(*_key(row.pk, row.currency), summed.get(row.pk, 0), row.total_nanos)
        for row in AccountRow.objects.order_by("pk").iterator()
    ]
    wrong = [Difference("books", "", 0, "unexplained", words) for words in disagreements()]
    return Leg("journal-accounts", "The journal and the accounts", pairs, wrong)


def _key(account_id: UUID, currency: str) -> tuple[str, str]:
    return f"account {account_id}", f"{currency} nanos"
