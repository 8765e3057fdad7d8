"""Whom one host serves: the bids that wait are gone through in order of price and time.

What `placement` says of a host whose GPUs are all alike, in one loop over columns: once compiled
it goes through a hundred thousand bids in less time than Python needs for ten.
"""

from __future__ import annotations

import numpy as np

from marketplace.domain.kernels.jit import compiled, compiled_later
from marketplace.domain.kernels.layout import (
    DEADLINE,
    DURATION,
    EARLIEST,
    FAR,
    GPUS,
    KEY,
    LATEST,
    LEVEL,
    SHAPE,
    SINCE,
    SLOT,
    SOONEST,
    ZERO,
    Bools,
    Ints,
    Seconds,
)

NOBODY, MORE, LOOK, FULL = range(4)
"""Why `serve` ended: there is nobody more; there may be more, but no place to write them down;
a bid that somebody has to look at comes next; or there is no place for another span of a GPU."""
LEVELS_MAX = 16
ROWS_AT_ONCE = 64
"""Bids that are compared together: the processor does several at once where nothing is skipped."""
TERMS = 3
LEASE_MIN, NOW, CLEANING = range(TERMS)
"""What `terms` says: the shortest lease of the offer, the earliest start, and how long is cleaned
between two leases; in milliseconds."""


@compiled
def longest(spans: Ints, counts: Ints, reach: Ints) -> int:
    """Write for each level how long a bid there can be at most; return the levels.

    reach: first the ends of what is free, then for each level the longest; in milliseconds.
    """
    gpus = counts.size
    reach[0], reach[1] = 1 << 62, -(1 << 62)
    for at in range(2, reach.size):
        reach[at] = -1
    free = 0
    for gpu in range(gpus):
        most = 0
        for at in range(counts[gpu]):
            opens, closes = spans[gpu, at, 0], spans[gpu, at, 1]
            most = max(most, closes - opens)
            reach[0] = min(reach[0], opens)
            reach[1] = max(reach[1], closes)
        if most > 0:
            # Kept in falling order behind the levels, to find the 1st, 2nd, 4th, … longest.
            place = 2 + LEVELS_MAX + free
            while place > 2 + LEVELS_MAX and reach[place - 1] < most:
                reach[place] = reach[place - 1]
                place -= 1
            reach[place] = most
            free += 1
    levels, needed = 0, 1
    while needed <= free and levels < LEVELS_MAX:
        reach[2 + levels] = reach[2 + LEVELS_MAX + needed - 1]
        levels += 1
        needed *= 2
    return levels


@compiled
def prefer(found: Ints, rows: int, gpus: int, start: int, links: Ints, sizes: Ints) -> None:
    """Write how well each span serves by links: one group that just suffices comes first.

    links: the place of each GPU's NVLink group by name, from 1 on; 0: none. sizes: to work with.
    """
    sizes[:] = 0
    for row in range(rows):
        if found[row, 0] <= start <= found[row, 1]:
            sizes[links[found[row, 3]]] += 1
    most = links.size + 1
    for row in range(rows):
        group = links[found[row, 3]]
        size = 1 if group == 0 else sizes[group]
        rank = 2 * most - size if size < gpus else size  # of those too small, the largest
        found[row, 5] = rank * most + group


@compiled
def serves_better(found: Ints, row: int, other: int) -> bool:
    """Compare two spans: links, then tight gaps, then ids, which GPUs are numbered by."""
    for field in (5, 2, 3):
        if found[row, field] != found[other, field]:
            return bool(found[row, field] < found[other, field])
    return False


@compiled
def choose(found: Ints, rows: int, gpus: int, start: int) -> None:
    """Bring the spans that serve best from `start` on to the front of `found`."""
    for chosen in range(gpus):
        best = -1
        for row in range(chosen, rows):
            if not found[row, 0] <= start <= found[row, 1]:
                continue
            if best < 0 or serves_better(found, row, best):
                best = row
        for field in range(6):
            found[chosen, field], found[best, field] = found[best, field], found[chosen, field]


@compiled
def in_turn(found: Ints, rows: int) -> None:
    """Sort spans by their first start, and apart from them their last starts (Shell 1959)."""
    gap = 1
    while gap < rows // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for row in range(gap, rows):
            at = row
            while at >= gap and found[at - gap, 0] > found[at, 0]:
                for field in range(4):
                    found[at - gap, field], found[at, field] = (
                        found[at, field],
                        found[at - gap, field],
                    )
                at -= gap
            at = row
            while at >= gap and found[at - gap, 4] > found[at, 4]:
                found[at - gap, 4], found[at, 4] = found[at, 4], found[at - gap, 4]
                at -= gap
        gap //= 3


@compiled
def placed(
    spans: Ints,
    counts: Ints,
    links: Ints,
    sizes: Ints,
    found: Ints,
    gpus: int,
    duration: int,
    earliest: int,
    deadline: int,
) -> int:
    """Find the first instant at which so many GPUs can begin; -1: none.

    found: is left with one row for each span long enough: first and last start, slack, GPU, a last
    start in order, and how well it serves by links; the first `gpus` rows are those chosen.
    """
    rows = 0
    for gpu in range(counts.size):
        for at in range(counts[gpu]):
            opens, closes = spans[gpu, at, 0], spans[gpu, at, 1]
            first = max(opens, earliest)
            last = min(closes, deadline) - duration
            if first <= last:
                found[rows, 0], found[rows, 1] = first, last
                found[rows, 2], found[rows, 3], found[rows, 4] = closes - opens, gpu, last
                rows += 1
    in_turn(found, rows)
    start, begun, over = -1, 0, 0
    for row in range(rows):
        instant = found[row, 0]
        while begun < rows and found[begun, 0] <= instant:
            begun += 1
        while found[over, 4] < instant:  # its own last start is not
            over += 1
        if begun - over >= gpus:
            start = instant
            break
    if start < 0:
        return -1
    if sizes.size > 1:
        prefer(found, rows, gpus, start, links, sizes)
    else:
        for row in range(rows):
            found[row, 5] = 0
    choose(found, rows, gpus, start)
    return start


@compiled
def cut(spans: Ints, counts: Ints, gpu: int, starts: int, ends: int) -> None:
    """Take a time of a GPU, of every span that it reaches; what is left begins on a whole second.

    Time to clean may reach over the end of a window into the next one.
    """
    after = -(-ends // 1_000) * 1_000
    at = counts[gpu] - 1
    while at >= 0:
        opens, closes = spans[gpu, at, 0], spans[gpu, at, 1]
        if opens < after and starts < closes:
            last = counts[gpu] - 1
            spans[gpu, at, 0], spans[gpu, at, 1] = spans[gpu, last, 0], spans[gpu, last, 1]
            counts[gpu] = last
            if opens < starts:
                spans[gpu, counts[gpu], 0], spans[gpu, counts[gpu], 1] = opens, starts
                counts[gpu] += 1
            if after < closes:
                spans[gpu, counts[gpu], 0], spans[gpu, counts[gpu], 1] = after, closes
                counts[gpu] += 1
        at -= 1


@compiled
def most_of(counts: Ints) -> int:
    """Return the largest of some numbers."""
    most = 0
    for count in counts:
        most = max(most, count)
    return most


def _any_of_them(
    levels: Seconds,
    durations: Seconds,
    soonest: Seconds,
    latest: Seconds,
    depth: np.int32,
    longest: np.int32,
    closes: np.int32,
    opens: np.int32,
) -> bool:
    found = 0  # compared several at once, for there is no way out
    for row in range(levels.size):
        found += (
            (levels[row] < depth)
            & (durations[row] <= longest)
            & (soonest[row] <= closes)
            & (latest[row] >= opens)
        )
    return found > 0


def _any_at_once(
    levels: Seconds,
    durations: Seconds,
    soonest: Seconds,
    latest: Seconds,
    depth: np.int32,
    longest: np.int32,
    closes: np.int32,
    opens: np.int32,
) -> bool:
    found = durations <= longest
    found &= levels < depth
    found &= soonest <= closes
    found &= latest >= opens
    return bool(found.any())


any_may = compiled_later(_any_of_them, _any_at_once)
"""Tell if any of some bids may find room."""


@compiled
def next_row(
    asked: Seconds,
    fits: Bools,
    waits: Bools,
    reach: Ints,
    levels: int,
    opens: int,
    closes: int,
    row: int,
    stop: int,
) -> int:
    """Return the first row from `row` on of a bid that may find room; `stop`: there is none."""
    looked = row + 1  # the first is looked at by itself: it often is the one
    while row < stop:
        if row >= looked:
            looked = min(row + ROWS_AT_ONCE, stop)
            if not any_may(
                asked[LEVEL, row:looked],
                asked[DURATION, row:looked],
                asked[SOONEST, row:looked],
                asked[LATEST, row:looked],
                np.int32(levels),
                np.int32(min(reach[2] // 1_000, FAR)),
                np.int32(min(closes, FAR)),
                np.int32(max(opens, -FAR)),
            ):
                row = looked
                continue
        level = asked[LEVEL, row]
        if (
            level < levels
            and asked[DURATION, row] * 1_000 <= reach[2 + level]
            and asked[SOONEST, row] <= closes
            and asked[LATEST, row] >= opens
            and fits[asked[SHAPE, row]]
            and waits[asked[SLOT, row]]
        ):
            return row
        row += 1
    return stop


@compiled
def next_part(
    order: Ints,
    asked: Seconds,
    stretches: Ints,
    fits: Bools,
    waits: Bools,
    reach: Ints,
    levels: int,
    opens: int,
    closes: int,
) -> int:
    """Move each part on to its next bid that may find room; return whose comes first; -1: none."""
    best, of = -1, -1
    for part in range(stretches.shape[0]):
        row, stop = stretches[part, 0], stretches[part, 1]
        row = next_row(asked, fits, waits, reach, levels, opens, closes, row, stop)
        stretches[part, 0] = row
        if row < stop and (
            best < 0
            or order[KEY, row] < order[KEY, best]
            or (order[KEY, row] == order[KEY, best] and order[SINCE, row] < order[SINCE, best])
        ):
            best, of = row, part
    return of


@compiled
def lay_out(order: Ints, bounds: Ints, groups: Ints, floor: int, stretches: Ints) -> int:
    """Write down the rows of groups that reach a floor, stretch by stretch; return how many.

    bounds: where the stretches of each group are; groups: which of them.
    """
    count = 0
    for group in groups:
        for part in range(2):
            start, row, high = (
                bounds[group, 2 * part],
                bounds[group, 2 * part],
                bounds[group, 2 * part + 1],
            )
            while row < high:
                middle = (row + high) // 2
                if order[KEY, middle] <= -floor:
                    row = middle + 1
                else:
                    high = middle
            if start < row:
                stretches[count, 0], stretches[count, 1] = start, row
                count += 1
    return count


@compiled
def serve(
    order: Ints,
    asked: Seconds,
    stretches: Ints,
    fits: Bools,
    waits: Bools,
    terms: Ints,
    spans: Ints,
    counts: Ints,
    links: Ints,
    sizes: Ints,
    reach: Ints,
    found: Ints,
    answers: Ints,
) -> tuple[int, int]:
    """Place the bids that the host can serve, one after the other, as far as that goes by itself.

    Args:
        stretches: for each part, the next row and the one after its last; moved on.
        fits: by shape; waits: by slot.
        spans, counts: when each GPU is free; changed.
        links: the number of each GPU's NVLink group, from 1 on, by name; 0: none.
        sizes, reach, found: to work with; sizes: one for each group, and one for none.
        answers: a row for each bid that was placed: its slot, its start and its GPUs; after them
            the slot of a bid that somebody has to look at.

    Returns:
        Why it ended (`NOBODY` to `FULL`), and how many bids were placed.
    """
    done, gap = 0, terms[CLEANING]
    while done < answers.shape[0]:
        if most_of(counts) + 1 >= spans.shape[1]:
            return FULL, done
        levels = longest(spans, counts, reach)
        if levels == 0:
            return NOBODY, done
        opens = (reach[0] - ZERO * 1_000) // 1_000
        closes = -((ZERO * 1_000 - reach[1]) // 1_000)
        start = -1
        while start < 0:
            of = next_part(order, asked, stretches, fits, waits, reach, levels, opens, closes)
            if of < 0:
                return NOBODY, done
            best, stretches[of, 0] = stretches[of, 0], stretches[of, 0] + 1
            answers[done, 0] = asked[SLOT, best]
            gpus = asked[GPUS, best]
            if gpus == 0:
                return LOOK, done
            duration = asked[DURATION, best] * 1_000
            if duration < terms[LEASE_MIN]:
                continue
            earliest = max(order[EARLIEST, best], terms[NOW])
            until = order[DEADLINE, best]
            start = placed(spans, counts, links, sizes, found, gpus, duration, earliest, until)
        answers[done, 1] = start
        for row in range(gpus):
            answers[done, 2 + row] = found[row, 3]
            cut(spans, counts, found[row, 3], start - gap, start + duration + gap)
        done += 1
    return MORE, done
