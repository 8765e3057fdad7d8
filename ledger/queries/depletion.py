"""What accounts can still set aside, and what their people were told of that."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Sum

from ledger.domain.accounts import PAYING_KINDS
from ledger.domain.ids import AccountId
from ledger.models import AccountRow, AccountWatchRow, ReceivableRow, StorageChargeRow
from ledger.turns import behind

A_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Watched:
    """An account that pays for use. left_nanos: None: without limit. there_nanos: what was left
    when money last came in. level, depletes: what its people were told."""

    account_id: AccountId
    tenant_id: UUID
    title: str
    currency: str
    left_nanos: int | None
    there_nanos: int
    level: int
    depletes: bool


def left_on(account_ids: Collection[AccountId | UUID]) -> dict[AccountId, int | None]:
    """Return what these accounts can still set aside, in nano-units; None: without limit.

    Below zero where more is set aside than is there; nothing where an invoice that is overdue keeps
    new bids away.
    """
    rows = AccountRow.objects.filter(account_id__in=account_ids)
    blocked = ReceivableRow.objects.filter(account_id__in=account_ids, blocked=True)
    stopped = set(blocked.values_list("account_id", flat=True))
    return {AccountId(row.pk): 0 if row.pk in stopped else _left(row) for row in rows}


def too_far_below() -> list[AccountId]:
    """Return the accounts that are further below zero than they may be: banks took money back."""
    rows = AccountRow.objects.filter(short_nanos__gt=0).order_by("account_id")
    return [AccountId(pk) for pk in rows.values_list("account_id", flat=True)]


def _left(row: AccountRow) -> int | None:
    return None if row.overdraft_nanos is None else row.available_nanos + row.overdraft_nanos


def watched(account_ids: Collection[AccountId | UUID]) -> list[Watched]:
    """Return those of these accounts that pay for use, by their id."""
    rows = AccountRow.objects.filter(account_id__in=account_ids, kind__in=PAYING_KINDS)
    told = AccountWatchRow.objects.in_bulk([row.pk for row in rows])
    found = []
    for row in sorted(rows, key=lambda row: row.account_id):
        left, known = _left(row), told.get(row.pk)
        assert row.tenant_id is not None, "it pays, so it is open"
        found.append(
            Watched(
                account_id=AccountId(row.pk),
                tenant_id=row.tenant_id,
                title=row.title,
                currency=row.currency,
                left_nanos=left,
                there_nanos=(left or 0) if known is None else known.there_nanos,
                level=0 if known is None else known.level,
                depletes=known is not None and known.depletes,
            )
        )
    return found


def accounts_to_watch(after: tuple[UUID] | None, limit: int) -> list[tuple[UUID]]:
    """Return the keys of the accounts that pay for use and have a limit, in order."""
    rows = AccountRow.objects.filter(
        behind(after, "account_id"), kind__in=PAYING_KINDS, overdraft_nanos__isnull=False
    )
    return [(pk,) for pk in rows.order_by("account_id").values_list("pk", flat=True)[:limit]]


def storage_of_a_day(
    account_ids: Collection[AccountId | UUID], *, now: datetime
) -> dict[AccountId, int]:
    """Return what each of these accounts was charged for storage in the last day, nano-units."""
    rows = StorageChargeRow.objects.filter(account_id__in=account_ids, ends_at__gt=now - A_DAY)
    summed = rows.order_by().values("account_id").annotate(sum=Sum("charged_nanos"))
    return {AccountId(each["account_id"]): int(each["sum"]) for each in summed}
