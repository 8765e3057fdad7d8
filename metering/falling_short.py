"""Ends leases that a host cannot begin as they were granted, once its agent says less of itself.

An agent that is started with less by mistake is soon started again: what begins later than
`SOON` waits so long for that. Of what begins before, the work gets elsewhere sooner.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from ledger.domain.ids import HostId
from ledger.eventstore.port import EventStore, Meta
from listings.queries.watched import HostHealth
from marketplace.commands.losses import end_if_falling_short
from marketplace.queries.on_hosts import leases_to_begin_on

SOON = timedelta(minutes=10)
FAR = timedelta(days=366)

log = structlog.get_logger()


@dataclass(slots=True)
class Saying:
    """What an agent says since when, and whether all leases were looked at for that."""

    says: tuple[str, ...]
    since: datetime
    is_settled: bool = False


def end_what_falls_short(
    store: EventStore, host: HostHealth, known: Saying | None, *, by: Meta, now: datetime
) -> tuple[Saying, int]:
    """Look at what is to begin on a host, when its agent says something else, and once more later.

    known: as this returned it before; None: nobody looked. Returns: how many leases ended, too.
    """
    if known is None or known.says != host.says:
        known, until = Saying(host.says, now), now + SOON
    elif not known.is_settled and now - known.since >= SOON:
        known.is_settled, until = True, now + FAR
    else:
        return known, 0
    ended, host_id = 0, HostId(host.host_id)
    for lease_id in leases_to_begin_on(host.host_id, until=until):
        lacked = end_if_falling_short(store, lease_id=lease_id, host_id=host_id, by=by, now=now)
        if lacked is not None:
            log.warning("lease.falls-short", lease=str(lease_id), host=str(host_id), lacks=lacked)
            ended += 1
    return known, ended
