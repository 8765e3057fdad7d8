"""Whether payouts, the journal and the bank files say the same: each difference in a sentence."""

from __future__ import annotations

from collections import Counter

from django.db.models import Count, Sum

from ledger.domain.payees import PayoutState
from ledger.models import AccountRow, BankFileRow, PayeeRow, PayoutRow

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
