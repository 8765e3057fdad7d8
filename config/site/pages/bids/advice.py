"""Parts of the pages of a bid and of an offer: what would change it. Fetched once they are open."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from config.site.forms.answers import page
from ledger.access.visits import actor_of
from ledger.eventstore import default_store
from listings import queries as listings
from marketplace.domain.placement.eligibility import REASONS
from marketplace.explain.bid_advice import advise
from marketplace.explain.minimum_runtime import undisturbed_for
from marketplace.explain.unsold_offer import Looked, explain_offer
from marketplace.queries import bids

WAIVED = {
    "placement": "Let it be spread over several hosts",
    "models": "Take any GPU model",
    "memory": "Ask for no least memory",
    "compute-capability": "Ask for no compute capability",
    "compute-share": "Ask for no least share of a card",
    "nvlink": "Do without NVLink",
    "region": "Take any region",
    "isolation": "Take any isolation level, shares of GPUs too",
    "sandbox": "Take hosts that keep work apart less",
    "network": "Take hosts from which work connects in another way",
    "labels": "Ask for no labels",
    "notice": "Ask for no least notice of a reclaim",
    "reclaim": "Ask for no pay on a reclaim",
    "grace": "Ask for no least grace",
    "starts": "Ask for no promise of a start",
    "availability": "Ask for no promise of availability",
}
MATCHED = "Nothing: with the next pass, or in the next round"
IN_THE_WAY = {
    "size": "It has fewer GPUs than they want",
    "gpu-model": "They ask for other models",
    "memory": "They ask for more memory",
    "compute-capability": "They ask for a higher compute capability",
    "compute-share": "They ask for a larger share of a card",
    "driver": "They ask for a newer driver",
    "nvlink": "They ask for more GPUs joined by NVLink",
    "region": "They ask for another region",
    "labels": "They ask for other labels",
    "isolation": "They ask for a stronger isolation",
    "workload-kind": "You do not allow what they run",
    "sandbox": "They ask for a host that keeps work apart better",
    "network": "They ask for another way out to the network than your host gives",
    "abilities": "They ask for what your host's agent cannot do",
    "starts": "They ask you to promise a start sooner than you do",
    "availability": "They ask you to promise more availability than you do",
    "currency": "They pay in another currency",
    "host": "They leave your host out",
    "notice": "They ask for more notice of a reclaim",
    "reclaim": "They ask for more pay on a reclaim",
    "grace": "They ask for a longer grace",
    "reliability": "They ask for a host that has proved more reliable",
    "paused": "It is paused",
    "reserved": "It is kept for another bid",
    "lease-minimum": "They want it for shorter than you lease it",
    "windows": "No window is long enough in their time",
    "taken": "It is leased at that time",
    "tenants": "Another organisation's work is on the host then",
    "limit": "They pay less than your floor",
    "together": "Too few of its GPUs are free at the same time",
    "elsewhere": "Other offers serve them for less",
    "limit-together": "They pay less than the other offers ask that it would take as well",
    "quota": "Their quota is used up",
    "not-allowed": "The market's policies do not let them",
}
"""What stands in the way of bids, as their owner reads it."""


@require_safe
def for_bid(request: HttpRequest, bid_id: UUID) -> HttpResponse:
    """Show the smallest change of each kind that would let a bid be placed."""
    row = bids.bid(actor_of(request), bid_id)
    store, now = default_store(), timezone.now()
    changes = advise(store, market=row.market, bid_id=bid_id, now=now)
    lines = [{"change": each, "waived": WAIVED.get(each.what)} for each in changes or ()]
    context = {
        "lines": lines,
        "waits": changes is not None,
        "market": row.market,
        "undisturbed": undisturbed_for(store, market=row.market, bid_id=bid_id, now=now),
    }
    return page(request, "pages/advice_bid.html", context)


@require_safe
def for_offer(request: HttpRequest, offer_id: UUID) -> HttpResponse:
    """Show which bids an offer could serve, and what floor would have sold."""
    row = listings.offer(actor_of(request), offer_id)
    found = explain_offer(default_store(), market=row.market, offer_id=offer_id, now=timezone.now())
    context: dict[str, Any] = {"found": found}
    if found is not None:
        context["removed"] = [(_in_the_way(each.reason), each) for each in found.removed]
        context["bids"] = [(_told(each), each) for each in found.bids]
    return page(request, "pages/advice_offer.html", context)


def _told(looked: Looked) -> str:
    with_others = looked.together
    if with_others is None:
        return _in_the_way(looked.reason)
    gpus = f"{with_others.gpus} GPU{'' if with_others.gpus == 1 else 's'}"
    offers = f"{with_others.offers} other offer{'' if with_others.offers == 1 else 's'}"
    return f"Nothing: {with_others.mine} of its GPUs would be used together with {gpus} of {offers}"


def _in_the_way(reason: str | None) -> str:
    return MATCHED if reason is None else IN_THE_WAY.get(reason) or REASONS.get(reason, reason)
