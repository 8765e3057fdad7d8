"""The messages between an agent and the server. Both sides read and write them with this module.

Every call carries `Authorization: Bearer <host-bound agent token>`; paths are below.
Times are UTC; `_ms` is whole milliseconds since the Unix epoch or a length in milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Annotated, Literal
from uuid import UUID

from .strict import Between, Length, Message, WireError, dump, parse
from .wire_of_health import HealthKind
from .wire_of_hosts import Enforced, Measured
from .wire_of_tokens import TOKENS_FINAL
from .wire_of_work import (
    BATCH_MAX,
    INPUTS_PATH,
    LOG_BATCH_BYTES_MAX,
    LOG_PIECE_BYTES_MAX,
    LOG_PIECES_MAX,
    LOGS_PATH,
    OUTPUTS_FAILED_PATH,
    OUTPUTS_MISSING_PATH,
    OUTPUTS_PATH,
    SECRETS_PATH,
    VOLUME_FAILED_PATH,
    VOLUME_MISSING_PATH,
    VOLUME_READ_PATH,
    VOLUME_VERSIONS_PATH,
    Acknowledged,
    Blob,
    BlobBytes,
    Inputs,
    InputsAsked,
    Link,
    Links,
    LogBatch,
    LogOutcome,
    LogPiece,
    LogPieceTaken,
    LogsTaken,
    OutputsAsked,
    OutputsFailed,
    OutputsKept,
    OutputsSent,
    SecretName,
    SecretsAsked,
    SecretsSealed,
    Sha256,
    Source,
    Stream,
    VolumeAsked,
    VolumeKept,
    VolumeMount,
    VolumeName,
    VolumeRead,
    VolumeSent,
)

__all__ = [
    "BATCH_MAX",
    "INPUTS_PATH",
    "LOGS_PATH",
    "LOG_BATCH_BYTES_MAX",
    "LOG_PIECES_MAX",
    "LOG_PIECE_BYTES_MAX",
    "OUTPUTS_FAILED_PATH",
    "OUTPUTS_MISSING_PATH",
    "OUTPUTS_PATH",
    "SECRETS_PATH",
    "VOLUME_FAILED_PATH",
    "VOLUME_MISSING_PATH",
    "VOLUME_READ_PATH",
    "VOLUME_VERSIONS_PATH",
    "Acknowledged",
    "Assignment",
    "Assignments",
    "Blob",
    "BlobBytes",
    "Enforced",
    "Gpu",
    "Health",
    "HealthKind",
    "Inputs",
    "InputsAsked",
    "Interval",
    "Link",
    "Links",
    "LogBatch",
    "LogOutcome",
    "LogPiece",
    "LogPieceTaken",
    "LogsTaken",
    "Measured",
    "OutputsAsked",
    "OutputsFailed",
    "OutputsKept",
    "OutputsSent",
    "Phase",
    "Registered",
    "Registration",
    "Report",
    "ReportBatch",
    "ReportKind",
    "ReportsAccepted",
    "SampleBatch",
    "SecretName",
    "SecretsAsked",
    "SecretsSealed",
    "Sha256",
    "Stream",
    "Taking",
    "Unread",
    "VolumeAsked",
    "VolumeKept",
    "VolumeMount",
    "VolumeName",
    "VolumeRead",
    "VolumeSent",
    "WireError",
    "dump",
    "parse",
]

HOST_PATH = "/api/v1/agent/host"
ASSIGNMENTS_PATH = "/api/v1/agent/assignments"
REPORTS_PATH = "/api/v1/agent/reports"
SAMPLES_PATH = "/api/v1/agent/samples"
INTERVAL_MS_MAX = 32 * 24 * 3600 * 1000
"""One interval covers at most 32 days: a host whose disk is full merges its intervals."""

FINAL = frozenset(
    {
        "host-is-retired",
        "inputs-not-asked",
        "lease-not-here",
        "lease-not-to-run",
        "outputs-not-asked",
        "outputs-too-late",
        "report-conflict",
        "sample-conflict",
        "secret-missing",
        "too-many-deliveries",
        *TOKENS_FINAL,
        "volume-conflict",
        "volume-in-use",
        "volume-not-asked",
    }
)
"""Codes of 409 by which the server refuses a message for good; every other conflict passes."""

Phase = Literal["run", "warn", "stop"]
Taking = Literal["all", "paused", "draining", "released"]
"""What an owner lets the market do on a host: anything; start nothing new; end what runs, with the
notice that was agreed; have nothing there at all."""
ReportKind = Literal[
    "fetching", "started", "saved", "alive", "exited", "stopped", "failed", "refused"
]
HOST_RESTARTED = "the host was restarted"  # of `failed`: the one detail that is read

# From 2020 to 2100: a host whose clock stands at 1970 is refused instead of billed.
Moment = Annotated[int, Between(1_577_836_800_000, 4_102_444_800_000)]
Duration = Annotated[int, Between(0, INTERVAL_MS_MAX)]
Sequence = Annotated[int, Between(1, 2**53)]
Amount = Annotated[int, Between(0, 2**53)]
Mebibytes = Annotated[int, Between(0, 2**31)]
Name = Annotated[str, Length(1, 200)]
Detail = Annotated[str, Length(0, 2000)]
Word = Annotated[str, Length(1, 40)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu(Message):
    """One leasable GPU of a host: a whole card, or one MIG instance by its own UUID.

    nvlink_group: the same text on all GPUs that reach each other by NVLink; null without.
    mig_profiles: of a MIG instance its own profile, such as "3g.40gb"; of a whole card empty.
    card_uuid: of a MIG instance the card it is a part of.
    """

    uuid: Name
    model: Name
    memory_mib: Mebibytes
    compute_capability: Annotated[str, Length(3, 8)]
    driver: Name
    nvlink_group: Name | None
    mig_enabled: bool
    mig_profiles: Annotated[tuple[Name, ...], Length(0, 64)]
    card_uuid: Name | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration(Message):
    """PUT /api/v1/agent/host: what this host has. Sent at start and when it changed.

    boot_id: of this run of the agent; sequence numbers count from 1 within it.
    sandbox: the level at which leased work is kept from the host and from other leases, one of
        `runtimes.levels.LEVELS`; enforces: what stands behind it, thing by thing.
    abilities: what work may ask of this host beyond a command: `files`, `volumes`, `logs`,
        `secrets`, `podman`, `access`. A word that the reader does not know is kept: its agent is
        newer.
    separates_tenants: what agents of before said in place of `sandbox`.
    taking: what the owner lets be done, by the switch at the host.
    measures: how it is measured what each GPU does; nothing of a GPU: not said.
    """

    agent_version: Name
    boot_id: UUID
    hostname: Name
    gpus: Annotated[tuple[Gpu, ...], Length(0, 256)]
    separates_tenants: bool | None = None
    sandbox: Annotated[str, Length(0, 40)] = ""
    enforces: Annotated[tuple[Enforced, ...], Length(0, 32)] = ()
    abilities: Annotated[tuple[Word, ...], Length(0, 32)] = ()
    taking: Taking = "all"
    measures: Annotated[tuple[Measured, ...], Length(0, 256)] = ()

    def __post_init__(self) -> None:
        if len({gpu.uuid for gpu in self.gpus}) != len(self.gpus):
            raise WireError("names a GPU twice", "gpus")
        if len(set(self.abilities)) != len(self.abilities):
            raise WireError("names an ability twice", "abilities")
        if len({each.what for each in self.enforces}) != len(self.enforces):
            raise WireError("says of one thing twice what keeps it", "enforces")

    to_json = Message.unusual


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered(Message):
    """The answer: how often to cut an interval and to ask for assignments."""

    host_id: UUID
    sample_seconds: Annotated[int, Between(1, 3600)]
    poll_seconds: Annotated[int, Between(1, 3600)]
    server_time: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment(Message):
    """What the server wants of one lease on this host.

    phase: `run`, have it running; `warn`, the owner asked the capacity back, signal the work but
        keep it running until `stop_at`; `stop`, end it now.
    stop_at: the GPU is free by then; like `ends_at` a deadline, the earlier one holds.
    grace_seconds: between SIGTERM and SIGKILL, which comes at a deadline at the latest.
    tenant: whose work it is; None: not said, and so not that of any other lease's tenant.
    image: the container image it runs in, by its digest; empty: it runs as a process.
    inputs: the folder whose files the work finds where it starts; None: none. outputs: patterns of
        what of that place is kept when the work ended.
    secrets: names of those that the work is handed, for which the agent asks; secret_variables:
        which are variables of it as well. volumes: what it finds of its tenant's, and where.
    notice_seconds: between a reclaim and the loss of the GPUs, as it was agreed; None: not said.
    sandbox: the least level at which it may run; empty: any. source: what its host fetches first.
    """

    lease_id: UUID
    gpu_uuids: Annotated[tuple[Name, ...], Length(1, 256)]
    starts_at: datetime
    ends_at: datetime
    phase: Phase
    stop_at: datetime | None
    grace_seconds: Annotated[int, Between(0, 86_400)]
    runtime: Literal["process"]
    command: Annotated[tuple[Annotated[str, Length(0, 65_536)], ...], Length(1, 1024)]
    environment: Annotated[Mapping[str, str], Length(0, 256)]
    workload_kind: Name
    tenant: UUID | None = None
    image: Annotated[str, Length(0, 512)] = ""
    inputs: UUID | None = None
    outputs: Annotated[tuple[Annotated[str, Length(1, 256)], ...], Length(0, 32)] = ()
    secrets: Annotated[tuple[SecretName, ...], Length(0, 16)] = ()
    secret_variables: Annotated[tuple[SecretName, ...], Length(0, 16)] = ()
    volumes: Annotated[tuple[VolumeMount, ...], Length(0, 8)] = ()
    notice_seconds: Annotated[int, Between(0, 366 * 86_400)] | None = None
    sandbox: Annotated[str, Length(0, 16)] = ""
    source: Source | None = None

    def __post_init__(self) -> None:
        if self.ends_at <= self.starts_at:
            raise WireError("must be after starts_at", "ends_at")
        if len(set(self.gpu_uuids)) != len(self.gpu_uuids):
            raise WireError("names a GPU twice", "gpu_uuids")
        if not self.command[0]:
            raise WireError("must name a program", "command[0]")
        for name in self.environment:
            if not name or "=" in name:
                raise WireError("is not a variable's name", f"environment.{name[:80]}")

    to_json = Message.unusual


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread(Message):
    """A lease of which more is wanted than is understood: what runs of it goes on as it is."""

    lease_id: UUID
    reason: Detail


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignments(Message):
    """GET /api/v1/agent/assignments: the desired state. A lease not listed is to be stopped.

    taking: what the owner lets be done, by the switch on the market; said to those that have the
        ability `hand`.
    unread: noted by who reads it: what is wanted of these leases could not be read.
    """

    server_time: datetime
    assignments: Annotated[tuple[Assignment, ...], Length(0, 1024)]
    taking: Taking = "all"
    unread: Annotated[tuple[Unread, ...], Length(0, 1024)] = ()

    def __post_init__(self) -> None:
        if len({each.lease_id for each in self.assignments}) != len(self.assignments):
            raise WireError("names a lease twice", "assignments")

    to_json = Message.unusual


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(Message):
    """What became of a lease's work. The same `report_id` may arrive again and counts once.

    fetching: what it needs is on its way to the host, which is why it has not started.
    saved: what it did until `at` is safe, a checkpoint; the others say when it happened. refused:
        it was not started, because somebody else's process fills its GPU.
    alive: by its own heartbeat, from `since` to `at`.
    reclaimed: it was stopped, or never started, by the owner's hand at the host.
    over_share: it was stopped, as it held more GPU memory than its share has.
    exit_code: of a command that ended; negative: a signal's number; null: unknown, or never began.
    commit: with `started`, which one its source led to; left_out: what of that did not come.
    """

    report_id: UUID
    lease_id: UUID
    what: ReportKind
    at: datetime
    exit_code: Annotated[int, Between(-255, 255)] | None
    detail: Detail
    reclaimed: bool = False
    over_share: bool = False
    commit: Annotated[str, Length(0, 64)] = ""
    left_out: Annotated[tuple[Annotated[str, Length(0, 200)], ...], Length(0, 32)] = ()
    since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportBatch(Message):
    """POST /api/v1/agent/reports."""

    boot_id: UUID
    reports: Annotated[tuple[Report, ...], Length(0, BATCH_MAX)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportsAccepted(Message):
    """The answer: how many of the reports are now known, new ones and repeated ones."""

    accepted: Annotated[int, Between(0, BATCH_MAX)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval(Message):
    """What one GPU did for one lease in [start_ms, end_ms).

    The intervals of a (lease, GPU) follow each other without gap or overlap from the start of the
    work to its end, so the sum of `granted_ms` is the granted time, exactly.
    occupied_ms: a process of the lease was on the GPU. busy_ms: its kernels ran, weighted by
        utilisation. memory_used_mib: the most seen. Each is null where it could not be measured,
        which is not 0.
    cpu_ms, io_bytes, net_bytes: processor time, bytes to and from disks, and over the network that
        is its own, of all the lease's work on the host, the same for each of its GPUs.
    energy_mj: the lease's part of the energy that its card took, in millijoules.
    """

    seq: Sequence
    lease_id: UUID
    gpu_uuid: Name
    start_ms: Moment
    end_ms: Moment
    granted_ms: Duration
    occupied_ms: Duration | None
    busy_ms: Duration | None
    memory_used_mib: Mebibytes | None
    cpu_ms: Amount | None = None
    io_bytes: Amount | None = None
    net_bytes: Amount | None = None
    energy_mj: Amount | None = None

    def __post_init__(self) -> None:
        if self.end_ms <= self.start_ms:
            raise WireError("must be after start_ms", "end_ms")
        if self.granted_ms != self.end_ms - self.start_ms:
            raise WireError("must be end_ms - start_ms", "granted_ms")
        if self.occupied_ms is not None and self.occupied_ms > self.granted_ms:
            raise WireError("must not exceed granted_ms", "occupied_ms")
        if self.busy_ms is not None and self.busy_ms > self.granted_ms:
            raise WireError("must not exceed granted_ms", "busy_ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class Health(Message):
    """Something happened to a GPU, or to the driver (gpu_uuid null). kind: HealthKind or newer."""

    seq: Sequence
    gpu_uuid: Name | None
    kind: Word
    at: datetime
    detail: Detail


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleBatch(Message):
    """POST /api/v1/agent/samples. (boot_id, seq) is unique for ever, so a resend is harmless.

    `seq` counts up over intervals and health events together; both lists are in its order.
    """

    boot_id: UUID
    batch: Annotated[tuple[Interval, ...], Length(0, BATCH_MAX)]
    health: Annotated[tuple[Health, ...], Length(0, BATCH_MAX)]

    def __post_init__(self) -> None:
        for place in ("batch", "health"):
            numbers = [each.seq for each in getattr(self, place)]
            if any(later <= earlier for earlier, later in pairwise(numbers)):
                raise WireError("must be in the order of seq", place)
        if {each.seq for each in self.batch} & {each.seq for each in self.health}:
            raise WireError("uses a seq of an interval again", "health")
