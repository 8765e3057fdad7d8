"""Exports of a period: the same bytes for the same period, actor and event position."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ledger.access import Actor
from ledger.domain.money import Money
from ledger.domain.periods import Period
from ledger.domain.refusal import Invalid
from ledger.domain.whole_numbers import whole_number
from ledger.eventstore.port import Position
from ledger.exports import beancount, focus, gl
from ledger.exports.charges import Charge, charges
from ledger.exports.entries import Books, Entry
from ledger.queries import read_up_to


class ExportFormatUnknown(Invalid):
    """There is no such export. Known are focus, beancount and gl."""


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


@dataclass(slots=True)
class Tally:
    """What went into an export: rows, and by currency what they add up to."""

    rows: int = 0
    sums: dict[str, int] = field(default_factory=dict)

    def count_charges(self, rows: Iterator[Charge]) -> Iterator[Charge]:
        """Pass charges on and add up what they cost; what was paid in is no cost."""
        for charge in rows:
            cost = Money(0) if charge.kind == "purchase" else charge.money
            self._add(charge.money.currency, cost.nanos)
            yield charge

    def count_entries(self, rows: Iterator[Entry]) -> Iterator[Entry]:
        """Pass entries on and add up what they moved."""
        for entry in rows:
            self._add(entry.currency, sum(nanos for _, nanos in entry.lines if nanos > 0))
            yield entry

    def _add(self, currency: str, nanos: int) -> None:
        self.rows += 1
        self.sums[currency] = self.sums.get(currency, 0) + nanos


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What an export holds, to compare a copy with: made by writing it once.

    rows: charges, or journal entries. sums_nanos: by currency, what the charges cost or what
    the entries moved.
    """

    format: str
    version: str
    period: str
    position: int
    rows: int
    sums_nanos: dict[str, int]
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A kind of export."""

    version: str
    media_type: str
    suffix: str
    lines: Callable[[Actor, Period, Position, Tally], Iterator[str]]


def _focus(actor: Actor, period: Period, position: Position, tally: Tally) -> Iterator[str]:
    rows = charges(actor, period=period, position=position)
    return focus.lines(tally.count_charges(rows), period=period)


def _beancount(actor: Actor, period: Period, position: Position, tally: Tally) -> Iterator[str]:
    return beancount.lines(_Counted(actor, period=period, position=position, tally=tally))


def _gl(actor: Actor, period: Period, position: Position, tally: Tally) -> Iterator[str]:
    return gl.lines(_Counted(actor, period=period, position=position, tally=tally))


class _Counted(Books):
    def __init__(self, actor: Actor, *, period: Period, position: Position, tally: Tally) -> None:
        super().__init__(actor, period=period, position=position)
        self._tally = tally

    def entries(self) -> Iterator[Entry]:
        return self._tally.count_entries(super().entries())


FORMATS: dict[str, Format] = {
    "focus": Format(version=focus.VERSION, media_type="text/csv", suffix="csv", lines=_focus),
    "beancount": Format(
        version="beancount 2", media_type="text/plain", suffix="beancount", lines=_beancount
    ),
    "gl": Format(version="offpeak-gl 2", media_type="text/csv", suffix="csv", lines=_gl),
}


def format_named(name: str) -> Format:
    """Return an export format.

    Raises: ExportFormatUnknown.
    """
    if name not in FORMATS:
        raise ExportFormatUnknown(given=name[:40], known=sorted(FORMATS))
    return FORMATS[name]


def export(actor: Actor, name: str, *, period: Period, position: Position) -> Iterator[bytes]:
    """Yield an export's bytes.

    Raises: ExportFormatUnknown, at once.
    """
    lines = format_named(name).lines(actor, period, position, Tally())
    return (line.encode() for line in lines if line)


def manifest(actor: Actor, name: str, *, period: Period, position: Position) -> Manifest:
    """Write an export once and say what it holds.

    Raises: ExportFormatUnknown.
    """
    kind, tally, digest, size = format_named(name), Tally(), hashlib.sha256(), 0
    for line in kind.lines(actor, period, position, tally):
        data = line.encode()
        digest.update(data)
        size += len(data)
    return Manifest(
        format=name,
        version=kind.version,
        period=str(period),
        position=position,
        rows=tally.rows,
        sums_nanos=dict(sorted(tally.sums.items())),
        bytes=size,
        sha256=digest.hexdigest(),
    )
