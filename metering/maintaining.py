"""Tells leases of maintenance of their hosts, and takes back what would run into it, in time.

By what the rows say now, as of an owner's switch (`taking`): so a lease that was just being granted
when a window was announced is told as well, and whoever is killed in the middle is followed by one
that does the rest.
"""

from __future__ import annotations

from datetime import datetime

import structlog

from ledger.domain.ids import HostId, MaintenanceId
from ledger.eventstore.port import EventStore, Meta
from listings.queries.watched import HostHealth, Planned
from marketplace.commands.maintenance import (
    end_for_maintenance,
    tell_of_maintenance,
    tell_of_no_maintenance,
)
from marketplace.domain.leases.maintenance import AHEAD
from marketplace.queries.on_hosts import OnHost, leases_of_host
from metering.queries.faults import is_part

log = structlog.get_logger()


def maintain(
    store: EventStore, host: HostHealth, told: bool, *, by: Meta, now: datetime
) -> tuple[bool, int]:
    """Look at the leases of a host that has windows, or had some that leases are told of.

    told: as this returned it before: leases may be told of windows. Returns: that, and how much
    was decided.
    """
    planned = [each for each in host.maintenance if each.window.ends_at > now]
    if not planned and not told:
        return False, 0
    decided, still = 0, False
    for lease in leases_of_host(host.host_id):
        wanted = {each.maintenance_id: each for each in planned if _meets(host, each, lease)}
        for key in lease.told.keys() - wanted.keys():
            tell_of_no_maintenance(
                store,
                lease_id=lease.lease_id,
                host_id=HostId(host.host_id),
                maintenance_id=MaintenanceId(key),
                by=by,
                now=now,
            )
            decided += 1
        for each in wanted.values():
            still = True
            decided += _tell(store, host, lease, each, by=by, now=now)
    return still or bool(planned), decided


def _tell(
    store: EventStore, host: HostHealth, lease: OnHost, each: Planned, *, by: Meta, now: datetime
) -> int:
    starts_at, host_id, decided = each.window.starts_at, HostId(host.host_id), 0
    if lease.told.get(each.maintenance_id) != starts_at:
        tell_of_maintenance(
            store,
            lease_id=lease.lease_id,
            host_id=host_id,
            maintenance_id=each.maintenance_id,
            starts_at=starts_at,
            reason=each.reason,
            by=by,
            now=now,
        )
        log.warning("lease.maintenance", lease=str(lease.lease_id), starts_at=starts_at)
        decided += 1
    if lease.stops_at > starts_at and now >= starts_at - lease.notice - AHEAD:
        end_for_maintenance(
            store,
            lease_id=lease.lease_id,
            host_id=host_id,
            maintenance_id=each.maintenance_id,
            by=by,
            now=now,
        )
        decided += 1
    return decided


def _meets(host: HostHealth, each: Planned, lease: OnHost) -> bool:
    """Tell if a lease would run into a window, on a GPU that is in maintenance then."""
    in_time = lease.starts_at < each.window.ends_at and each.window.starts_at < lease.runs_until
    return in_time and (
        not each.gpu_uuids
        or any(is_part(host, uuid, of) for uuid in lease.gpu_uuids for of in each.gpu_uuids)
    )
