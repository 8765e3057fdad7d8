"""Statements, and invoices issued for owners, as one actor may see them."""

from __future__ import annotations

from uuid import UUID

from django.db.models import QuerySet

from ledger.access import Actor, visible
from ledger.domain.statements import PaperUnknown
from ledger.models import PaperRow, SelfBillingRow

NEWEST_PAPERS = ("-period", "-issued_at", "-number", "paper_id")


def papers(actor: Actor) -> QuerySet[PaperRow]:
    """Return the papers of the actor's own accounts; all for the platform's finance."""
    return PaperRow.objects.all() if actor.has_platform_money else visible(actor, PaperRow)


def paper(actor: Actor, paper_id: UUID) -> PaperRow:
    """Return one.

    Raises: PaperUnknown, also for one that the actor may not see.
    """
    found = papers(actor).filter(pk=paper_id).first()
    if found is None:
        raise PaperUnknown(paper_id=paper_id)
    return found


def self_billing(actor: Actor) -> QuerySet[SelfBillingRow]:
    """Return whether owners agreed to self-billing: the actor's own, or all for finance."""
    rows = SelfBillingRow.objects.all()
    return rows if actor.has_platform_money else visible(actor, SelfBillingRow)
