"""What accounts were charged in some months, told apart by anything that the ledger knows of it.

Use and storage have rows of their own that say what for; everything else is told by its line on the
account that pays. All parts together are what these accounts lost by other entries than payments.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any, Literal, get_args
from uuid import UUID

from django.db.models import CharField, Count, F, Q, QuerySet, Sum, Value
from django.db.models.functions import Cast, TruncDate

from ledger.access import Actor, visible
from ledger.domain.accounts import PAYING_KINDS
from ledger.domain.costs import COST_KINDS
from ledger.domain.periods import Period
from ledger.domain.refusal import Invalid
from ledger.models import AccountRow, PostingRow, StorageChargeRow, UsageChargeRow

CostBy = Literal[
    "tenant",
    "unit",
    "account",
    "lease",
    "kind",
    "sku",
    "class",
    "region",
    "provider",
    "cost-centre",
    "month",
    "day",
]
"""By what the ledger tells costs apart. class: of service."""
COST_BYS: Sequence[CostBy] = get_args(CostBy)
OF_ACCOUNTS = {"tenant": "tenant_id", "unit": "subscriber_id", "account": "account_id"}
VOLUME = "VOLUME"
"""The SKU of storage, as on invoices."""

_USE: Mapping[str, Any] = {
    "lease": F("lease_id"),
    "kind": Value("usage"),
    "sku": F("sku"),
    "class": F("service_class"),
    "region": F("region"),
    "provider": F("provider"),
    "cost-centre": F("cost_centre"),
    "month": F("period"),
    "day": TruncDate("starts_at", tzinfo=UTC),
}
_STORAGE = {
    **{name: Value("") for name in ("lease", "class", "region", "provider")},
    "kind": Value("storage"),
    "sku": Value(VOLUME),
    "cost-centre": F("cost_centre"),
    "month": F("period"),
    "day": TruncDate("starts_at", tzinfo=UTC),
}
_OTHER = {
    **{name: Value("") for name in ("sku", "class", "region", "provider")},
    "lease": F("lease_id"),
    "kind": F("kind"),
    "cost-centre": F("cost_centre"),
    "month": F("period"),
    "day": TruncDate("at", tzinfo=UTC),
}


class CostByUnknown(Invalid):
    """Costs are told apart by tenant, unit, account, cost-centre, lease, kind, sku, class, region.

    Or by provider, month or day; of leases also by project, person, work, gpu or offer.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class CostPart:
    """What entries that are alike come to. keys: as text, in the order that was asked for."""

    keys: tuple[str, ...]
    currency: str
    nanos: int
    gpu_millis: int
    entries: int


def paying_accounts(actor: Actor) -> QuerySet[AccountRow]:
    """Return the accounts that pay and the actor may see."""
    return visible(actor, AccountRow).filter(kind__in=PAYING_KINDS)


def costs(
    actor: Actor,
    first: Period,
    last: Period,
    *,
    by: Sequence[str],
    only: Mapping[str, str] | None = None,
) -> Iterator[CostPart]:
    """Yield what the months from `first` to `last` cost, by any of `COST_BYS`, in no order.

    only: by what is told apart, and the key that is wanted of it. Parts with the same keys may come
    more than once, since use, storage and the rest are added up apart.

    Raises: CostByUnknown.
    """
    only = only or {}
    for name in (*by, *only):
        if name not in COST_BYS:
            raise CostByUnknown(given=name[:40])
    accounts = {row.pk: row for row in _accounts(actor, only)}
    within = Q(period__gte=str(first), period__lte=str(last), account_id__in=list(accounts))
    sources: list[tuple[QuerySet[Any], Mapping[str, Any], Any, Any]] = [
        (UsageChargeRow.objects.filter(within), _USE, Sum("charged_nanos"), Sum("gpu_millis")),
        (StorageChargeRow.objects.filter(within), _STORAGE, Sum("charged_nanos"), None),
        (_others(within), _OTHER, -Sum("nanos"), None),
    ]
    for rows, columns, nanos, millis in sources:
        yield from _parts(_chosen(rows, columns, only), columns, nanos, millis, by, accounts)


def _others(within: Q) -> QuerySet[PostingRow]:
    kinds = [kind for kind in COST_KINDS if kind not in ("usage", "storage")]
    return PostingRow.objects.filter(within, kind__in=kinds)


def _accounts(actor: Actor, only: Mapping[str, str]) -> QuerySet[AccountRow]:
    rows = paying_accounts(actor)
    for name, column in OF_ACCOUNTS.items():
        if name in only:
            rows = _with_id(rows, column, only[name])
    return rows


def _with_id(rows: QuerySet[Any], column: str, key: str) -> QuerySet[Any]:
    try:
        return rows.filter(**{column: UUID(key) if key else None})
    except ValueError:
        return rows.none()


def _chosen(
    rows: QuerySet[Any], columns: Mapping[str, Any], only: Mapping[str, str]
) -> QuerySet[Any]:
    for name, key in only.items():
        if name in OF_ACCOUNTS:
            continue
        column = columns[name]
        if isinstance(column, Value):
            rows = rows if column.value == key else rows.none()
        elif name == "lease":
            rows = _with_id(rows, "lease_id", key)
        else:
            rows = rows.alias(wanted=Cast(column, CharField())).filter(wanted=key)
    return rows


def _parts(
    rows: QuerySet[Any],
    columns: Mapping[str, Any],
    nanos: Any,
    millis: Any,
    by: Sequence[str],
    accounts: Mapping[UUID, AccountRow],
) -> Iterator[CostPart]:
    told = [name for name in by if name not in OF_ACCOUNTS]
    if "day" in told:
        told.append("month")
    named = {_named(name): columns[name] for name in told}
    grouped = (
        rows.annotate(**named)
        .values("account_id", "currency", *named)
        .annotate(cost=nanos, many=Count("*"), **({"use": millis} if millis is not None else {}))
        .order_by()
    )
    for row in grouped.iterator():
        account = accounts[row["account_id"]]
        keys = [
            getattr(account, OF_ACCOUNTS[name])
            if name in OF_ACCOUNTS
            else _day(row)
            if name == "day"
            else row[_named(name)]
            for name in by
        ]
        yield CostPart(
            keys=tuple("" if key is None else str(key) for key in keys),
            currency=row["currency"],
            nanos=int(row["cost"]),
            gpu_millis=int(row.get("use") or 0),
            entries=row["many"],
        )


def _named(name: str) -> str:
    return f"by_{name.replace('-', '_')}"


def _day(row: Mapping[str, Any]) -> str:
    """Return the day on which something counts: of late use the first of the month it counts in."""
    day, month = str(row["by_day"]), str(row["by_month"])
    return day if day.startswith(month) else f"{month}-01"


def accounts_of(actor: Actor, only: Mapping[str, str]) -> Collection[UUID]:
    """Return the accounts that pay of a tenant or a unit, or the one account that is named."""
    return list(_accounts(actor, only).values_list("account_id", flat=True))
