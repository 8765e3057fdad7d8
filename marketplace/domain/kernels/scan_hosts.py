"""Which hosts may have room for a bid, as a loop over columns that can be compiled.

The same as the passes of NumPy in `host_columns`: this one goes through ten thousand rows in less
time than those take to begin.
"""

from __future__ import annotations

from marketplace.domain.kernels.jit import compiled
from marketplace.domain.kernels.layout import KIND, LEASE_MIN, Bools, Ints, Seconds


@compiled
def room_on(
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
    """Write down the hosts that fit a shape and have a span that is long enough; return how many.

    Args:
        rows: of the columns of a level, those that are in use.
        facts: of each host; table: which kinds fit which shapes.
        longest: how long at most, in milliseconds.
        duration, latest, soonest: how long at least, from when and until when at the least; in
            the seconds of columns.
        found: a row for each span: its host's slot and floor.
    """
    count = 0
    for row in range(rows):
        if lengths[row] >= duration and opens[row] <= latest and closes[row] >= soonest:
            slot = slots[row]
            if table[facts[KIND, slot], shape] and facts[LEASE_MIN, slot] <= longest:
                found[count, 0], found[count, 1] = slot, floors[row]
                count += 1
    return count
