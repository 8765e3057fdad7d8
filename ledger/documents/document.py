"""What a document says, whatever it is written as: an invoice, a credit note, a statement."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. weight: its part of the width. numeric: aligned at the right."""

    title: str
    weight: int = 1
    numeric: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows under a heading. totals: rows that close it, the last one the most important."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    totals: tuple[tuple[str, ...], ...] = ()
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A document for people.

    title: what it is, with its number. issuer, addressee: name and address, line by line.
    facts: what stands beside the address, such as the date. notes: sentences below the tables.
    footer: on each page, left of the page number. language: of the fixed words, as BCP 47.
    """

    title: str
    issuer: tuple[str, ...]
    addressee: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    tables: tuple[Table, ...]
    notes: tuple[str, ...] = ()
    footer: str = ""
    language: str = "en"
