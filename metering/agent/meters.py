"""What is remembered of a lease's GPU and of a card between looks, and how a look changes it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from .backoff import Backoff
from .gpus.port import GpuFault, Reading, Utilisation
from .over_share import Over, follow
from .runtimes.used import NOT_KNOWN, Used
from .wear import Worn

FUTURE_US_MAX = 2_000_000
"""A driver's sample stamped further ahead of the wall clock than this is garbage."""
PERIOD_US_MAX = 1_000_000
PERIOD_US_MIN = 50_000
REMEMBERED_US = 60_000_000


@dataclass(slots=True)
class Meter:
    """One GPU of one lease. cut_ms: end of the last kept interval. seen_ms: accounted up to there.

    present: what the last look saw; None is unknown. ends_ms: nothing is granted beyond.
    used: by the lease's work, as of `cut_ms`.
    by_mps: it is a share by MPS, whose processes the driver may count together with the others'.
    share_mib: the memory of a share; None: it is no share. over: it holds more than that.
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
    by_mps: bool = False
    share_mib: int | None = None
    over: Over | None = None
    used: Used = NOT_KNOWN
    pids: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Watch:
    """What is remembered of one GPU between looks. filled: who fills it beside its leases."""

    looked_us: int = 0
    ahead_us: int | None = None
    newest_us: int = 0
    looked_ms: int | None = None
    period_us: int = PERIOD_US_MAX
    untils: dict[int, int] = field(default_factory=dict)
    fault: GpuFault | None = None
    backoff: Backoff = field(default_factory=Backoff)
    strays: set[int] = field(default_factory=set)
    filled: str = ""
    worn: Worn = field(default_factory=Worn)

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


def heed_step(watch: Watch, meters: Mapping[UUID, Meter], wall_us: int, now_ms: int) -> None:
    """Begin anew where the wall clock, by which the driver dates its samples, was set.

    Samples of before and after are not of one line of time: what was busy in between is not known.
    """
    ahead_us = wall_us - now_ms * 1000
    step_us = 0 if watch.ahead_us is None else ahead_us - watch.ahead_us
    watch.ahead_us = ahead_us
    if abs(step_us) <= FUTURE_US_MAX:
        return
    watch.newest_us = watch.looked_us = 0
    watch.untils.clear()
    for meter in meters.values():
        meter.opened_us += step_us
        meter.busy_known = False


def weigh(
    watch: Watch,
    meters: Mapping[UUID, Meter],
    samples: tuple[Utilisation, ...] | None,
    wall_us: int,
    *,
    shared: Collection[int] = (),
    ends: tuple[Meter, int] | None = None,
) -> None:
    """Add the driver's samples to the meters of the processes they belong to.

    shared: processes that work for all shares by MPS; what the driver counts as theirs is nobody's
    alone, so none of those is known. ends: a meter, and when its work ended, beyond which nothing
    counts.
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
        if sample.pid in shared and sample.percent:
            for meter in meters.values():
                meter.busy_known = meter.busy_known and not meter.by_mps
        mine = next((m for m in meters.values() if sample.pid in m.pids), None)
        if mine is not None:
            since_us = max(sample.until_us - length_us, mine.opened_us)
            until_us = sample.until_us
            if ends is not None and mine is ends[0]:
                until_us = min(until_us, ends[1])
            mine.busy_us_percent += max(0, until_us - since_us) * sample.percent


def account(meter: Meter, now_ms: int) -> None:
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


def see(
    meter: Meter,
    lease_id: UUID,
    reading: Reading,
    owners: Mapping[int, UUID | None],
    *,
    now_ms: int,
) -> None:
    """Take in what a look saw of a lease's processes: that they are there, and their memory."""
    mine = [each for each in reading.residents if owners[each.pid] == lease_id]
    meter.pids |= {each.pid for each in mine}
    # Without seeing the host's process ids, not finding the lease's process proves nothing.
    seen = reading.pids_are_ours and (reading.clients_listed or not meter.by_mps)
    present = True if mine else (False if seen else None)
    if (present is None) != (meter.present is None):
        meter.turned = True
    meter.present = present
    sizes = [each.memory_mib for each in mine if each.memory_mib is not None]
    if sizes:
        meter.memory_mib = max(meter.memory_mib or 0, sum(sizes))
    held_mib = sum(sizes) if sizes else None
    meter.over = follow(meter.over, share_mib=meter.share_mib, held_mib=held_mib, now_ms=now_ms)
