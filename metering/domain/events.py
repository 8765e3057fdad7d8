"""Every fact of use. Samples are rows; only what is rated becomes an event."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from ledger.domain.event import Event
from ledger.domain.ids import HostId, LeaseId, TenantId
from ledger.domain.span import Window


@dataclass(frozen=True, slots=True)
class GpuUse:
    """What one GPU did for a lease in a usage window, in milliseconds.

    granted: handed to the lease. occupied: a process of the lease on it. busy: kernels running.
    occupied and busy are None where the GPU could not tell: unknown is never zero.
    gap: part of the window that no sample covers. energy_mj: the lease's part of what the card
    took, in millijoules; information, never charged; None where it is not known.
    """

    gpu_uuid: str
    host_id: HostId
    owner_id: TenantId
    granted_ms: int
    occupied_ms: int | None
    busy_ms: int | None
    gap_ms: int
    energy_mj: int | None = None


class MeterOpened(Event, name="metering.meter-opened"):
    """A lease is measured from here on."""

    lease_id: LeaseId
    window: Window
    gpus: int
    at: datetime


class UsageWindowClosed(Event, name="metering.usage-window-closed", version=2, grown_from=1):
    """All samples of a lease's usage window are in: this is what is rated.

    window: clipped at the hour (or the configured length) and at the lease's own span.
    """

    lease_id: LeaseId
    window: Window
    gpus: tuple[GpuUse, ...]
    at: datetime


class MeterGapFound(Event, name="metering.meter-gap-found"):
    """No proof of use for a span of a lease: it is not charged."""

    lease_id: LeaseId
    gpu_uuid: str
    window: Window
    at: datetime


@dataclass(frozen=True, slots=True)
class GpuGap:
    """A span without proof of use on one GPU."""

    gpu_uuid: str
    window: Window


class UsageCorrected(Event, name="metering.usage-corrected", version=3, grown_from=1):
    """More use of a span was proved after it was rated: `gpus` is what is added to it.

    number: counts up over the lease's corrections. reason: `platform-away`, the market was away
    while its samples were waited for; `out-of-order`, they came in another order than they were
    taken; `host-late`, they came after their time; `too-late`, so late that it is only noted and
    not charged. gaps: what is still without proof on these GPUs, in place of the gaps found before;
    None: they were not told apart.
    """

    lease_id: LeaseId
    number: int
    window: Window
    reason: str
    gpus: tuple[GpuUse, ...]
    at: datetime
    gaps: tuple[GpuGap, ...] | None = None


class MeterClosed(Event, name="metering.meter-closed"):
    """The lease is over and all its use is rated."""

    lease_id: LeaseId
    granted_ms: int
    at: datetime


MeterEvent = MeterOpened | UsageWindowClosed | MeterGapFound | UsageCorrected | MeterClosed
