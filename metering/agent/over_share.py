"""GPU memory that a lease's work holds beyond its share, and when that is too much. Pure.

Nothing but this bounds memory on a share by time slices. By MPS the driver bounds each process, and
this all of a lease's together. A little more is let be: the driver counts a context of its own for
each process, and what is freed at once harms nobody.
"""

from __future__ import annotations

from dataclasses import dataclass

TOLERANCE_MIB = 512
TOLERANCE_PERCENT = 5
"""So much more than its share a lease may hold, the larger of both."""
PATIENCE_MS = 5_000
"""Work that holds more for so long, at every look, is asked to end."""
GRACE_MS_MAX = 30_000
"""Work that was asked to end, and goes on holding more, is killed so long after, or sooner."""
BEGINS = "its GPU memory was over its share: "


@dataclass(frozen=True, slots=True)
class Over:
    """Work that holds too much. since_ms, seen_ms: the first and the last of the looks, all in a
    row, that saw it; most_mib: in all of them.
    """

    share_mib: int
    since_ms: int
    seen_ms: int
    most_mib: int


def allowed_mib(share_mib: int) -> int:
    """Return how much a lease with such a share may hold for good."""
    return share_mib + max(TOLERANCE_MIB, share_mib * TOLERANCE_PERCENT // 100)


def follow(
    before: Over | None, *, share_mib: int | None, held_mib: int | None, now_ms: int
) -> Over | None:
    """Return what a look makes of what the looks before it saw; None: not too much.

    share_mib None: a card of its own. held_mib: by all its processes; None: it cannot be seen, and
    nobody is stopped by what was not seen.
    """
    if share_mib is None or held_mib is None or held_mib <= allowed_mib(share_mib):
        return None
    if before is None:
        return Over(share_mib, now_ms, now_ms, held_mib)
    return Over(share_mib, before.since_ms, now_ms, max(before.most_mib, held_mib))


def said(over: Over | None) -> str:
    """Return why work is to end; empty: it is not, or not yet."""
    if over is None or over.seen_ms - over.since_ms < PATIENCE_MS:
        return ""
    return (
        f"{BEGINS}{over.most_mib} MiB, where {over.share_mib} MiB are its own and"
        f" {allowed_mib(over.share_mib)} MiB are let be for {PATIENCE_MS // 1000} s"
    )
