"""What an owner lets the market do on a host, as rules. Pure: no clock, no I/O.

There are two switches, one at the host and one on the market, and the stricter one holds: nobody
who has one of them can put the other back on.
"""

from __future__ import annotations

from dataclasses import replace

from ..reconcile import Held, Terms
from ..wire import Taking

STRICTNESS: tuple[Taking, ...] = ("all", "paused", "draining", "released")
NO_NEW = "the owner of this host takes no new work at the moment"
DRAINED = "the owner of this host drained it"
RELEASED = "the owner of this host took its GPUs back at once"
BY_OWNER = frozenset({NO_NEW, DRAINED, RELEASED})
"""Why work ended, where that is the owner's doing and paid for like a reclaim."""


def stricter(one: Taking, other: Taking) -> Taking:
    """Return the one of two words that lets less be done."""
    return max(one, other, key=STRICTNESS.index)


def drained(terms: Terms, *, since_ms: int) -> Terms:
    """Return the terms of a lease on a host that is drained: as reclaimed, with its own notice.

    Of a lease whose notice was never told, the terms stay: it ends when it ends.
    """
    if terms.notice_ms is None or terms.phase == "stop":
        return terms
    stop_ms = since_ms + terms.notice_ms
    if stop_ms >= terms.deadline_ms:
        return terms
    return replace(terms, phase="warn", stop_ms=stop_ms)


def under(held: Held, taking: Taking, *, since_ms: int, stated_grace: bool = False) -> Held:
    """Return a lease as it is to be treated under the owner's hand.

    since_ms: when the owner said so. stated_grace: work that is released has the grace that was
    agreed; otherwise it is killed at once.
    """
    if taking == "all":
        return held
    declined = NO_NEW if taking != "released" else RELEASED
    if taking == "draining":
        terms = drained(held.terms, since_ms=since_ms)
        is_sooner = terms.deadline_ms < held.terms.deadline_ms
        return replace(held, terms=terms, declined=declined, early=DRAINED if is_sooner else "")
    if taking == "released":
        grace_ms = held.terms.grace_ms if stated_grace else 0
        terms = replace(held.terms, phase="stop", grace_ms=grace_ms)
        return replace(held, terms=terms, declined=declined, early=RELEASED)
    return replace(held, declined=declined)
