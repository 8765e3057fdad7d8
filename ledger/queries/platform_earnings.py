"""What the platform keeps by month: fees, storage, and the margin of rented capacity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Q, QuerySet, Sum

from ledger.domain.periods import Period
from ledger.models import AccountRow, PostingRow, StorageChargeRow, UsageChargeRow


@dataclass(slots=True, kw_only=True)
class Kept:
    """A month of the platform in one currency, in nano-units.

    burst_nanos: what consumers paid for capacity that was rented, fees included. cost_nanos: what
    clouds charged. Both are of the month that they count in.
    """

    period: str
    currency: str
    fee_nanos: int = 0
    storage_nanos: int = 0
    burst_nanos: int = 0
    cost_nanos: int = 0

    @property
    def margin_nanos(self) -> int:
        """Return what is left of rented capacity."""
        return self.burst_nanos - self.cost_nanos


def kept_by_platform(periods: Sequence[Period]) -> list[Kept]:
    """Return what the platform kept in each of these months, the newest first."""
    found: dict[tuple[str, str], Kept] = {}

    def of(row: dict[str, Any]) -> Kept:
        key = row["period"], row["currency"]
        return found.setdefault(key, Kept(period=row["period"], currency=row["currency"]))

    months = [str(each) for each in periods]
    used = UsageChargeRow.objects.filter(period__in=months)
    for row in _by_month(used).annotate(
        fee=Sum("fee_nanos"), burst=Sum("charged_nanos", filter=~Q(provider=""))
    ):
        of(row).fee_nanos = int(row["fee"] or 0)
        of(row).burst_nanos = int(row["burst"] or 0)
    for row in _by_month(StorageChargeRow.objects.filter(period__in=months)).annotate(
        charged=Sum("charged_nanos")
    ):
        of(row).storage_nanos = int(row["charged"] or 0)
    burst = AccountRow.objects.filter(kind="burst").values("account_id")
    costs = PostingRow.objects.filter(account_id__in=burst, period__in=months, kind="cost")
    for row in _by_month(costs).annotate(sum=Sum("nanos")):
        of(row).cost_nanos = -int(row["sum"] or 0)
    return sorted(found.values(), key=lambda each: (each.period, each.currency), reverse=True)


def _by_month(rows: QuerySet[Any]) -> Any:
    return rows.order_by().values("period", "currency")
