"""What accounts can still set aside, and which of them are watched because it gets little."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from ledger.domain.ids import AccountId
from ledger.models import AccountRow


def left_on(account_ids: Collection[AccountId | UUID]) -> dict[AccountId, int | None]:
    """Return what these accounts can still set aside, in nano-units; None: without limit.

    Below zero where more is set aside than is there.
    """
    rows = AccountRow.objects.filter(account_id__in=account_ids)
    return {
        AccountId(pk): None if overdraft is None else available + overdraft
        for pk, available, overdraft in rows.values_list("pk", "available_nanos", "overdraft_nanos")
    }
