"""Reading one's own writes: rows are written a moment after the events they show.

A caller that names the position of its last write (`?after=`, or the header, which a repeat with
the same Idempotency-Key may change) is answered from rows that show it. A caller that names none
and is told "there is no such thing" may be asking for what it has just made: so nothing is called
missing before everything recorded until then has been read.
"""

from __future__ import annotations

from collections.abc import Sequence

from ledger.domain.refusal import Invalid
from ledger.domain.whole_numbers import whole_number
from ledger.eventstore.port import EventStore, Position
from ledger.following import wait_until_read
from ledger.models import Checkpoint

AFTER_HEADER = "Offpeak-After"
POSITION_MAX = 10**18 - 1
CATCH_UP_SECONDS = 2.0


class PositionUnreadable(Invalid):
    """`after` takes a position as an answer of a write gave it."""


def position_of(text: str, store: EventStore) -> Position:
    """Read a position that an earlier answer gave.

    Raises: PositionUnreadable.
    """
    try:
        position = Position(whole_number(text, least=0, most=POSITION_MAX))
    except ValueError:
        raise PositionUnreadable(after=text[:40]) from None
    if position > store.head():
        raise PositionUnreadable(after=text[:40])
    return position


def catch_up(names: Sequence[str], store: EventStore, *, timeout_seconds: float) -> bool:
    """Wait until the named projections have read all that is recorded now; False: they have not.

    Where one of them does not run at all, there is nothing to wait for.
    """
    if not names:
        return True
    head = store.head()
    rows = Checkpoint.objects.filter(name__in=names)
    positions = list(rows.values_list("position", flat=True))
    if len(positions) < len(set(names)) or min(positions) >= head:
        return True
    return wait_until_read(names, head, timeout_seconds=timeout_seconds)


__all__ = [
    "AFTER_HEADER",
    "CATCH_UP_SECONDS",
    "POSITION_MAX",
    "PositionUnreadable",
    "catch_up",
    "position_of",
]
