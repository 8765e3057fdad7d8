"""Documents for people to keep: said once as values, written as PDF."""

from __future__ import annotations

from importlib.metadata import version

from ledger.documents.document import Column, Document, Table

__all__ = ["RENDERER", "Column", "Document", "Table", "pdf_of"]

RENDERER = f"offpeak-pdf 1, reportlab {version('reportlab')}"
"""What wrote a file: another version may write other bytes for the same document."""


def pdf_of(document: Document) -> bytes:
    """Return a document as a PDF file."""
    # Only who writes one loads reportlab: it takes 16 MB, and every process of the market is here.
    from ledger.documents import pdf

    return pdf.pdf_of(document)
