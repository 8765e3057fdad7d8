"""Whom one host serves: the bids that wait are gone through in order of price and time.

What `placement` says of a host that lists each GPU once, its offers at different floors, in one
loop over columns: once compiled it goes through a hundred thousand bids in less time than Python
needs for ten.
"""

from __future__ import annotations

from marketplace.domain.kernels.jit import compiled
from marketplace.domain.kernels.layout import (
    DEADLINE,
    DURATION,
    EARLIEST,
    GPUS,
    KEY,
    SHAPE,
    SLOT,
    ZERO,
    Bools,
    Ints,
    Seconds,
)
from marketplace.domain.kernels.next_bid import next_part

NOBODY, MORE, LOOK, FULL = range(4)
"""Why `serve` ended: there is nobody more; there may be more, but no place to write them down;
a bid that somebody has to look at comes next; or there is no place for another span of a GPU."""
LEVELS_MAX = 16
TERMS = 5
PRICE, LEASE_MIN, CLEANING, FIRST, LAST = range(TERMS)
"""What `terms` says of each offer, cheapest first: its floor; the shortest lease, and how long is
cleaned between two of them, in milliseconds; its first GPU, and the one after its last."""


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

    In `found` stands the place of its offer, which goes before. links: the place of each GPU's
    NVLink group by name, from 1 on; 0: none. sizes: to work with.
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
        found[row, 5] = (found[row, 5] * 3 * most + rank) * most + group


@compiled
def serves_better(found: Ints, row: int, other: int) -> bool:
    """Compare two spans: floors, links, then tight gaps, then ids, which GPUs are numbered by."""
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
def first_start(found: Ints, rows: int, gpus: int) -> int:
    """Return the first instant at which so many spans have begun that are not over; -1: none."""
    in_turn(found, rows)
    begun, over = 0, 0
    for row in range(rows):
        instant = found[row, 0]
        while begun < rows and found[begun, 0] <= instant:
            begun += 1
        while found[over, 4] < instant:  # its own last start is not
            over += 1
        if begun - over >= gpus:
            return int(instant)
    return -1


@compiled
def placed(
    spans: Ints,
    counts: Ints,
    terms: Ints,
    specs: Ints,
    fits: int,
    limit: int,
    links: Ints,
    sizes: Ints,
    found: Ints,
    gpus: int,
    duration: int,
    earliest: int,
    deadline: int,
) -> int:
    """Find the first instant at which so many GPUs can begin, of the cheapest offers; -1: none.

    found: is left with one row for each span long enough: first and last start, slack, GPU, a last
    start in order, and how well it serves by floor and links; the first `gpus` rows are chosen.
    """
    rows = 0
    for offer in range(terms.shape[0]):
        if terms[offer, PRICE] > limit:
            break
        before = rows
        if terms[offer, LEASE_MIN] <= duration:
            for gpu in range(terms[offer, FIRST], terms[offer, LAST]):
                if specs[gpu] & fits == 0:
                    continue
                for at in range(counts[gpu]):
                    opens, closes = spans[gpu, at, 0], spans[gpu, at, 1]
                    first = max(opens, earliest)
                    last = min(closes, deadline) - duration
                    if first <= last:
                        found[rows, 0], found[rows, 1] = first, last
                        found[rows, 2], found[rows, 3], found[rows, 4] = closes - opens, gpu, last
                        rows += 1
        if rows < gpus or rows == before:
            continue
        start = first_start(found, rows, gpus)
        if start < 0:
            continue
        for row in range(rows):
            found[row, 5] = offer_of(terms, found[row, 3])
        if sizes.size > 1:
            prefer(found, rows, gpus, start, links, sizes)
        choose(found, rows, gpus, start)
        return start
    return -1


@compiled
def offer_of(terms: Ints, gpu: int) -> int:
    """Return the place of the offer that lists a GPU."""
    offer = 0
    while gpu >= terms[offer, LAST]:
        offer += 1
    return offer


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
def cut_clean(spans: Ints, counts: Ints, terms: Ints, gpu: int, starts: int, ends: int) -> None:
    """Take a time of a GPU, with what its offer asks for to clean it before and after."""
    gap = terms[offer_of(terms, gpu), CLEANING]
    cut(spans, counts, gpu, starts - gap, ends + gap)


@compiled
def most_of(counts: Ints) -> int:
    """Return the largest of some numbers."""
    most = 0
    for count in counts:
        most = max(most, count)
    return most


@compiled
def serve(
    order: Ints,
    asked: Seconds,
    stretches: Ints,
    fits: Ints,
    waits: Bools,
    now: int,
    terms: Ints,
    specs: Ints,
    spans: Ints,
    counts: Ints,
    links: Ints,
    sizes: Ints,
    reach: Ints,
    found: Ints,
    answers: Ints,
) -> tuple[int, int]:
    """Place the bids that the host can serve, one after the other; say why it ended."""
    done = 0
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
            gpus = int(asked[GPUS, best])
            if gpus == 0:
                return LOOK, done
            duration = int(asked[DURATION, best]) * 1_000  # as Python 32 bits would not hold it
            start = placed(
                spans,
                counts,
                terms,
                specs,
                fits[asked[SHAPE, best]],
                -order[KEY, best],
                links,
                sizes,
                found,
                gpus,
                duration,
                max(order[EARLIEST, best], now),
                order[DEADLINE, best],
            )
        answers[done, 1] = start
        for row in range(gpus):
            answers[done, 2 + row] = found[row, 3]
            cut_clean(spans, counts, terms, found[row, 3], start, start + duration)
        done += 1
    return MORE, done


# What `serve` is told, and says: it goes on as far as that goes by itself.
#   stretches: for each part, the next row and the one after its last; moved on.
#   fits: by shape, which specs do, a bit for each; waits: by slot.
#   now: nothing starts before. specs: the bit of each GPU's.
#   spans, counts: when each GPU is free; changed.
#   links: the number of each GPU's NVLink group, from 1 on, by name; 0: none.
#   sizes, reach, found: to work with; sizes: one for each group, and one for none.
#   answers: a row for each bid that was placed: its slot, its start and its GPUs; after them the
#       slot of a bid that somebody has to look at.
#   Returned: why it ended (`NOBODY` to `FULL`), and how many bids were placed.
