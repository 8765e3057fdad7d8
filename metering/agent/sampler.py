"""From looks at the GPUs to milliseconds per lease: granted, occupied, busy.

Granted time is the length of the interval. Occupied and busy time are measured between looks:
occupied by what the earlier look saw (a process that came is counted from the look that saw it
until the one that missed it), busy by the driver's own samples, each weighted with the time
that it stands for by the time stamps. What could not be seen is None, never 0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from .backoff import Backoff
from .clock import Clock
from .gpus.port import GpuFault, Gpus, Reading, Utilisation
from .runtimes.port import Runtime
from .wire import HealthKind

WATCH_MS = 30_000
"""How often a GPU without a lease is looked at, to notice that it is lost."""
FUTURE_US_MAX = 2_000_000
"""A driver's sample stamped further ahead of the wall clock than this is garbage."""
SPARE_BUSY_MS_MAX = 2_000
"""Busy time that does not fit its interval waits for the next one, up to this much."""
US_PERCENT_PER_MS = 100_000
PERIOD_US_MAX = 1_000_000
PERIOD_US_MIN = 50_000
REMEMBERED_US = 60_000_000

Key = tuple[UUID, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """One interval that is ready to be kept; `fields` are those of the wire's Interval but seq."""

    key: Key
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something to tell of a GPU's health."""

    gpu_uuid: str | None
    kind: HealthKind
    detail: str


@dataclass(slots=True)
class Meter:
    """One GPU of one lease. cut_ms: end of the last kept interval. seen_ms: accounted up to there.

    present: what the last look saw; None is unknown. ends_ms: nothing is granted beyond.
    """

    cut_ms: int
    seen_ms: int
    ends_ms: int
    present: bool | None
    opened_us: int
    occupied_ms: int | None = 0
    busy_us_percent: int = 0
    busy_known: bool = True
    memory_mib: int | None = None
    turned: bool = False
    pids: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Watch:
    """What is remembered of one GPU between looks."""

    looked_us: int = 0
    newest_us: int = 0
    looked_ms: int | None = None
    period_us: int = PERIOD_US_MAX
    untils: dict[int, int] = field(default_factory=dict)
    fault: GpuFault | None = None
    backoff: Backoff = field(default_factory=Backoff)
    strays: set[int] = field(default_factory=set)

    def length_us(self, sample: Utilisation, *, paused_us: int) -> int:
        """Return for how long a driver's sample stands, and remember it.

        paused_us: time since the look before. A sample stands from the process's sample before
        when the two follow each other; else the process was idle in between, and it stands for
        the driver's period, which is learnt from the time stamps (NVML: 1/6 s to 1 s).
        """
        before_us = self.untils.get(sample.pid, 0)
        gap_us = sample.until_us - before_us
        if gap_us <= 0:
            return 0
        self.newest_us = max(self.newest_us, sample.until_us)
        self.untils[sample.pid] = sample.until_us
        oldest_us = sample.until_us - REMEMBERED_US
        self.untils = {pid: us for pid, us in self.untils.items() if us >= oldest_us}
        self.period_us = max(PERIOD_US_MIN, min(self.period_us, gap_us))
        follows = gap_us <= paused_us + self.period_us * 5 // 4
        return gap_us if follows else self.period_us


class Sampler:
    """Looks at the GPUs and keeps the meters of the leases that run."""

    def __init__(self, gpus: Gpus, runtime: Runtime, clock: Clock) -> None:
        self._gpus = gpus
        self._runtime = runtime
        self._clock = clock
        self._meters: dict[Key, Meter] = {}
        self._watches: dict[str, Watch] = {}
        self._driver_fault: GpuFault | None = None

    def open(self, lease_id: UUID, ends: Mapping[str, int], *, ends_ms: int, fresh: bool) -> None:
        """Begin to measure a lease.

        ends: per GPU the moment from which it is measured. fresh: the work has just been started,
        so nothing of it is on the GPU yet; otherwise what happened since is unknown.
        """
        wall_us = self._clock.wall_us()
        for uuid, start_ms in ends.items():
            self._meters[lease_id, uuid] = Meter(
                cut_ms=start_ms,
                seen_ms=start_ms,
                ends_ms=ends_ms,
                present=False if fresh else None,
                opened_us=wall_us,
                occupied_ms=0 if fresh else None,
                busy_known=fresh,
            )

    def limit(self, lease_id: UUID, *, ends_ms: int) -> None:
        """Set the moment beyond which nothing is granted."""
        for (lease, _), meter in self._meters.items():
            if lease == lease_id:
                meter.ends_ms = ends_ms

    def look(self, now_ms: int, *, idle: Iterable[str], frozen: Collection[UUID]) -> list[Finding]:
        """Look at every GPU that is leased, and now and then at the `idle` ones.

        frozen: leases whose work is just ending; they are not accounted until its end is known.
        """
        findings = [Finding(x.uuid, "xid", f"XID {x.number}") for x in self._gpus.xids()]
        leased: dict[str, dict[UUID, Meter]] = {}
        for (lease_id, uuid), meter in self._meters.items():
            leased.setdefault(uuid, {})[lease_id] = meter
            if lease_id not in frozen:
                _account(meter, now_ms)
        # A faulty GPU is not in the driver's list any more, but is watched until it comes back.
        faulty = [uuid for uuid, watch in self._watches.items() if watch.fault is not None]
        for uuid in dict.fromkeys([*leased, *idle, *faulty]):
            watch = self._watches.setdefault(uuid, Watch())
            quiet = uuid not in leased and watch.fault is None
            if quiet and watch.looked_ms is not None and now_ms - watch.looked_ms < WATCH_MS:
                continue
            findings += self._look_at(uuid, watch, leased.get(uuid, {}), now_ms, frozen)
        return findings

    def cuts(self, now_ms: int, *, all_due: bool, frozen: Collection[UUID]) -> list[Cut]:
        """Return the intervals to keep now: all, or those where measuring stopped or resumed."""
        return [
            _cut(key, meter, min(meter.seen_ms, now_ms, meter.ends_ms))
            for key, meter in self._meters.items()
            if (all_due or meter.turned)
            and key[0] not in frozen
            and min(meter.seen_ms, meter.ends_ms) > meter.cut_ms
        ]

    def closing(self, lease_id: UUID, end_ms: int | None) -> list[Cut]:
        """Return a lease's last intervals; end_ms None: where the last kept ones ended."""
        last = []
        for key, meter in self._meters.items():
            if key[0] != lease_id or end_ms is None:
                continue
            _account(meter, end_ms)
            watch = self._watches.setdefault(key[1], Watch())
            if watch.fault is None and meter.busy_known:
                self._last_busy(key[1], watch, {lease_id: meter}, end_ms)
            stop_ms = min(end_ms, meter.ends_ms)
            if stop_ms > meter.cut_ms:
                last.append(_cut(key, meter, stop_ms))
        return last

    def kept(self, cuts: Iterable[Cut]) -> None:
        """Go on from intervals that are safely kept. Until then they grow and can be cut again."""
        for cut in cuts:
            meter = self._meters[cut.key]
            busy_ms = cut.fields["busy_ms"]
            if busy_ms is not None:
                left = meter.busy_us_percent - busy_ms * US_PERCENT_PER_MS
                meter.busy_us_percent = min(left, SPARE_BUSY_MS_MAX * US_PERCENT_PER_MS)
            else:
                meter.busy_us_percent = 0
            meter.cut_ms = cut.fields["end_ms"]
            known = meter.present is not None
            meter.occupied_ms = 0 if known else None
            meter.busy_known = known
            meter.memory_mib = None
            meter.turned = False

    def close(self, lease_id: UUID) -> None:
        """Stop measuring a lease."""
        for key in [key for key in self._meters if key[0] == lease_id]:
            del self._meters[key]

    def _look_at(
        self,
        uuid: str,
        watch: Watch,
        meters: Mapping[UUID, Meter],
        now_ms: int,
        frozen: Collection[UUID],
    ) -> list[Finding]:
        if watch.fault is not None and not watch.backoff.is_due(now_ms):
            return []
        wall_us = self._clock.wall_us()
        try:
            reading = self._gpus.read(uuid, since_us=watch.newest_us or wall_us - FUTURE_US_MAX)
        except GpuFault as fault:
            return self._fail(watch, meters, fault, now_ms)
        findings = self._recover(uuid, watch)
        watch.looked_ms = now_ms
        owners = {each.pid: self._runtime.lease_of(each.pid) for each in reading.residents}
        for lease_id, meter in meters.items():
            if lease_id not in frozen:
                _see(meter, lease_id, reading, owners)
        self._weigh(watch, meters, reading.utilisation, wall_us)
        return findings + self._strays(uuid, watch, owners, leased=bool(meters))

    def _fail(
        self, watch: Watch, meters: Mapping[UUID, Meter], fault: GpuFault, now_ms: int
    ) -> list[Finding]:
        watch.backoff.failed(now_ms)
        for meter in meters.values():
            if meter.present is not None:
                meter.turned = True
            meter.present = None
            meter.pids.clear()
        watch.untils.clear()
        new, watch.fault = watch.fault is None, fault
        if fault.uuid is None:
            new, self._driver_fault = self._driver_fault is None, fault
        return [Finding(fault.uuid, fault.kind, fault.detail)] if new else []

    def _recover(self, uuid: str, watch: Watch) -> list[Finding]:
        fault, watch.fault = watch.fault, None
        if fault is None:
            return []
        watch.backoff.succeeded()
        watch.looked_us = watch.newest_us = 0
        if fault.uuid is not None:
            return [Finding(uuid, "recovered", f"answers again after: {fault.detail}")]
        before, self._driver_fault = self._driver_fault, None
        detail = f"the driver answers again after: {fault.detail}"
        return [Finding(None, "recovered", detail)] if before is not None else []

    def _weigh(
        self,
        watch: Watch,
        meters: Mapping[UUID, Meter],
        samples: tuple[Utilisation, ...] | None,
        wall_us: int,
        *,
        end_us: int | None = None,
    ) -> None:
        """Add the driver's samples to the meters of the processes they belong to.

        end_us: when the work ended, beyond which nothing counts.
        """
        if samples is None:
            for meter in meters.values():
                meter.busy_known = False
            return
        looked_us, watch.looked_us = watch.looked_us or wall_us, wall_us
        for sample in samples:
            if sample.percent > 100 or sample.until_us > wall_us + FUTURE_US_MAX:
                continue
            length_us = watch.length_us(sample, paused_us=wall_us - looked_us)
            mine = next((m for m in meters.values() if sample.pid in m.pids), None)
            if mine is not None:
                since_us = max(sample.until_us - length_us, mine.opened_us)
                until_us = min(sample.until_us, end_us or sample.until_us)
                mine.busy_us_percent += max(0, until_us - since_us) * sample.percent

    def _last_busy(
        self, uuid: str, watch: Watch, meters: Mapping[UUID, Meter], end_ms: int
    ) -> None:
        """Add the samples since the last look, as far as they are before the end."""
        wall_us = self._clock.wall_us()
        end_us = wall_us - max(0, self._clock.now_ms() - end_ms) * 1000
        try:
            reading = self._gpus.read(uuid, since_us=watch.newest_us or wall_us - FUTURE_US_MAX)
        except GpuFault:
            return  # the next look finds it and says so
        self._weigh(watch, meters, reading.utilisation, wall_us, end_us=end_us)

    def _strays(
        self, uuid: str, watch: Watch, owners: Mapping[int, UUID | None], *, leased: bool
    ) -> list[Finding]:
        """Find processes on a leased GPU that belong to no lease of it, each told once."""
        found = []
        strays: dict[int, str] = {}
        for pid, owner in owners.items():
            if not leased or (owner is not None and (owner, uuid) in self._meters):
                continue
            name = self._runtime.name_of(pid)
            if name is None:
                continue  # gone already, or of a pid namespace that is not ours
            whose = f"of lease {owner}" if owner is not None else "of no lease"
            strays[pid] = f"process {pid} ({name[:64]}) {whose}"
        for pid in strays.keys() - watch.strays:
            found.append(Finding(uuid, "stray-process", strays[pid]))
        watch.strays = set(strays)
        return found


def _account(meter: Meter, now_ms: int) -> None:
    until_ms = min(now_ms, meter.ends_ms)
    length_ms = until_ms - meter.seen_ms
    if length_ms <= 0:
        return
    meter.seen_ms = until_ms
    if meter.present is None:
        meter.occupied_ms = None
        meter.busy_known = False
    elif meter.present and meter.occupied_ms is not None:
        meter.occupied_ms += length_ms


def _see(meter: Meter, lease_id: UUID, reading: Reading, owners: Mapping[int, UUID | None]) -> None:
    mine = [each for each in reading.residents if owners[each.pid] == lease_id]
    meter.pids |= {each.pid for each in mine}
    # Without seeing the host's process ids, not finding the lease's process proves nothing.
    present = True if mine else (False if reading.pids_are_ours else None)
    if (present is None) != (meter.present is None):
        meter.turned = True
    meter.present = present
    sizes = [each.memory_mib for each in mine if each.memory_mib is not None]
    if sizes:
        meter.memory_mib = max(meter.memory_mib or 0, sum(sizes))


def _cut(key: Key, meter: Meter, end_ms: int) -> Cut:
    granted_ms = end_ms - meter.cut_ms
    busy_ms = min(meter.busy_us_percent // US_PERCENT_PER_MS, granted_ms)
    occupied_ms = meter.occupied_ms
    return Cut(
        key=key,
        fields={
            "lease_id": str(key[0]),
            "gpu_uuid": key[1],
            "start_ms": meter.cut_ms,
            "end_ms": end_ms,
            "granted_ms": granted_ms,
            "occupied_ms": None if occupied_ms is None else min(occupied_ms, granted_ms),
            "busy_ms": busy_ms if meter.busy_known else None,
            "memory_used_mib": meter.memory_mib,
        },
    )
