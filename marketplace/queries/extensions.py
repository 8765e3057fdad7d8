"""Which leases may have to be extended by themselves. Rows that lag cost a look too many."""

from __future__ import annotations

from datetime import datetime

from ledger.domain.ids import LeaseId
from ledger.turns import behind
from marketplace.domain.leases.renewals import LOOKED_AHEAD
from marketplace.models.bids import BidRow
from marketplace.models.leases import LeaseRow
from marketplace.queries.leases import FINAL


def leases_ending(
    after: tuple[datetime, LeaseId] | None, limit: int, *, now: datetime
) -> list[tuple[datetime, LeaseId]]:
    """Return leases that end soon and whose bid wants them to go on, the most urgent first.

    Each with when it ends; only those behind `after`.
    """
    wanted = BidRow.objects.filter(state="filled", auto_extend_until__gt=now).values("bid_id")
    rows = (
        LeaseRow.objects.filter(behind(after, "ends_at", "lease_id"))
        .filter(ends_at__gt=now, ends_at__lte=now + LOOKED_AHEAD, bid_id__in=wanted)
        .exclude(state__in=(*FINAL, "ending"))
        .order_by("ends_at", "lease_id")
    )
    keys = rows.values_list("ends_at", "lease_id")[:limit]
    return [(ends_at, LeaseId(lease_id)) for ends_at, lease_id in keys]
