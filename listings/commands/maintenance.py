"""Maintenance windows of hosts: announced, moved, cancelled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from ledger.domain.event import Event
from ledger.domain.ids import HostId, MaintenanceId
from ledger.domain.span import Window
from ledger.eventstore.port import EventStore, Meta, Position, record
from listings.domain import maintenance
from listings.domain.hosts import GpuNotOnHost, Host, HostIsRetired, HostUnknown


def announce_maintenance(
    store: EventStore,
    *,
    host_id: HostId,
    maintenance_id: MaintenanceId,
    window: Window,
    gpu_uuids: Sequence[str] = (),
    reason: str,
    by: Meta,
    now: datetime,
) -> Position:
    """Lease nothing of a host, or of some of its GPUs, into a window; empty: the whole host.

    Raises: HostUnknown, HostIsRetired, GpuNotOnHost, and the refusals of `maintenance.announce`.
    """

    def rule(host: Host) -> Sequence[Event]:
        missing = [uuid for uuid in gpu_uuids if uuid not in host.gpus]
        if missing:
            raise GpuNotOnHost(gpu_uuids=missing)
        return maintenance.announce(
            host.maintenance,
            host_id=host_id,
            maintenance_id=maintenance_id,
            window=window,
            gpu_uuids=gpu_uuids,
            reason=reason,
            now=now,
        )

    return _decide(store, host_id, rule, by)


def move_maintenance(
    store: EventStore,
    *,
    host_id: HostId,
    maintenance_id: MaintenanceId,
    window: Window,
    by: Meta,
    now: datetime,
) -> Position:
    """Have a window at another time.

    Raises: HostUnknown, HostIsRetired, and the refusals of `maintenance.move`.
    """
    return _decide(
        store,
        host_id,
        lambda host: maintenance.move(host.maintenance, maintenance_id, window, now=now),
        by,
    )


def cancel_maintenance(
    store: EventStore, *, host_id: HostId, maintenance_id: MaintenanceId, by: Meta, now: datetime
) -> Position:
    """Have no maintenance after all, or end it now.

    Raises: HostUnknown, HostIsRetired, MaintenanceUnknown.
    """
    return _decide(
        store,
        host_id,
        lambda host: maintenance.cancel(host.maintenance, maintenance_id, now=now),
        by,
    )


def _decide(
    store: EventStore, host_id: HostId, rule: Callable[[Host], Sequence[Event]], by: Meta
) -> Position:
    def decide(host: Host | None) -> Sequence[Event]:
        if host is None or by.tenant_id not in (None, host.registered.tenant_id):
            raise HostUnknown(host_id=str(host_id))
        if host.is_retired:
            raise HostIsRetired(host_id=str(host_id))
        return rule(host)

    return record(store, Host, host_id, decide, by=by)
