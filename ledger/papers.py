"""The files of documents: as they were put away, else as they will be."""

from __future__ import annotations

from collections.abc import Iterable

from ledger.documents import pdf_of
from ledger.documents.document import Column, Document, Table
from ledger.documents.papers import credit_paper, invoice_paper
from ledger.documents.self_billed import paper_of
from ledger.domain.credit_notes import CreditNoteUnknown
from ledger.domain.money import decimal_of
from ledger.models import CreditNoteRow, InvoiceRow, PaperRow, PayoutRow
from ledger.queries.invoices import file_of
from ledger.queries.payouts import EarnedBy


def file_of_invoice(row: InvoiceRow) -> bytes:
    """Return the PDF of an invoice that whoever asks may see."""
    return file_of(row.pk) or pdf_of(invoice_paper(row))


def file_of_credit_note(row: CreditNoteRow, invoice: InvoiceRow) -> bytes:
    """Return the PDF of a credit note that whoever asks may see. invoice: what it corrects.

    Raises: CreditNoteUnknown for one that is not issued.
    """
    if row.state != "issued":
        raise CreditNoteUnknown(credit_id=row.pk)
    return file_of(row.pk) or pdf_of(credit_paper(row, invoice))


def file_of_paper(row: PaperRow) -> bytes:
    """Return the PDF of a statement, or of an owner's invoice, that whoever asks may see."""
    return file_of(row.pk) or pdf_of(paper_of(row))


def file_of_payout(
    row: PayoutRow, earned: Iterable[EarnedBy], *, owner: str, payer: str, words: dict[str, str]
) -> bytes:
    """Return the PDF of a payout's statement that whoever asks may see: a line for each month, kind
    and GPU, to the nano-unit. words: of kinds of entries, by kind."""
    sums: dict[tuple[str, str, str], list[int]] = {}
    for each in earned:
        sku = each.sku if each.gpu_millis else ""
        summed = sums.setdefault((each.period, each.kind, sku), [0, 0, 0])
        for index, nanos in enumerate((each.gross_nanos, each.fee_nanos, each.nanos)):
            summed[index] += nanos
    rows = [
        (
            " ".join(filter(None, (words.get(kind, kind), sku))),
            period,
            *(_exact(each) for each in summed),
        )
        for (period, kind, sku), summed in sorted(sums.items())
    ]
    said = [("Settlement", row.period), ("Cut-off", f"{row.cut_off} 00:00 UTC")]
    said += [("State", row.state), ("Payout", str(row.payout_id))]
    if row.paid_on:
        said += [("Paid on", row.paid_on.isoformat()), ("Reference", row.reference)]
    table = Table(
        columns=(
            Column("Line", 5),
            Column("Month", 2),
            *(Column(name, 3, numeric=True) for name in ("Consumers paid", "Fee", "Amount")),
        ),
        rows=(("Owed before", "", "", "", _exact(row.opening_nanos)), *rows),
        totals=(
            ("Owed after", "", "", "", _exact(row.closing_nanos)),
            (f"Paid out, {row.currency}", "", "", "", _exact(row.nanos)),
        ),
    )
    return pdf_of(
        Document(
            title=f"Statement of payout {row.period}",
            issuer=(payer,),
            addressee=(owner,),
            facts=tuple(said),
            tables=(table,),
            notes=("Owed before and the lines, less what was paid out, make what is owed after.",),
            footer=f"{payer} · {row.payout_id}",
        )
    )


def _exact(nanos: int) -> str:
    return decimal_of(nanos)
