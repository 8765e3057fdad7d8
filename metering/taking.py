"""Carries out what an owner's switch says of the leases that run on a host.

By what the rows say now, and not by the moment at which the switch was turned: so a lease that was
just being granted is taken back as well, and whoever is killed in the middle is followed by one
that does the rest.
"""

from __future__ import annotations

from datetime import datetime

import structlog

from ledger.domain.ids import HostId
from ledger.domain.refusal import Refusal
from ledger.eventstore.port import EventStore, Meta
from listings.queries.watched import HostHealth
from marketplace.commands.leases import reclaim_lease, take_lease_at_once
from marketplace.queries.on_hosts import to_be_taken_from

log = structlog.get_logger()


def take_back(store: EventStore, host: HostHealth, *, by: Meta, now: datetime) -> int:
    """Reclaim what runs on a host that is drained, with its notice; of one released, at once.

    Returns: of how many leases that was decided.
    """
    at_once = "released" in host.takings
    if not at_once and "draining" not in host.takings:
        return 0
    taken, host_id = 0, HostId(host.host_id)
    for lease_id, owner_id in to_be_taken_from(host.host_id, now=now, at_once=at_once):
        try:
            if at_once:
                take_lease_at_once(store, lease_id=lease_id, host_id=host_id, by=by, now=now)
            else:
                reclaim_lease(store, lease_id=lease_id, owner_id=owner_id, by=by, now=now)
        except Refusal as refusal:
            # It ends by itself before its notice is over, or cannot be reclaimed: it runs out.
            log.info("lease.not-taken", lease=str(lease_id), code=refusal.code)
            continue
        taken += 1
        log.warning("lease.taken-by-owner", lease=str(lease_id), host=str(host_id))
    return taken
