"""Which hosts may have room for a bid: one pass over the spans of a level."""

from __future__ import annotations

from marketplace.domain.kernels.jit import compiled_later
from marketplace.domain.kernels.layout import KIND, LEASE_MIN, Bools, Ints, Seconds


def _room_on(
    opens: Seconds,
    closes: Seconds,
    lengths: Seconds,
    slots: Seconds,
    floors: Ints,
    rows: int,
    facts: Ints,
    table: Bools,
    shape: int,
    longest: int,
    duration: int,
    latest: int,
    soonest: int,
    found: Ints,
) -> int:
    count = 0
    for row in range(rows):
        if lengths[row] >= duration and opens[row] <= latest and closes[row] >= soonest:
            slot = slots[row]
            if table[facts[KIND, slot], shape] and facts[LEASE_MIN, slot] <= longest:
                found[count, 0], found[count, 1] = slot, floors[row]
                count += 1
    return count


def _room_at_once(
    opens: Seconds,
    closes: Seconds,
    lengths: Seconds,
    slots: Seconds,
    floors: Ints,
    rows: int,
    facts: Ints,
    table: Bools,
    shape: int,
    longest: int,
    duration: int,
    latest: int,
    soonest: int,
    found: Ints,
) -> int:
    enough = lengths[:rows] >= duration
    enough &= opens[:rows] <= latest
    enough &= closes[:rows] >= soonest
    places = enough.nonzero()[0]
    if not len(places):
        return 0
    of = slots[places]
    fit = table[facts[KIND, of], shape]
    fit &= facts[LEASE_MIN, of] <= longest
    of, places = of[fit], places[fit]
    found[: len(of), 0], found[: len(of), 1] = of, floors[places]
    return len(of)


room_on = compiled_later(_room_on, _room_at_once)
"""Write down the hosts that fit a shape and have a span that is long enough; return how many.

rows: of the columns of a level, those that are in use. facts: of each host; table: which kinds fit
which shapes. longest: how long at most, in milliseconds. duration, latest, soonest: how long at
least, from when and until when at the least; in the seconds of columns. found: a row for each span:
its host's slot and floor.
"""
