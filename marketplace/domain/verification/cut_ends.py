"""When the leases end that a round cuts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from ledger.domain.ids import LeaseId
from marketplace.domain.facts.events import LeaseGranted


def ends_of(grants: Sequence[LeaseGranted]) -> dict[LeaseId, datetime]:
    """Return when the leases end that a round cuts."""
    return {cut.lease_id: cut.ends_at for granted in grants for cut in granted.cuts}
