"""Reads what a bank tells of what it booked: ISO 20022 camt.054, in versions 2 to 13.

What comes from outside is read with care: a document that declares types or entities is refused
before any of them is read, so nothing is expanded and nothing fetched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import NoReturn
from xml.etree.ElementTree import Element, ParseError, TreeBuilder, XMLParser

from ledger.domain.bank_lines import BankLine, reason_of
from ledger.domain.money import NANOS_MAX, NANOS_PER_UNIT, Money
from ledger.domain.refusal import Invalid

NAMESPACE = re.compile(
    r"\{urn:iso:std:iso:20022:tech:xsd:camt\.054\.001\.(0[2-9]|1[0-3])\}Document"
)
LINES_MAX = 5_000
TEXT_MAX = 200
CURRENCY = re.compile(r"[A-Z]{3}")


class BankNoticeUnreadable(Invalid):
    """This is no camt.054 that can be read; `because` says why.

    Ask the bank for "debit and credit notifications" (camt.054), and upload the file as it is.
    """


class BankNoticeTooLong(Invalid):
    """A file has at most 5,000 lines: ask the bank for one of fewer days."""


class _NoTypes(TreeBuilder):
    def doctype(self, name: str, pubid: str | None, system: str | None) -> NoReturn:
        raise BankNoticeUnreadable(because="it declares a document type, which no bank's file does")


def read(data: bytes | str) -> list[BankLine]:
    """Return the lines of a camt.054 in the order of the file.

    An entry of several payments has a line for each; one without details has a single line.

    Raises: BankNoticeUnreadable, BankNoticeTooLong.
    """
    parser = XMLParser(target=_NoTypes())
    try:
        parser.feed(data)
        root: Element = parser.close()
    except (ParseError, ValueError, LookupError):
        raise BankNoticeUnreadable(because="it is not XML") from None
    if not NAMESPACE.fullmatch(root.tag):
        raise BankNoticeUnreadable(because="it is another kind of document")
    lines: list[BankLine] = []
    for line in _lines(root):
        if len(lines) == LINES_MAX:
            raise BankNoticeTooLong(most=LINES_MAX)
        lines.append(line)
    return lines


def _lines(root: Element) -> Iterator[BankLine]:
    for notice in _all(root, "BkToCstmrDbtCdtNtfctn", "Ntfctn"):
        for entry in _all(notice, "Ntry"):
            details = _all(entry, "NtryDtls", "TxDtls")
            for each in details or [entry]:
                yield _line(entry, each, alone=len(details) < 2)


def _line(entry: Element, each: Element, *, alone: bool) -> BankLine:
    """Return one payment of an entry. alone: the entry's amount is its own."""
    came = _text(each, "CdtDbtInd") or _text(entry, "CdtDbtInd")
    if came not in ("CRDT", "DBIT"):
        raise BankNoticeUnreadable(because="an entry does not say if it is debit or credit")
    status = _text(entry, "Sts", "Cd") or _text(entry, "Sts")
    returned = _one(each, "RtrInf")
    return BankLine(
        end_to_end_id=_text(each, "Refs", "EndToEndId")[:TEXT_MAX],
        money=_money(entry, each, alone=alone),
        came=came == "CRDT",
        booked=status == "BOOK",
        reference=_reference(entry, each),
        on=_day(entry),
        words=reason_of(
            _text(returned, "Rsn", "Cd") or _text(returned, "Rsn", "Prtry"),
            _text(returned, "AddtlInf"),
        )[:TEXT_MAX],
    )


def _money(entry: Element, each: Element, *, alone: bool) -> Money:
    found = _one(each, "Amt")
    if found is None:
        found = _one(each, "AmtDtls", "TxAmt", "Amt")
    if found is None and alone:
        found = _one(entry, "Amt")
    if found is None:
        raise BankNoticeUnreadable(because="a payment among several has no amount")
    currency = found.get("Ccy", "")
    try:
        nanos = Decimal((found.text or "").strip()) * NANOS_PER_UNIT
    except InvalidOperation:
        raise BankNoticeUnreadable(because="an amount is no number") from None
    if not CURRENCY.fullmatch(currency) or not nanos.is_finite() or nanos != int(nanos):
        raise BankNoticeUnreadable(because="an amount has no currency, or too many places")
    if not 0 <= nanos <= NANOS_MAX:
        raise BankNoticeUnreadable(because="an amount is out of bounds")
    return Money(int(nanos), currency)


def _reference(entry: Element, each: Element) -> str:
    """Return what the bank calls a payment: its own words first, then those of the entry."""
    places = (
        _text(each, "Refs", "AcctSvcrRef"),
        _text(each, "Refs", "TxId"),
        _text(entry, "AcctSvcrRef"),
        _text(entry, "NtryRef"),
        _text(each, "Refs", "EndToEndId"),
    )
    return next((each for each in places if each), "no reference")[:TEXT_MAX]


def _day(entry: Element) -> date:
    for place in ("BookgDt", "ValDt"):
        said = _text(entry, place, "Dt") or _text(entry, place, "DtTm")
        if said:
            try:
                return date.fromisoformat(said[:10])
            except ValueError:
                raise BankNoticeUnreadable(because="a day cannot be read") from None
    raise BankNoticeUnreadable(because="an entry does not say when it was booked")


# --- elements by their names, whatever the version --------------------------------------------


def _all(parent: Element, *names: str) -> list[Element]:
    found = [parent]
    for name in names:
        found = [each for one in found for each in one if each.tag.rpartition("}")[2] == name]
    return found


def _one(parent: Element | None, *names: str) -> Element | None:
    found = [] if parent is None else _all(parent, *names)
    return found[0] if found else None


def _text(parent: Element | None, *names: str) -> str:
    found = _one(parent, *names)
    return "" if found is None else (found.text or "").strip()
