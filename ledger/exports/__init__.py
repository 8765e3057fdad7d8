"""Exports of a period: the same bytes for the same period, actor and event position."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ledger.access import Actor
from ledger.domain.periods import Period, read_period
from ledger.domain.refusal import Invalid
from ledger.domain.whole_numbers import whole_number
from ledger.eventstore.port import EventStore, Position
from ledger.exports.formats import FORMATS, ExportFormatUnknown, Format, format_named
from ledger.exports.tally import Tally
from ledger.queries import read_up_to
from ledger.queries.exports import entries_between

__all__ = [
    "FORMATS",
    "Difference",
    "ExportFormatUnknown",
    "Format",
    "Manifest",
    "PositionAhead",
    "difference",
    "export",
    "format_named",
    "manifest",
    "position_asked",
    "with_head",
]

ENTRIES_NAMED = 1_000


class PositionAhead(Invalid):
    """An export can only be made of what has been recorded and read.

    Leave `position` out, or take one that an earlier answer gave you.
    """


def position_asked(text: str | None) -> Position:
    """Return the position that was asked for; None: of the newest event that was read.

    Raises: PositionAhead.
    """
    read = read_up_to()
    try:
        return read if text is None else Position(whole_number(text, least=0, most=read))
    except ValueError:
        raise PositionAhead(position=(text or "")[:40], position_max=read) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What an export holds, to compare a copy with: made by writing it once.

    rows: charges, or journal entries. sums_nanos: by currency, what the charges cost or what
    the entries moved. scope: `everything`, or the tenant whose accounts alone are in it. head_hash:
    of the event at `position`, which covers all before it; "" where the store chains none.
    """

    format: str
    version: str
    period: str
    position: int
    rows: int
    sums_nanos: dict[str, int]
    bytes: int
    sha256: str
    scope: str = "everything"
    head_hash: str = ""


def export(actor: Actor, name: str, *, period: Period, position: Position) -> Iterator[bytes]:
    """Yield an export's bytes.

    Raises: ExportFormatUnknown, at once.
    """
    return format_named(name).parts(actor, period, position, Tally())


def manifest(
    actor: Actor,
    name: str,
    *,
    period: Period,
    position: Position,
    write: Callable[[bytes], object] | None = None,
    told: Callable[[int, int], None] | None = None,
) -> Manifest:
    """Write an export once and say what it holds.

    write: takes its bytes, piece by piece. told: takes how many rows and bytes there are so far,
    after each piece.

    Raises: ExportFormatUnknown.
    """
    kind, tally, digest, size = format_named(name), Tally(), hashlib.sha256(), 0
    for piece in kind.parts(actor, period, position, tally):
        digest.update(piece)
        size += len(piece)
        if write is not None:
            write(piece)
        if told is not None:
            told(tally.rows, size)
    return Manifest(
        format=name,
        version=kind.version,
        period=str(period),
        position=position,
        rows=tally.rows,
        sums_nanos=dict(sorted(tally.sums.items())),
        bytes=size,
        sha256=digest.hexdigest(),
        scope="everything" if actor.sees_all else f"tenant {actor.tenant_id}",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How an export differs from what it was as of an earlier event, such as before a correction.

    position, sha256: of the earlier one. rows, sums_nanos: what it has more, by currency; less is
    below zero. entries: ids of the journal entries that came, the first `ENTRIES_NAMED`;
    entries_count: how many that were.
    """

    position: int
    sha256: str
    rows: int
    sums_nanos: dict[str, int]
    entries: tuple[str, ...]
    entries_count: int


def difference(actor: Actor, said: Manifest, *, since: Position) -> Difference:
    """Return how an export differs from the same as of `since`, which is written anew for it."""
    period = read_period(said.period)
    was = manifest(actor, said.format, period=period, position=since)
    sums = {
        currency: said.sums_nanos.get(currency, 0) - was.sums_nanos.get(currency, 0)
        for currency in sorted({*said.sums_nanos, *was.sums_nanos})
    }
    came = entries_between(actor, period, after=since, until=said.position)
    return Difference(
        position=since,
        sha256=was.sha256,
        rows=said.rows - was.rows,
        sums_nanos={currency: nanos for currency, nanos in sums.items() if nanos},
        entries=tuple(str(each) for each in came[:ENTRIES_NAMED]),
        entries_count=came.count(),
    )


def with_head(said: Manifest, store: EventStore) -> Manifest:
    """Return a manifest with the hash of the event that the export is as of."""
    if said.position <= 0:
        return said
    page = store.read_all(after=Position(said.position - 1), limit=1)
    for recorded in page.events:
        if recorded.position == said.position and recorded.hash is not None:
            return replace(said, head_hash=recorded.hash.hex())
    return said
