"""Every kind of file that a month may be taken out in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ledger.access import Actor
from ledger.domain.gl_mapping import GlMapping
from ledger.domain.periods import Period
from ledger.domain.refusal import Invalid
from ledger.eventstore.port import Position
from ledger.exports import (
    beancount,
    focus_csv,
    focus_parquet,
    gl,
    gl_forms,
    hledger,
    xlsx,
)
from ledger.exports.charges import Charge, charges
from ledger.exports.entries import Books
from ledger.exports.focus_columns import COLUMNS_1_2, COLUMNS_1_3
from ledger.exports.tally import CountedBooks, Tally
from ledger.queries.exports import gl_mapping

PIECE_BYTES = 65_536
"""Lines are handed on together, so many bytes at a time."""


class ExportFormatUnknown(Invalid):
    """There is no such export.

    Known are focus, gl, beancount, hledger, xlsx and forms of them; the page of exports lists all.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A kind of export. version: changes whenever the same rows would give other bytes."""

    title: str
    version: str
    media_type: str
    suffix: str
    parts: Callable[[Actor, Period, Position, Tally], Iterator[bytes]]

    @property
    def content_type(self) -> str:
        """Return how HTTP calls it."""
        is_text = self.media_type.startswith("text/")
        return f"{self.media_type}; charset=utf-8" if is_text else self.media_type


def _counted(actor: Actor, period: Period, position: Position, tally: Tally) -> Iterator[Charge]:
    return tally.count_charges(charges(actor, period=period, position=position))


def _focus(columns: Sequence[str], *, version: str, title: str) -> Format:
    def parts(actor: Actor, period: Period, position: Position, tally: Tally) -> Iterator[bytes]:
        told = _counted(actor, period, position, tally)
        return _together(focus_csv.lines(told, period=period, columns=columns))

    return Format(version=version, title=title, media_type="text/csv", suffix="csv", parts=parts)


def _parquet(columns: Sequence[str], *, version: str, title: str) -> Format:
    def parts(actor: Actor, period: Period, position: Position, tally: Tally) -> Iterator[bytes]:
        told = _counted(actor, period, position, tally)
        return focus_parquet.parts(told, period=period, columns=columns)

    return Format(
        version=f"{version} Parquet 3, {focus_parquet.WRITER}",
        title=title,
        media_type="application/vnd.apache.parquet",
        suffix="parquet",
        parts=parts,
    )


def _books(
    lines: Callable[[Books], Iterator[str]],
    *,
    version: str,
    title: str,
    media_type: str = "text/csv",
    suffix: str = "csv",
) -> Format:
    def parts(actor: Actor, period: Period, position: Position, tally: Tally) -> Iterator[bytes]:
        books = CountedBooks(actor, period=period, position=position, tally=tally)
        return _together(lines(books))

    return Format(version=version, title=title, media_type=media_type, suffix=suffix, parts=parts)


def _mapped(
    lines: Callable[[Books, GlMapping], Iterator[str]],
) -> Callable[[Books], Iterator[str]]:
    return lambda books: lines(books, gl_mapping(books.position))


def _xlsx(actor: Actor, period: Period, position: Position, tally: Tally) -> Iterator[bytes]:
    books = CountedBooks(actor, period=period, position=position, tally=Tally())
    return xlsx.parts(books, _counted(actor, period, position, tally))


def _together(lines: Iterator[str]) -> Iterator[bytes]:
    """Yield lines in pieces of some size: each one sent by itself would take longer than it."""
    held: list[str] = []
    size = 0
    for line in lines:
        held.append(line)
        size += len(line)
        if size >= PIECE_BYTES:
            yield "".join(held).encode()
            held.clear()
            size = 0
    if size:
        yield "".join(held).encode()


FORMATS: dict[str, Format] = {
    "focus": _focus(COLUMNS_1_2, version="FOCUS 1.2", title="FOCUS 1.2"),
    "focus-parquet": _parquet(COLUMNS_1_2, version="FOCUS 1.2", title="FOCUS 1.2, Parquet"),
    "focus-1.3": _focus(COLUMNS_1_3, version="FOCUS 1.3", title="FOCUS 1.3"),
    "focus-1.3-parquet": _parquet(COLUMNS_1_3, version="FOCUS 1.3", title="FOCUS 1.3, Parquet"),
    "xlsx": Format(
        version=f"offpeak-xlsx 1, {xlsx.WRITER}",
        title="Workbook (XLSX)",
        media_type="application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        suffix="xlsx",
        parts=_xlsx,
    ),
    "gl": _books(gl.lines, version="offpeak-gl 2", title="General ledger"),
    "gl-sap": _books(_mapped(gl_forms.sap), version="offpeak-gl-sap 1", title="SAP"),
    "gl-netsuite": _books(
        _mapped(gl_forms.netsuite), version="offpeak-gl-netsuite 1", title="NetSuite"
    ),
    "gl-iif": _books(
        _mapped(gl_forms.iif),
        version="offpeak-gl-iif 1",
        title="QuickBooks (IIF)",
        media_type="text/plain",
        suffix="iif",
    ),
    "beancount": _books(
        beancount.lines,
        version="beancount 2",
        title="beancount",
        media_type="text/plain",
        suffix="beancount",
    ),
    "hledger": _books(
        hledger.lines,
        version="hledger 1",
        title="hledger",
        media_type="text/plain",
        suffix="journal",
    ),
}


def format_named(name: str) -> Format:
    """Return an export format.

    Raises: ExportFormatUnknown.
    """
    if name not in FORMATS:
        raise ExportFormatUnknown(given=name[:40], known=sorted(FORMATS))
    return FORMATS[name]
