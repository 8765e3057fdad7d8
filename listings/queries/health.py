"""The health history of hosts, as its rows tell it."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from django.db.models import QuerySet

from ledger.access import Actor, visible
from listings.models import HealthSpanRow, HostRow
from listings.queries import host as host_of

__all__ = ["HostRow", "history", "last_failures"]

LAST_MAX = 500


def history(actor: Actor, host_id: UUID, *, since: datetime) -> QuerySet[HealthSpanRow]:
    """Return what was the matter with a host that `actor` may see, and with its GPUs, newest first.

    Raises: HostUnknown.
    """
    host_of(actor, host_id)
    rows = visible(actor, HealthSpanRow).filter(host_id=host_id, since__gte=since)
    return rows.order_by("-since", "key")


def last_failures(host_id: UUID, gpu_uuids: Collection[str]) -> dict[str, tuple[datetime, str]]:
    """Return of each of these GPUs its last diagnostic that failed: when, and in whose words."""
    rows = HealthSpanRow.objects.filter(
        host_id=host_id, kind="diagnostic-failed", gpu_uuid__in=gpu_uuids
    )
    found: dict[str, tuple[datetime, str]] = {}
    for row in rows.order_by("-since", "key")[:LAST_MAX]:
        found.setdefault(row.gpu_uuid, (row.since, row.words))
    return found
