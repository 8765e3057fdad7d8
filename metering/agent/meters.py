"""What is remembered of a lease's GPU and of a card between looks, and how a look changes it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from .backoff import Backoff
from .gpus.port import GpuFault, Life, Reading, Utilisation
from .over_share import Over, follow
from .runtimes.used import NOT_KNOWN, Used
from .sharing import US_PERCENT_PER_MS, within
from .wear import Worn

FUTURE_US_MAX = 2_000_000
"""A driver's sample stamped further ahead of the wall clock than this is garbage."""
PERIOD_US_MAX = 1_000_000
PERIOD_US_MIN = 50_000
REMEMBERED_US = 60_000_000
SPARE_BUSY_MS_MAX = 2_000
"""Busy time that does not fit its interval waits for the next one, up to this much."""
SPARE_US_PERCENT_MAX = SPARE_BUSY_MS_MAX * US_PERCENT_PER_MS


@dataclass(slots=True)
class Meter:
    """One GPU of one lease. cut_ms: end of the last kept interval. seen_ms: accounted up to there.

    present: what the last look saw; None is unknown. ends_ms: nothing is granted beyond.
    used: by the lease's work, as of `cut_ms`.
    by_mps: it is a share by MPS, whose processes the driver may count together with the others'.
    share_mib: the memory of a share; None: it is no share. over: it holds more than that.
    pending_us_percent: busy time that the driver counted, up to what the card has room for; then it
    is in `busy_us_percent`, and in `weight_us_percent` until the card's energy is divided.
    energy_mj: of that. over_ms: when the work ended. pids: its processes, and when each was seen
    last: a sample may come after its process, and an id that another has by now is not its own.
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
    pending_us_percent: int = 0
    weight_us_percent: int = 0
    energy_mj: int = 0
    energy_known: bool = True
    over_ms: int | None = None
    pids: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class Watch:
    """What is remembered of one GPU between looks. filled: who fills it beside its leases.

    kernels_us, lives: as the last look had them. sampled: busy time by process, in microseconds
    times percent; settled: up to when it is told by the accounts, so that no sample counts again.
    """

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
    kernels_us: int | None = None
    lives: frozenset[Life] | None = None
    sampled: dict[int, int] = field(default_factory=dict)
    settled: dict[int, int] = field(default_factory=dict)
    settled_ms: int | None = None
    others_us_percent: int = 0

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
        self.sampled = {pid: us for pid, us in self.sampled.items() if pid in self.untils}
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
        watch.looked_us = wall_us
        return
    looked_us, watch.looked_us = watch.looked_us or wall_us, wall_us
    for sample in samples:
        if sample.until_us <= watch.settled.get(sample.pid, 0):
            continue
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
            added = max(0, until_us - since_us) * sample.percent
            mine.pending_us_percent += added
            watch.sampled[sample.pid] = watch.sampled.get(sample.pid, 0) + added
        else:
            watch.others_us_percent += length_us * sample.percent


def settle(watch: Watch, meters: Collection[Meter], until_ms: int, *, from_ms: int) -> None:
    """Let count what the card has room for: leases that share it are never busier than it can be.

    from_ms: since when it has leases, where it was never settled. What does not fit waits, up to
    SPARE_US_PERCENT_MAX; a lease that is alone is held within its own intervals.
    """
    since_ms = from_ms if watch.settled_ms is None else watch.settled_ms
    room = max(0, until_ms - since_ms) * US_PERCENT_PER_MS
    watch.settled_ms = max(since_ms, until_ms)
    pending = [each.pending_us_percent for each in meters]
    counted = pending
    if len(pending) > 1:  # in whole milliseconds, so that no two roundings come to one more
        counted = [each - each % US_PERCENT_PER_MS for each in within(pending, room)]
    for meter, part in zip(meters, counted, strict=True):
        meter.busy_us_percent += part
        meter.weight_us_percent += part
        meter.pending_us_percent = min(meter.pending_us_percent - part, SPARE_US_PERCENT_MAX)


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
    others = {each.pid for each in reading.residents} - {each.pid for each in mine}
    kept_ms = now_ms - REMEMBERED_US // 1000
    meter.pids = {p: ms for p, ms in meter.pids.items() if p not in others and ms >= kept_ms}
    meter.pids |= {each.pid: now_ms for each in mine}
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
