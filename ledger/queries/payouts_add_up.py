"""Whether payouts, the journal and the bank files say the same: each difference in a sentence."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from uuid import UUID

from django.db.models import Count, Sum

from ledger.domain.payees import PayoutState
from ledger.domain.periods import Period
from ledger.domain.reconciling import Difference, Leg, Pair
from ledger.models import AccountRow, BankFileRow, PayeeRow, PayoutRow, PostingRow

UNDER_WAY: tuple[PayoutState, ...] = ("requested", "approved", "sent")
FOUND_MAX = 100


def payouts_that_differ() -> list[str]:
    """Return what does not add up; an empty list is as it must be. Looks at all payouts.

    What is on its way is what is asked for and not decided; what owners are owed is what their
    accounts have; a file has the payouts that say they are in it, and their sum.
    """
    wrong = []
    under_way: Counter[str] = Counter()
    sums = PayoutRow.objects.filter(state__in=UNDER_WAY).values("currency").order_by()
    for each in sums.annotate(sum=Sum("nanos")):
        under_way[each["currency"]] = int(each["sum"])
    for account in AccountRow.objects.filter(kind="payouts"):
        off = account.total_nanos - under_way.pop(account.currency, 0)
        if off:
            wrong.append(f"on its way in {account.currency} is off by {off} nano-units")
    wrong += [f"payouts in {currency} are in no account" for currency in sorted(under_way)]
    earnings = AccountRow.objects.filter(kind="earnings")
    totals = dict(earnings.values_list("account_id", "total_nanos"))
    for payee in PayeeRow.objects.filter(account_id__in=totals):
        if payee.earned_nanos - payee.paid_nanos != totals[payee.account_id]:
            wrong.append(f"earnings {payee.account_id} are not what their account has")
    inside = {
        each["file_id"]: (each["count"], int(each["sum"]))
        for each in PayoutRow.objects.exclude(file_id=None)
        .values("file_id")
        .order_by()
        .annotate(count=Count("payout_id"), sum=Sum("nanos"))
    }
    for file in BankFileRow.objects.order_by("number"):
        if inside.pop(file.file_id, (0, 0)) != (file.payouts, file.total_nanos):
            wrong.append(f"bank file {file.message_id} has not the payouts that are in it")
    wrong += [f"payouts are in file {file_id}, which there is not" for file_id in inside]
    return wrong[:FOUND_MAX]


def payouts_and_files(period: Period, now: datetime) -> Leg:
    """Compare the payouts requested in a month with what was handed on: in a file, to Stripe."""
    within = period.window
    asked, written = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    lines = PostingRow.objects.filter(
        kind="payout", nanos__lt=0, at__gte=within.starts_at, at__lt=within.ends_at
    )
    for each in lines.values("account_id", "currency").annotate(sum=Sum("nanos")).order_by():
        asked[_key(each["account_id"], each["currency"])] -= int(each["sum"])
    differences = []
    rows = PayoutRow.objects.filter(
        requested_at__gte=within.starts_at, requested_at__lt=within.ends_at
    )
    for row in rows.order_by("requested_at", "payout_id"):
        key = _key(row.account_id, row.currency)
        if row.file_id is not None or row.channel == "stripe":
            written[key] += row.nanos
        elif row.state == "cancelled":
            words = f"payout {row.payout_id} was cancelled: {row.reason}"
            differences.append(Difference(*key, -row.nanos, "correction", words))
        elif row.state in UNDER_WAY:
            words = f"payout {row.payout_id} is {row.state}, and in no file yet"
            differences.append(Difference(*key, -row.nanos, "in-flight", words))
    pairs = [Pair(*key, asked[key], written[key]) for key in sorted({*asked, *written})]
    return Leg("payouts-files", "Payouts and what was handed on", pairs, differences)


def files_and_bank(period: Period, now: datetime) -> Leg:
    """Compare the bank files that were written in a month with what the bank paid of them."""
    within = period.window
    pairs, differences = [], []
    files = BankFileRow.objects.filter(at__gte=within.starts_at, at__lt=within.ends_at)
    for file in files.order_by("number"):
        key, paid = (file.message_id, f"{file.currency} nanos"), 0
        for row in PayoutRow.objects.filter(file_id=file.file_id).order_by("payout_id"):
            if row.state == "paid":
                paid += row.nanos
            elif row.state == "returned":
                words = f"payout {row.payout_id} came back: {row.reason}"
                differences.append(Difference(*key, -row.nanos, "correction", words))
            elif row.state == "sent":
                words = f"payout {row.payout_id} is at the bank"
                differences.append(Difference(*key, -row.nanos, "in-flight", words))
        pairs.append(Pair(*key, file.total_nanos, paid))
    return Leg("files-bank", "Bank files and the bank", pairs, differences)


def _key(account_id: UUID, currency: str) -> tuple[str, str]:
    return str(account_id), f"{currency} nanos"
