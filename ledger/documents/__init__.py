"""Documents for people to keep: said once as values, written as PDF."""

from __future__ import annotations

from ledger.documents.document import Column, Document, Table
from ledger.documents.pdf import RENDERER, pdf_of

__all__ = ["RENDERER", "Column", "Document", "Table", "pdf_of"]
