"""How what one card did is divided among the leases that share it: rules in whole numbers.

What the parts come to is never more than the whole, whatever is measured, and however it is
rounded: what is left over by rounding down is nobody's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

WHOLE_PPM = 1_000_000
US_PERCENT_PER_MS = 100_000
"""Of busy time, which is counted in microseconds times percent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharer:
    """One lease on a card in a span. part_ppm: of the card's compute. granted_ms: within the span.

    busy_us_percent: how long its kernels kept the card busy, in microseconds times percent; None:
    not known.
    """

    part_ppm: int
    granted_ms: int
    busy_us_percent: int | None


def within(wanted: Sequence[int], room: int) -> list[int]:
    """Return how much of each wish there is room for: all of it, or the same part of each."""
    total = sum(wanted)
    return list(wanted) if total <= room else [each * room // total for each in wanted]


def energy_parts(
    energy_mj: int, length_ms: int, sharers: Sequence[Sharer], *, others_us_percent: int = 0
) -> list[int]:
    """Return what of a card's energy in a span is each lease's, in millijoules.

    A lease that has the whole card has all of it while it is granted. Of leases that share one, the
    time that the card was busy goes by who kept it busy, and the rest by their parts, so that the
    idle part of what is leased to nobody is nobody's; all of it goes by their parts where it is
    not known of one of them how busy it was.

    length_ms: of the span. others_us_percent: how long others than these kept the card busy.
    """
    parts = [each.part_ppm for each in sharers]
    whole = max(WHOLE_PPM, sum(parts))
    times = [max(0, min(each.granted_ms, length_ms)) for each in sharers]
    busy = [0 if each.busy_us_percent is None else each.busy_us_percent for each in sharers]
    if length_ms <= 0:
        return [0 for _ in sharers]
    if parts == [WHOLE_PPM] or any(each.busy_us_percent is None for each in sharers):
        return [
            energy_mj * part * time_ms // (whole * length_ms)
            for part, time_ms in zip(parts, times, strict=True)
        ]
    room = length_ms * US_PERCENT_PER_MS
    total = sum(busy) + others_us_percent
    idle = max(0, room - total)
    below = max(room, total) * whole * length_ms
    return [
        energy_mj * (own * whole * length_ms + idle * part * time_ms) // below
        for own, part, time_ms in zip(busy, parts, times, strict=True)
    ]
