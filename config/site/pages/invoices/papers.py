"""Statements of months, and invoices that the platform issued for owners."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from config.site.forms.answers import done, meta_of, page
from config.site.pages.invoices.views import MONTHS_SHOWN, issuer_of, pdf
from config.site.parts.figures import places_of
from config.site.parts.paging import part_of
from ledger import stating
from ledger.access import Actor
from ledger.access.visits import actor_of
from ledger.documents.statements import held_words
from ledger.domain.periods import read_period
from ledger.domain.refusal import Refusal
from ledger.eventstore import default_store
from ledger.papers import file_of_paper
from ledger.queries import papers as queries
from ledger.queries.closing import months

KINDS = {"statement": "Statement", "self-billed": "Self-billed invoice"}


def _reader(request: HttpRequest) -> Actor:
    actor = actor_of(request)
    actor.need("owner", "finance", "auditor", "operator")
    return actor


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """Every paper that the visitor may see; the months of which statements are to be issued."""
    return _index(request)


def _index(request: HttpRequest, *, refusal: Refusal | None = None) -> HttpResponse:
    actor = _reader(request)
    rows = queries.papers(actor).order_by(*queries.NEWEST_PAPERS)
    context = {
        "papers": part_of(request, rows, "documents"),
        "kinds": KINDS,
        "months": _to_state() if actor.has_platform_money else [],
    }
    return page(request, "pages/papers.html", context, refusal=refusal)


def _to_state() -> list[dict[str, Any]]:
    """Return the newest closed months, and how many statements are to be issued of each."""
    found = [each for each in months(now=timezone.now()) if each.state == "closed"][:MONTHS_SHOWN]
    return [
        {"period": each.period, "left": left}
        for each in found
        if (left := stating.to_state(each.period).count())
    ]


@require_POST
def issue(request: HttpRequest) -> HttpResponse:
    """Issue the statements of a closed month."""
    actor, user_id = issuer_of(request)
    try:
        period = read_period(request.POST.get("period", ""))
        outcome = stating.state_month(
            default_store(), period, user_id=user_id, by=meta_of(actor), now=timezone.now()
        )
    except Refusal as refusal:
        return _index(request, refusal=refusal)
    said = f"{outcome.issued} issued for {period}."
    if outcome.left:
        said += f" {outcome.left} are left: issue again."
    return done(request, "/documents", outcome.position, said)


@require_safe
def one(request: HttpRequest, paper_id: UUID) -> HttpResponse:
    """One paper with its lines."""
    actor = _reader(request)
    row = queries.paper(actor, paper_id)
    amounts = [line["nanos"] for line in row.lines]
    context = {
        "row": row,
        "kind": KINDS[row.kind],
        "earned": row.account_kind == "earnings",
        "places": places_of([*amounts, row.opening_nanos, row.total_nanos], row.currency),
        "held_words": held_words(row),
        "may_read": bool(actor.roles & {"finance", "auditor", "operator"}),
    }
    return page(request, f"pages/paper_{row.kind.replace('-', '_')}.html", context)


@require_safe
def file(request: HttpRequest, paper_id: UUID) -> HttpResponse:
    """Send a paper as PDF."""
    row = queries.paper(_reader(request), paper_id)
    return pdf(file_of_paper(row), row.number)
