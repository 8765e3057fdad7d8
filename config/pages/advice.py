"""Parts of the pages of a bid and of an offer: what would change it. Fetched once they are open."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from config.pages.answers import page
from ledger.access.visits import actor_of
from ledger.eventstore import default_store
from listings import queries as listings
from marketplace.queries import bids
from marketplace.queries.advice import advise, explain_offer

WAIVED = {
    "placement": "Let it be spread over several hosts",
    "models": "Take any GPU model",
    "memory": "Ask for no least memory",
    "compute-capability": "Ask for no compute capability",
    "compute-share": "Ask for no least share of a card",
    "nvlink": "Do without NVLink",
    "region": "Take any region",
    "isolation": "Take any isolation level, shares of GPUs too",
    "labels": "Ask for no labels",
}


@require_safe
def for_bid(request: HttpRequest, bid_id: UUID) -> HttpResponse:
    """Show the smallest change of each kind that would let a bid be placed."""
    row = bids.bid(actor_of(request), bid_id)
    changes = advise(default_store(), market=row.market, bid_id=bid_id, now=timezone.now())
    lines = [{"change": each, "waived": WAIVED.get(each.what)} for each in changes or ()]
    return page(request, "pages/advice_bid.html", {"lines": lines, "waits": changes is not None})


@require_safe
def for_offer(request: HttpRequest, offer_id: UUID) -> HttpResponse:
    """Show which bids an offer could serve, and what floor would have sold."""
    row = listings.offer(actor_of(request), offer_id)
    found = explain_offer(default_store(), market=row.market, offer_id=offer_id, now=timezone.now())
    return page(request, "pages/advice_offer.html", {"found": found})
