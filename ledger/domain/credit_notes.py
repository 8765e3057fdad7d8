"""How much of an invoice may be credited, and the tax that goes back with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from ledger.domain.holds import TEXT_LENGTH_MAX, need_text
from ledger.domain.invoice_events import CreditedLine, CreditNoteIssued, InvoiceIssued, TaxTotal
from ledger.domain.money import Money
from ledger.domain.refusal import Invalid, Refusal, Unknown
from ledger.domain.rounding import unit_of
from ledger.domain.tax import tax_on


class CreditNoteUnknown(Unknown):
    """Nobody asked for such a credit note, or it was decided on already."""


class CreditNoteAskedOtherwise(Refusal):
    """This id already names a credit note with other lines or another reason."""


class CreditReasonMissing(Invalid):
    """A credit note has a reason, in words for whoever approves it and for who gets it."""


class CreditLineUnknown(Invalid):
    """The invoice has no such line, or the line charges nothing that could be credited.

    Name each line once, by its `line_id`.
    """


class CreditNotWhole(Invalid):
    """A credit is more than zero, and in whole cents like the invoice's lines."""


class CreditExceedsLine(Refusal):
    """That is more than is left of the line, or of the invoice, after what was credited before.

    Credit notes that wait for approval count as credited.
    """


class NothingToCredit(Refusal):
    """Nothing is left of this invoice that could be credited."""


def need_reason(reason: str) -> None:
    """Refuse a credit without words why. Raises: CreditReasonMissing, TextUnreadable."""
    if not reason.strip():
        raise CreditReasonMissing()
    need_text(reason, length_max=TEXT_LENGTH_MAX)


def left_of(
    invoice: InvoiceIssued, given: Iterable[Iterable[CreditedLine]]
) -> tuple[dict[str, int], int]:
    """Return what can still be credited, by line, and in all. given: the credits before."""
    gone = Counter[str]()
    for lines in given:
        for each in lines:
            gone[each.line_id] += each.nanos
    left = {line.line_id: line.nanos - gone[line.line_id] for line in invoice.lines}
    return {key: nanos for key, nanos in left.items() if nanos > 0}, invoice.net_nanos - sum(
        gone.values()
    )


def within_lines(
    invoice: InvoiceIssued, lines: Sequence[CreditedLine], given: Iterable[Iterable[CreditedLine]]
) -> tuple[CreditedLine, ...]:
    """Return the lines to credit; none named: all that is left, as far as the net sum goes.

    Raises: CreditLineUnknown, CreditNotWhole, CreditExceedsLine, NothingToCredit.
    """
    left, in_all = left_of(invoice, given)
    if not lines:
        chosen: list[CreditedLine] = []
        for line_id, nanos in left.items():
            part = min(nanos, in_all - sum(each.nanos for each in chosen))
            if part > 0:
                chosen.append(CreditedLine(line_id=line_id, nanos=part))
        if not chosen:
            raise NothingToCredit(number=invoice.number)
        return tuple(chosen)
    charged = {line.line_id for line in invoice.lines if line.nanos > 0}
    unit = unit_of(invoice.currency)
    for each in lines:
        if each.line_id not in charged:
            raise CreditLineUnknown(line_id=each.line_id[:40])
        if each.nanos <= 0 or each.nanos % unit:
            raise CreditNotWhole(line_id=each.line_id)
        if each.nanos > left.get(each.line_id, 0):
            most = Money(left.get(each.line_id, 0), invoice.currency)
            raise CreditExceedsLine(line_id=each.line_id, left=most)
    if len({each.line_id for each in lines}) < len(lines):
        raise CreditLineUnknown()
    if sum(each.nanos for each in lines) > in_all:
        raise CreditExceedsLine(left=Money(in_all, invoice.currency))
    return tuple(lines)


def taxes_credited(
    invoice: InvoiceIssued, lines: Sequence[CreditedLine], before: Iterable[CreditNoteIssued]
) -> tuple[TaxTotal, ...]:
    """Return the tax that goes back with these lines.

    It is worked out on all that was credited so far, less the tax credited before: so an invoice
    that is credited whole, in whatever parts, gives back its tax to the cent.
    """
    code_of = {line.line_id: line.tax for line in invoice.lines}
    base_before, tax_before, base = Counter[str](), Counter[str](), Counter[str]()
    for note in before:
        for tax in note.taxes:
            base_before[tax.code] += tax.base_nanos
            tax_before[tax.code] += tax.nanos
    for each in lines:
        base[code_of[each.line_id]] += each.nanos
    unit = unit_of(invoice.currency)
    return tuple(
        TaxTotal(
            code=tax.code,
            title=tax.title,
            rate_ppm=tax.rate_ppm,
            base_nanos=base[tax.code],
            nanos=tax_on(base_before[tax.code] + base[tax.code], tax.rate_ppm, unit)
            - tax_before[tax.code],
            note=tax.note,
        )
        for tax in invoice.taxes
        if base[tax.code]
    )
