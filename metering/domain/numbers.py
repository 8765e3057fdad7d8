"""Which numbers of samples were taken of one run of an agent, as spans [from, to) in order.

An agent counts up from one, so that one span is nearly always all there is: to keep it costs a few
bytes, however many samples there were. A number that was set aside leaves a hole.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

SPANS_MAX = 2_000
"""Of one run. Beyond, the earliest hole counts as taken: what comes for it is refused, never
counted twice."""

Spans = list[int]
"""from, to, from, to, …: sorted, and none touches the next."""


def is_taken(spans: Sequence[int], seq: int) -> bool:
    """Tell if a number lies in a span."""
    return bisect_right(spans, seq) % 2 == 1


def all_new(spans: Sequence[int], seqs: Sequence[int]) -> bool:
    """Tell if none of these numbers, which are in order, was taken before."""
    if not spans or not seqs or seqs[0] >= spans[-1]:
        return True
    at = bisect_right(spans, seqs[0])
    if at % 2 == 0 and (at == len(spans) or seqs[-1] < spans[at]):
        return True
    return not any(is_taken(spans, seq) for seq in seqs)


def taken_with(spans: Sequence[int], seqs: Iterable[int]) -> Spans:
    """Return the spans with these numbers, which are in order, taken as well."""
    added: Spans = []
    for seq in seqs:
        if added and added[-1] == seq:
            added[-1] = seq + 1
        else:
            added += [seq, seq + 1]
    if not spans or (added and added[0] > spans[-1]):
        merged = [*spans, *added]
    elif added and len(added) == 2 and added[0] == spans[-1]:
        merged = [*spans[:-1], added[1]]
    else:
        merged = _merged([*_pairs(spans), *_pairs(added)])
    surplus = len(merged) // 2 - SPANS_MAX
    return merged if surplus <= 0 else [merged[0], *merged[1 + 2 * surplus :]]


def _pairs(spans: Sequence[int]) -> list[tuple[int, int]]:
    return list(zip(spans[::2], spans[1::2], strict=True))


def _merged(pairs: list[tuple[int, int]]) -> Spans:
    found: Spans = []
    for start, end in sorted(pairs):
        if found and start <= found[-1]:
            found[-1] = max(found[-1], end)
        else:
            found += [start, end]
    return found
