"""Every read model of the book of record."""

from __future__ import annotations

from ledger.following import Projection
from ledger.projections.disputes import DISPUTES
from ledger.projections.exports import EXPORTS
from ledger.projections.invoices import INVOICES
from ledger.projections.money import MONEY
from ledger.projections.notices import NOTICES
from ledger.projections.parties import PARTIES, TOKENS

PROJECTIONS: tuple[Projection, ...] = (PARTIES, TOKENS, MONEY, NOTICES, INVOICES, DISPUTES, EXPORTS)
