"""Money as one actor may see it: accounts, statements, balances, who spends and who owes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import (
    BigIntegerField,
    BooleanField,
    Case,
    Count,
    ExpressionWrapper,
    F,
    Func,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Sum,
    When,
)
from django.db.models.functions import Coalesce

from ledger.access import Actor, visible
from ledger.domain.accounts import PAYING_KINDS, AccountUnknown
from ledger.domain.ids import AccountId, HoldId, LeaseId
from ledger.domain.parties import SubscriberUnknown
from ledger.domain.periods import Period
from ledger.eventstore.port import Position
from ledger.models import (
    AccountRow,
    Checkpoint,
    DebtRow,
    HoldRow,
    JournalEntryRow,
    PartyNameRow,
    PostingRow,
    PostingSumRow,
    SubscriberRow,
    UsageChargeRow,
)
from ledger.turns import behind

_SUMMED_WRONGLY = """
SELECT account_id, period FROM (
    SELECT account_id, period, block, kind, nanos, lines FROM ledger_postingsumrow
    UNION ALL
    SELECT account_id, period, position / %s, kind, -sum(nanos), -count(*) FROM ledger_postingrow
     GROUP BY 1, 2, 3, 4
) both_ways GROUP BY account_id, period, block, kind
HAVING sum(nanos) <> 0 OR sum(lines) <> 0 LIMIT 5
"""
STRAY_HOLDS_MAX = 1_000
DISAGREEMENTS_MAX = 100
LOW_WITHIN = timedelta(days=1)
"""An account runs low that does not cover as much again as it was charged in so long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialBalance:
    """Every account's total from nothing but postings.

    others_nanos: by currency, all accounts together that the actor may not see; with `totals`
    they sum to zero. Whoever sees all accounts has none there.
    """

    totals: Sequence[tuple[AccountRow, int]]
    others_nanos: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spend:
    """What a cost centre was charged in a period."""

    tenant_id: UUID
    cost_centre: str
    currency: str
    charged_nanos: int
    gpu_millis: int
    leases: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StrayHold:
    """A hold that is open since before some moment."""

    hold_id: HoldId
    account_id: AccountId
    purpose: str
    placed_at: datetime


def accounts(actor: Actor) -> QuerySet[AccountRow]:
    """Return the accounts of the actor's tenant; all for the platform's operators, auditors."""
    return visible(actor, AccountRow)


def account(actor: Actor, account_id: AccountId) -> AccountRow:
    """Return one account.

    Raises: AccountUnknown, also for one that the actor may not see.
    """
    found = visible(actor, AccountRow).filter(pk=account_id).first()
    if found is None:
        raise AccountUnknown(account_id=account_id)
    return found


def telling_low(rows: QuerySet[AccountRow], *, now: datetime) -> QuerySet[AccountRow]:
    """Return accounts with `runs_low`: a paying account can set aside less than a day's charges.

    What counts is what is available with the overdraft, never the total: money in holds is
    spoken for. Accounts without a limit never run low, nor do those that nothing is charged to,
    unless they are below their limit.
    """
    since = now - LOW_WITHIN
    periods = sorted({str(Period.of(since)), str(Period.of(now))})
    charged = (
        UsageChargeRow.objects.filter(
            account_id=OuterRef("pk"),
            tenant_id=OuterRef("tenant_id"),
            period__in=periods,
            ends_at__gt=since,
        )
        .order_by()
        .values("account_id")
        .annotate(sum=Sum("charged_nanos"))
        .values("sum")
    )
    # Django takes the sum of two bigints for a 32-bit integer, and a comparison beyond that for
    # always true: the field must be named.
    left = ExpressionWrapper(
        F("available_nanos") + F("overdraft_nanos"), output_field=BigIntegerField()
    )
    spent = Coalesce(Subquery(charged, output_field=BigIntegerField()), 0)
    low = Q(kind__in=PAYING_KINDS, overdraft_nanos__isnull=False, left__lt=F("spent"))
    return rows.alias(left=left, spent=spent).annotate(
        runs_low=Case(When(low, then=True), default=False, output_field=BooleanField())
    )


def running_low(actor: Actor, *, now: datetime) -> list[AccountRow]:
    """Return the accounts of the actor's tenant that run low, by title."""
    told: Any = telling_low(visible(actor, AccountRow), now=now)
    return list(told.filter(runs_low=True).order_by("title", "account_id"))


def holds(actor: Actor, account_id: AccountId) -> QuerySet[HoldRow]:
    """Return the holds of one account."""
    return visible(actor, HoldRow).filter(account_id=account_id)


def stray_holds(
    *,
    older_than: datetime,
    purpose_prefix: str = "bid:",
    after: Sequence[object] | None = None,
    limit: int = STRAY_HOLDS_MAX,
) -> list[StrayHold]:
    """Return open holds placed before `older_than`, oldest first.

    after: time and id of the last one of the page before.

    Whether what a hold was placed for ever came is known to the app that placed it: that app
    decides, and asks for `release_hold`.
    """
    rows = HoldRow.objects.filter(
        behind(after, "placed_at", "hold_id"),
        state="placed",
        placed_at__lt=older_than,
        captured_nanos=0,
        purpose__startswith=purpose_prefix,
    ).order_by("placed_at", "hold_id")[:limit]
    return [
        StrayHold(
            hold_id=HoldId(row.hold_id),
            account_id=AccountId(row.account_id),
            purpose=row.purpose,
            placed_at=row.placed_at,
        )
        for row in rows
    ]


def trial_balance(actor: Actor) -> TrialBalance:
    """Return every account's total from the postings, in order of kind, title and id."""
    seen = {row.pk: row for row in visible(actor, AccountRow)}
    totals: dict[UUID, int] = {}
    others: Counter[str] = Counter()
    summed = PostingRow.objects.values("account_id", "currency").annotate(sum=Sum("nanos"))
    for each in summed.order_by():
        if each["account_id"] in seen:
            totals[each["account_id"]] = int(each["sum"])
        else:
            others[each["currency"]] += int(each["sum"])
    ordered = sorted(totals, key=lambda key: (seen[key].kind, seen[key].title, str(key)))
    return TrialBalance(
        totals=[(seen[key], totals[key]) for key in ordered], others_nanos=dict(others)
    )


def spend_by_cost_centre(actor: Actor, period: Period) -> list[Spend]:
    """Return what each cost centre was charged in a period, the most first."""
    rows = (
        visible(actor, UsageChargeRow)
        .filter(period=str(period))
        .values("tenant_id", "cost_centre", "currency")
        .annotate(
            charged_nanos=Sum("charged_nanos"),
            gpu_millis=Sum("gpu_millis"),
            leases=Count("lease_id", distinct=True),
        )
        .order_by("-charged_nanos", "tenant_id", "cost_centre", "currency")
    )
    return [
        Spend(
            tenant_id=row["tenant_id"],
            cost_centre=row["cost_centre"],
            currency=row["currency"],
            charged_nanos=int(row["charged_nanos"]),
            gpu_millis=int(row["gpu_millis"]),
            leases=row["leases"],
        )
        for row in rows
    ]


def debts(actor: Actor, period: Period) -> QuerySet[DebtRow]:
    """Return who owes whom for a period, the most first; a tenant sees those it is part of."""
    rows = visible(actor, DebtRow).filter(period=str(period))
    return rows.order_by("-nanos", "debt_id")


def charges(actor: Actor, *, lease_id: LeaseId) -> QuerySet[UsageChargeRow]:
    """Return the charged usage windows of a lease, in time order."""
    return visible(actor, UsageChargeRow).filter(lease_id=lease_id).order_by("starts_at")


@dataclass(frozen=True, slots=True)
class ChargedWindow:
    """A usage window, or a correction of one, as it was charged."""

    entry_id: UUID
    lease_id: UUID
    starts_at: datetime
    gpu_millis: int


def charged_windows(period: Period) -> Iterator[ChargedWindow]:
    """Yield what was charged of use that began in a month, in whichever month it counts."""
    within = period.window
    rows = UsageChargeRow.objects.filter(
        starts_at__gte=within.starts_at, starts_at__lt=within.ends_at
    )
    columns = rows.values_list("entry_id", "lease_id", "starts_at", "gpu_millis")
    yield from (ChargedWindow(*row) for row in columns.iterator())


def charged_so_far(actor: Actor, *, lease_id: LeaseId) -> int:
    """Return the nano-units that a lease has cost so far."""
    total = charges(actor, lease_id=lease_id).aggregate(total=Sum("charged_nanos"))["total"]
    return int(total or 0)


def subscriber_of(tenant_id: UUID, subscriber_id: UUID) -> SubscriberRow:
    """Return a business unit of a tenant, to open an account for it; for the platform's people.

    Raises: SubscriberUnknown.
    """
    found = SubscriberRow.objects.filter(pk=subscriber_id, tenant_id=tenant_id).first()
    if found is None:
        raise SubscriberUnknown(subscriber_id=subscriber_id)
    return found


def account_titles(account_ids: Iterable[UUID]) -> dict[UUID, str]:
    """Return the titles of accounts that visible rows speak of."""
    found = AccountRow.objects.filter(pk__in=list(account_ids))
    return dict(found.values_list("account_id", "title"))


def party_names(party_ids: Iterable[UUID]) -> dict[UUID, str]:
    """Return the titles of tenants and business units that visible rows speak of."""
    found = PartyNameRow.objects.in_bulk(list(party_ids))
    return {party_id: row.title for party_id, row in found.items()}


def read_up_to() -> Position:
    """Return the position up to which the tables that exports are made of tell the streams."""
    names = ("ledger.money", "ledger.exports")
    found = Checkpoint.objects.filter(name__in=names).values_list("position", flat=True)
    return Position(min(found) if len(found) == len(names) else 0)


def disagreements() -> list[str]:
    """Return what does not add up in the tables of money; an empty list is as it must be.

    Looks at all of them, so it is for `manage.py doctor` and tests.
    """
    wrong = []
    summed = {
        each["account_id"]: int(each["sum"])
        for each in PostingRow.objects.values("account_id").annotate(sum=Sum("nanos")).order_by()
    }
    for row in AccountRow.objects.order_by("account_id"):
        if row.total_nanos != summed.get(row.pk, 0):
            wrong.append(f"account {row.pk}: total is not the sum of its postings")
    for each in PostingRow.objects.values("currency").annotate(sum=Sum("nanos")).order_by():
        if each["sum"]:
            wrong.append(f"postings in {each['currency']} are off by {each['sum']} nano-units")
    entries = PostingRow.objects.values("entry_id", "currency").annotate(sum=Sum("nanos"))
    for each in entries.exclude(sum=0).order_by("entry_id")[:DISAGREEMENTS_MAX]:
        wrong.append(f"entry {each['entry_id']}: its postings are off by {each['sum']} nano-units")
    open_holds = HoldRow.objects.filter(state="placed").values("account_id")
    held = {
        each["account_id"]: int(each["sum"])
        for each in open_holds.annotate(sum=Sum(F("money_nanos") - F("captured_nanos"))).order_by()
    }
    for row in AccountRow.objects.exclude(held_nanos=0).order_by("account_id"):
        if row.held_nanos != held.pop(row.pk, 0):
            wrong.append(f"account {row.pk}: held is not the sum of its holds")
    wrong += [f"account {pk}: holds without held" for pk, nanos in held.items() if nanos]
    lines = JournalEntryRow.objects.aggregate(lines=Sum(Func("nanos", function="cardinality")))
    if (lines["lines"] or 0) != PostingRow.objects.count():
        wrong.append("the journal and the postings have not as many lines")
    with connection.cursor() as cursor:
        cursor.execute(_SUMMED_WRONGLY, (PostingSumRow.POSITIONS_SUMMED,))
        wrong += [
            f"account {pk}: sums in {period} are not those of its postings"
            for pk, period in cursor.fetchall()
        ]
    return wrong
