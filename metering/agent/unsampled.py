"""Busy time that the driver's samples of processes do not show: of MIG instances, of short lives.

A MIG instance is measured as a whole, and leased as a whole: what ran on it was the lease's, as
long as nobody else was seen there. A process that came and went between two samples is in the
accounts of the card, where the owner has them kept: what they tell beyond its samples counts too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from .gpus.port import Life, Reading
from .meters import PERIOD_US_MAX, Meter, Watch

SHORT_MS_MAX = 10_000
"""The accounts say whole percents of a life: of a longer one its samples know more."""
SETTLED_MAX = 1_000


def weigh_whole(watch: Watch, meters: Mapping[UUID, Meter], kernels_us: int | None) -> None:
    """Count for how long a device's kernels ran as its lease's; several leases: not known."""
    before_us, watch.kernels_us = watch.kernels_us, kernels_us
    known = kernels_us is not None and before_us is not None and kernels_us >= before_us
    for meter in meters.values():
        if not known or len(meters) > 1 or watch.strays:
            meter.busy_known = False
        elif kernels_us is not None and before_us is not None:
            meter.pending_us_percent += (kernels_us - before_us) * 100


def weigh_ended(
    watch: Watch,
    meters: Mapping[UUID, Meter],
    lives: Sequence[Life],
    *,
    alone: bool,
    others: Collection[int] = (),
) -> None:
    """Count what the accounts tell of short lives beyond their samples.

    alone: the one lease has the whole card, so that who was never seen alive was its own. others:
    processes that are known to be somebody else's.
    """
    told, watch.lives = watch.lives, frozenset(lives)
    for life in lives:
        if told is None or life in told:
            continue
        sampled = watch.sampled.pop(life.pid, 0)
        if life.length_ms > SHORT_MS_MAX:
            continue
        mine = [each for each in meters.values() if life.pid in each.pids]
        if not mine and alone and life.pid not in others:
            mine = [each for each in meters.values() if life.start_us >= each.opened_us]
        for meter in mine[:1]:
            meter.pending_us_percent += max(0, life.length_ms * 1_000 * life.percent - sampled)
            meter.pids.pop(life.pid, None)
            watch.settled[life.pid] = life.start_us + life.length_ms * 1_000 + PERIOD_US_MAX
    while len(watch.settled) > SETTLED_MAX:
        del watch.settled[next(iter(watch.settled))]


def weigh_rest(
    watch: Watch, meters: Mapping[UUID, Meter], reading: Reading, owners: Mapping[int, UUID | None]
) -> None:
    """Count what a look tells beyond the samples of processes; after those."""
    if reading.utilisation is None:
        weigh_whole(watch, meters, reading.kernels_us)
        return
    whole = [each for each in meters.values() if each.share_mib is None]
    others = {pid for pid, owner in owners.items() if owner not in meters} | watch.strays
    weigh_ended(watch, meters, reading.ended, alone=len(whole) == 1 == len(meters), others=others)
