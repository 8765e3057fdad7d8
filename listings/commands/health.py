"""What is decided of a host because of how it does. Harmless when repeated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from ledger.domain.event import Event
from ledger.domain.ids import HostId
from ledger.eventstore.port import EventStore, Meta, Position, record
from listings.domain.events import GpuNote, UnfitReason
from listings.domain.hosts import Host, HostUnknown


def fall_silent(
    store: EventStore, *, host_id: HostId, heard_at: datetime, by: Meta, now: datetime
) -> Position:
    """Lease nothing of a host until it is heard again.

    heard_at: when its agent was heard last. Raises: HostUnknown.
    """
    return _decide(store, host_id, lambda host: host.fall_silent(heard_at=heard_at, now=now), by)


def come_back(store: EventStore, *, host_id: HostId, by: Meta, now: datetime) -> Position:
    """Lease what a host offers again.

    Raises: HostUnknown.
    """
    return _decide(store, host_id, lambda host: host.come_back(now=now), by)


def quarantine_gpu(
    store: EventStore,
    *,
    host_id: HostId,
    gpu_uuid: str,
    reason: UnfitReason,
    detail: str,
    by: Meta,
    now: datetime,
) -> Position:
    """Lease neither a GPU nor a part of it until it is released.

    Raises: HostUnknown.
    """
    return _decide(
        store,
        host_id,
        lambda host: host.quarantine(gpu_uuid, reason=reason, detail=detail, now=now),
        by,
    )


def release_gpu(
    store: EventStore, *, host_id: HostId, gpu_uuid: str, by: Meta, now: datetime
) -> Position:
    """Lease a GPU again.

    Raises: HostUnknown.
    """
    return _decide(store, host_id, lambda host: host.release(gpu_uuid, now=now), by)


def note_gpu(
    store: EventStore,
    *,
    host_id: HostId,
    gpu_uuid: str,
    note: GpuNote,
    detail: str,
    by: Meta,
    now: datetime,
) -> Position:
    """Put on record what is told of a GPU besides faults, where it is news.

    Raises: HostUnknown.
    """
    return _decide(
        store, host_id, lambda host: host.note(gpu_uuid, note, detail=detail, now=now), by
    )


def _decide(
    store: EventStore, host_id: HostId, rule: Callable[[Host], Sequence[Event]], by: Meta
) -> Position:
    def decide(host: Host | None) -> Sequence[Event]:
        if host is None:
            raise HostUnknown(host_id=str(host_id))
        return rule(host)

    return record(store, Host, host_id, decide, by=by)
