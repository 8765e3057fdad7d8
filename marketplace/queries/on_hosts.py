"""Which leases a host runs, or is to run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from ledger.domain.ids import LeaseId, TenantId
from marketplace.models.bids import BidRow
from marketplace.models.leases import LeaseRow, LeaseShareRow


def to_be_taken_from(
    host_id: UUID, *, now: datetime, at_once: bool
) -> list[tuple[LeaseId, TenantId]]:
    """Return the leases that run on a host and do not stop by themselves, each with its owner.

    at_once: also those that stop only later.
    """
    rows = LeaseShareRow.objects.filter(host_id=host_id, phase="run")
    if at_once:
        later = LeaseShareRow.objects.filter(host_id=host_id, phase="warn", stop_at__gt=now)
        rows = rows | later
    keys = rows.order_by("lease_id").values_list("lease_id", "owner_id")
    return [(LeaseId(lease_id), TenantId(owner_id)) for lease_id, owner_id in keys]


def leases_running_on(host_id: UUID) -> dict[LeaseId, tuple[str, ...]]:
    """Return the leases that a host's agent is to have running, in order, each with its GPUs."""
    rows = LeaseShareRow.objects.filter(host_id=host_id, phase__in=("run", "warn"))
    found: dict[LeaseId, tuple[str, ...]] = {}
    for lease_id, uuids in rows.order_by("lease_id").values_list("lease_id", "gpu_uuids"):
        found[LeaseId(lease_id)] = (*found.get(LeaseId(lease_id), ()), *uuids)
    return found


@dataclass(frozen=True, slots=True)
class OnHost:
    """A lease of a host that does not end yet. told: when maintenance of that host begins that it
    is told of. stops_at: when it ends as things stand; runs_until: as it was granted.
    """

    lease_id: LeaseId
    gpu_uuids: tuple[str, ...]
    starts_at: datetime
    stops_at: datetime
    runs_until: datetime
    notice: timedelta
    told: Mapping[UUID, datetime]


def leases_of_host(host_id: UUID) -> list[OnHost]:
    """Return the leases of a host that do not end yet, also those that are to begin."""
    shares = LeaseShareRow.objects.filter(host_id=host_id, phase__in=("wait", "run", "warn"))
    gpus: dict[UUID, tuple[str, ...]] = {}
    for lease_id, uuids in shares.order_by("key").values_list("lease_id", "gpu_uuids"):
        gpus[lease_id] = (*gpus.get(lease_id, ()), *uuids)
    return [
        OnHost(
            lease_id=LeaseId(row.lease_id),
            gpu_uuids=gpus[row.lease_id],
            starts_at=row.starts_at,
            stops_at=min(row.ends_at, row.stop_at or row.ends_at),
            runs_until=row.ends_at,
            notice=timedelta(seconds=row.notice_seconds),
            told={
                UUID(said["maintenance_id"]): datetime.fromisoformat(said["starts_at"])
                for said in row.maintenance.values()
                if said["host_id"] == str(host_id)
            },
        )
        for row in LeaseRow.objects.filter(lease_id__in=gpus).order_by("lease_id")
    ]


def leases_to_begin_on(host_id: UUID, *, until: datetime) -> list[LeaseId]:
    """Return the leases whose work has not begun anywhere and is to, on a host, by a moment."""
    rows = LeaseRow.objects.filter(state__in=("scheduled", "starting"), starts_at__lte=until)
    keys = rows.filter(host_ids__contains=[host_id]).order_by("lease_id")
    return [LeaseId(key) for key in keys.values_list("lease_id", flat=True)]


def leases_to_resume_off(host_id: UUID, *, until: datetime) -> list[LeaseId]:
    """Return the leases that are to begin on a host by a moment, and go on elsewhere if cut short.

    Those of bids that say `resume`: of another its consumer may rather wait for the host.
    """
    waiting = LeaseRow.objects.filter(state="scheduled", starts_at__lte=until)
    rows = waiting.filter(host_ids__contains=[host_id]).order_by("lease_id")
    bids = dict(rows.values_list("lease_id", "bid_id"))
    resuming = BidRow.objects.filter(bid_id__in=bids.values(), resume=True)
    wanted = set(resuming.values_list("bid_id", flat=True))
    return [LeaseId(lease_id) for lease_id, bid_id in bids.items() if bid_id in wanted]


def last_leases_of(host_id: UUID, gpu_uuid: str, *, limit: int) -> list[tuple[UUID, UUID]]:
    """Return the last leases that began on a GPU of a host, newest first, with their consumers."""
    rows = LeaseShareRow.objects.filter(host_id=host_id, gpu_uuids__contains=[gpu_uuid])
    began = rows.exclude(phase="wait").order_by("-starts_at", "-lease_id")
    return [*began.values_list("lease_id", "tenant_id")[:limit]]
