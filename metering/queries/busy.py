"""How busy leased GPUs were: granted time, and of the part that was measured how much was busy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Q, Sum

from ledger.access import Actor, visible
from metering.models import UsageRow


@dataclass(frozen=True, slots=True)
class Busy:
    """GPU-milliseconds. measured: the granted time of which it is known how busy it was."""

    granted_ms: int = 0
    measured_ms: int = 0
    busy_ms: int = 0

    def __add__(self, other: Busy) -> Busy:
        return Busy(
            self.granted_ms + other.granted_ms,
            self.measured_ms + other.measured_ms,
            self.busy_ms + other.busy_ms,
        )

    @property
    def idle_ms(self) -> int:
        """Return what was granted and not busy, of what was measured."""
        return max(0, self.measured_ms - self.busy_ms)

    @property
    def idle_ppm(self) -> int | None:
        """Return the idle share of what was measured, in millionths; None: nothing was."""
        return None if not self.measured_ms else self.idle_ms * 1_000_000 // self.measured_ms


def busy_by_lease(
    actor: Actor, lease_ids: Iterable[UUID], *, since: datetime, until: datetime
) -> dict[UUID, Busy]:
    """Return how busy the GPUs of leases were in windows that began in a span of time."""
    rows = visible(actor, UsageRow).filter(
        lease_id__in=list(lease_ids), starts_at__gte=since, starts_at__lt=until
    )
    known = Q(busy_ms__isnull=False)
    summed: Any = rows.values("lease_id").annotate(
        granted=Sum("granted_ms"),
        measured=Sum("granted_ms", filter=known),
        busy=Sum("busy_ms", filter=known),
    )
    return {
        each["lease_id"]: Busy(
            int(each["granted"] or 0), int(each["measured"] or 0), int(each["busy"] or 0)
        )
        for each in summed.order_by()
    }
