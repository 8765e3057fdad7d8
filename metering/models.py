"""Tables of use: what agents sent, exactly once, and the read models made of its events.

`Interval`, `Taken`, `OldPart`, `HealthEvent`, `WorkReport`, `AgentContact`, `Watermark`, `Cutoff`,
`LateUse`, `Beat`, `OutageRow`, `IngestAlarm`, `AgentTunnel`, `LeaseDoor`, `Heartbeat`,
`MetersCompared` hold what arrives in volume; `metering.ingest`, the closing loop and the comparison
of meters write them. The rest are read models that `projections` alone writes.
"""

from __future__ import annotations

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models

from metering.day_rows import DayRow as DayRow
from metering.day_rows import SummedLease as SummedLease
from metering.heartbeat_rows import Heartbeat as Heartbeat
from metering.heartbeat_rows import MetersCompared as MetersCompared


class Interval(models.Model):
    """What one GPU did for one lease in [start_ms, end_ms), as an agent sent it. Append-only.

    Its table is divided by `end_ms`, into a part for each day (`metering.parts`); that none comes
    twice keeps `Taken`.
    late_ms: how much of its beginning lay in a usage window that was closed when it came.
    """

    pk = models.CompositePrimaryKey("host_id", "boot_id", "seq")
    host_id = models.UUIDField()
    boot_id = models.UUIDField()
    seq = models.BigIntegerField()
    lease_id = models.UUIDField()
    gpu_uuid = models.CharField(max_length=200)
    start_ms = models.BigIntegerField()
    end_ms = models.BigIntegerField()
    occupied_ms = models.BigIntegerField(null=True)
    busy_ms = models.BigIntegerField(null=True)
    memory_used_mib = models.BigIntegerField(null=True)
    cpu_ms = models.BigIntegerField(null=True)
    io_bytes = models.BigIntegerField(null=True)
    net_bytes = models.BigIntegerField(null=True)
    energy_mj = models.BigIntegerField(null=True)
    late_ms = models.BigIntegerField()
    received_at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["lease_id", "end_ms"], name="interval_by_lease")]

    def __str__(self) -> str:
        return f"{self.gpu_uuid} [{self.start_ms}, {self.end_ms})"


class Taken(models.Model):
    """Which numbers of samples were taken of one run of an agent.

    spans: from, to, from, to, …; `metering.domain.numbers` reads and extends them. Its row is
    locked while samples of that run are put in, so that no number is taken twice.
    """

    pk = models.CompositePrimaryKey("host_id", "boot_id")
    host_id = models.UUIDField()
    boot_id = models.UUIDField()
    spans = ArrayField(models.BigIntegerField())

    def __str__(self) -> str:
        return f"{self.host_id} {self.boot_id} {self.spans}"


class OldPart(models.Model):
    """A part of the table of intervals that is to be dropped, and since when it is due.

    It is dropped a day later: a clock that was wrong for a moment drops nothing.
    """

    name = models.CharField(max_length=63, primary_key=True)
    since = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.name} since {self.since}"


class HealthEvent(models.Model):
    """What an agent said of a GPU, or of the driver where no GPU is named."""

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    pk = models.CompositePrimaryKey("host_id", "boot_id", "seq")
    host_id = models.UUIDField()
    boot_id = models.UUIDField()
    seq = models.BigIntegerField()
    tenant_id = models.UUIDField()
    gpu_uuid = models.CharField(max_length=200, null=True)  # noqa: DJ001  # the driver has none
    kind = models.CharField(max_length=20)
    at = models.DateTimeField()
    detail = models.CharField(max_length=2000)
    received_at = models.DateTimeField()

    class Meta:
        indexes = [
            models.Index(fields=["host_id", "-received_at"], name="health_by_host"),
            models.Index(fields=["received_at"], name="health_by_receipt"),
        ]

    def __str__(self) -> str:
        return f"{self.host_id} {self.kind}"


class WorkReport(models.Model):
    """What an agent said became of a lease's work. Two hosts of a lease may use one report id."""

    pk = models.CompositePrimaryKey("host_id", "report_id")
    host_id = models.UUIDField()
    report_id = models.UUIDField()
    lease_id = models.UUIDField(db_index=True)
    what = models.CharField(max_length=8)
    at = models.DateTimeField()
    exit_code = models.SmallIntegerField(null=True)
    detail = models.CharField(max_length=2000)
    received_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.lease_id} {self.what}"


class AgentContact(models.Model):
    """When a host's agent was last heard, on the server's clock, and what it said of itself."""

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    host_id = models.UUIDField(primary_key=True)
    tenant_id = models.UUIDField(db_index=True)
    agent_version = models.CharField(max_length=200)
    hostname = models.CharField(max_length=200)
    boot_id = models.UUIDField(null=True)
    registered_at = models.DateTimeField(null=True)
    last_seen_at = models.DateTimeField()
    heard_since = models.DateTimeField(null=True)
    """Since when it has been heard without a long pause; null: since before this was noted."""
    measures = models.JSONField(default=dict, db_default={})
    """By GPU how it says that busy time is measured, and whether energy is: {busy_by, energy}."""

    def __str__(self) -> str:
        return f"{self.hostname} {self.last_seen_at}"


class AgentTunnel(models.Model):
    """The tunnel that a host's agent holds open, and which of our processes has its end.

    Who serves writes it, when a tunnel opens, changes and ends. allowed: by its owner, `ports` or
    `shell`. address: where other processes of ours reach the one that has it.
    """

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    host_id = models.UUIDField(primary_key=True)
    tenant_id = models.UUIDField()
    holder = models.UUIDField()
    address = models.CharField(max_length=300)
    allowed = models.CharField(max_length=8)
    connected_at = models.DateTimeField()
    connections = models.JSONField(default=dict)
    """How many are open into which lease, by its id, as of a few seconds ago."""

    def __str__(self) -> str:
        return f"{self.host_id} {self.allowed}"


class LeaseDoor(models.Model):
    """The public key by which the work of a lease on a host proves itself to a shell's client."""

    pk = models.CompositePrimaryKey("lease_id", "host_id")
    lease_id = models.UUIDField()
    host_id = models.UUIDField()
    host_key = models.CharField(max_length=500)
    told_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.lease_id} on {self.host_id}"


class Watermark(models.Model):
    """End of the latest interval of one GPU of one lease."""

    pk = models.CompositePrimaryKey("lease_id", "host_id", "gpu_uuid")
    lease_id = models.UUIDField()
    host_id = models.UUIDField()
    gpu_uuid = models.CharField(max_length=200)
    seen_ms = models.BigIntegerField()

    def __str__(self) -> str:
        return f"{self.lease_id} {self.gpu_uuid} {self.seen_ms}"


class Cutoff(models.Model):
    """Up to when a lease's usage windows are closed: what comes for before that is late.

    Taken `FOR SHARE` while intervals are put in and moved on before a window is added up, so that
    an interval is either among those that are added up or marked late, and never neither.
    """

    lease_id = models.UUIDField(primary_key=True)
    through_ms = models.BigIntegerField()

    def __str__(self) -> str:
        return f"{self.lease_id} {self.through_ms}"


class LateUse(models.Model):
    """Use that came after its windows were closed, and is not yet looked at: one span a lease.

    arrived_at: when the first of it came. arrivals: counts up, so that what comes while the span
    is looked at is not forgotten with it.
    """

    lease_id = models.UUIDField(primary_key=True)
    start_ms = models.BigIntegerField()
    end_ms = models.BigIntegerField()
    arrived_at = models.DateTimeField()
    arrivals = models.BigIntegerField()

    def __str__(self) -> str:
        return f"{self.lease_id} [{self.start_ms}, {self.end_ms})"


class Beat(models.Model):
    """When a kind of process, all of its instances together, was last known to be at work."""

    name = models.CharField(max_length=20, primary_key=True)
    at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.name} {self.at}"


class OutageRow(models.Model):
    """A time in which no process of a kind was at work. Append-only."""

    name = models.CharField(max_length=20)
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return f"{self.name} [{self.starts_at}, {self.ends_at})"


class IngestAlarm(models.Model):
    """Something an agent sent that should never be: looked at by people."""

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    host_id = models.UUIDField()
    tenant_id = models.UUIDField(db_index=True)
    code = models.CharField(max_length=64)
    details = models.JSONField()
    at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.host_id} {self.code}"


class MeterRow(models.Model):
    """The meter of one lease."""

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id", "owner_ids__contains")

    lease_id = models.UUIDField(primary_key=True)
    tenant_id = models.UUIDField(db_index=True)
    owner_ids = ArrayField(models.UUIDField())
    shares = models.JSONField()
    """[{host_id, owner_id, gpu_uuids}], one for each host and owner."""
    gpus = models.PositiveIntegerField()
    price_nanos_per_gpu_hour = models.BigIntegerField()
    currency = models.CharField(max_length=3)
    later_prices = models.JSONField(default=list, db_default=[])
    """What was agreed since it was granted, in order: since_ms, nanos (per GPU-hour)."""
    starts_ms = models.BigIntegerField()
    ends_ms = models.BigIntegerField()
    """When the right to the GPUs ends, as far as it is known: the window's end, or sooner."""
    over_ms = models.BigIntegerField(null=True)
    """When the right ended of a lease that is over; null: it is not."""
    ever_starting = models.BooleanField()
    closed_through_ms = models.BigIntegerField()
    """End of the last closed window; the lease's start before there is one."""
    granted_ms = models.BigIntegerField()
    captured_nanos = models.BigIntegerField()
    state = models.CharField(max_length=8)
    """`due` before the meter is opened, `open`, `closed`."""

    class Meta:
        indexes = [models.Index(fields=["state", "closed_through_ms"], name="meter_by_state")]

    def __str__(self) -> str:
        return f"{self.lease_id} {self.state}"


class UsageRow(models.Model):
    """One closed usage window of a lease: the part of one owner."""

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id", "owner_id")

    key = models.CharField(max_length=110, primary_key=True)
    lease_id = models.UUIDField()
    tenant_id = models.UUIDField()
    owner_id = models.UUIDField()
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    gpus = models.JSONField()
    """[{gpu_uuid, host_id, granted_ms, occupied_ms, busy_ms, gap_ms, energy_mj}]"""
    granted_ms = models.BigIntegerField()
    occupied_ms = models.BigIntegerField(null=True)
    busy_ms = models.BigIntegerField(null=True)
    energy_mj = models.BigIntegerField(null=True)
    gap_ms = models.BigIntegerField()
    is_captured = models.BooleanField()
    """Whether the ledger has charged the window."""

    class Meta:
        indexes = [
            models.Index(fields=["lease_id", "starts_at"], name="usage_by_lease"),
            models.Index(fields=["is_captured", "ends_at"], name="usage_by_captured"),
        ]

    def __str__(self) -> str:
        return self.key


class GapRow(models.Model):
    """A span of a lease without proof of use on one GPU."""

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id", "owner_id")

    key = models.CharField(max_length=260, primary_key=True)
    lease_id = models.UUIDField(db_index=True)
    tenant_id = models.UUIDField()
    owner_id = models.UUIDField()
    gpu_uuid = models.CharField(max_length=200)
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.key


class CorrectionRow(models.Model):
    """Use that was proved after its window was rated, and why it came late: the part of one owner.

    is_captured: the ledger has charged it, or it is not to be charged (reason `too-late`).
    """

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id", "owner_id")

    key = models.CharField(max_length=110, primary_key=True)
    lease_id = models.UUIDField(db_index=True)
    tenant_id = models.UUIDField()
    owner_id = models.UUIDField()
    number = models.PositiveIntegerField()
    reason = models.CharField(max_length=16)
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    granted_ms = models.BigIntegerField()
    occupied_ms = models.BigIntegerField(null=True)
    busy_ms = models.BigIntegerField(null=True)
    energy_mj = models.BigIntegerField(null=True)
    gap_ms = models.BigIntegerField()
    is_captured = models.BooleanField()
    at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["is_captured", "at"], name="correction_by_captured")]

    def __str__(self) -> str:
        return self.key


class HeatRow(models.Model):
    """What the leased GPUs of a host did in one UTC hour.

    occupied_ms and busy_ms add up what is known; occupied_of_ms and busy_of_ms are the granted
    time of which it is known, so that a share never counts the unknown as idle. The time of a
    share of a card counts by its part of the compute, so that cards are what is added up.
    """

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("owner_id",)

    key = models.CharField(max_length=80, primary_key=True)
    host_id = models.UUIDField(db_index=True)
    owner_id = models.UUIDField()
    hour = models.DateTimeField()
    granted_ms = models.BigIntegerField()
    occupied_ms = models.BigIntegerField()
    occupied_of_ms = models.BigIntegerField()
    busy_ms = models.BigIntegerField()
    busy_of_ms = models.BigIntegerField()
    gap_ms = models.BigIntegerField()

    class Meta:
        indexes = [models.Index(fields=["owner_id", "hour"], name="heat_by_owner")]

    def __str__(self) -> str:
        return self.key


class IdleRuleRow(models.Model):
    """When leases of a bid or a tenant are released for idleness. terms: null: never."""

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    rule_id = models.UUIDField(primary_key=True)
    of = models.CharField(max_length=6)
    tenant_id = models.UUIDField()
    terms = models.JSONField(null=True)
    set_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.of} {self.rule_id}"


class IdleRow(models.Model):
    """What was told of one lease's idleness. release_at: of the warning that holds."""

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    lease_id = models.UUIDField(primary_key=True)
    tenant_id = models.UUIDField()
    since = models.DateTimeField(null=True)
    warned_at = models.DateTimeField(null=True)
    release_at = models.DateTimeField(null=True)
    kept_at = models.DateTimeField(null=True)
    released_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.lease_id} idle"
