"""What can be leased: every listing that anybody may see, lowest floor first."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from config.site.forms.answers import page
from config.site.pages.market.choosing import choice_of, market_of
from ledger.access.visits import actor_of
from listings.queries import Listed, listed_offers

AHEAD = timedelta(days=7)
SHOWN_MAX = 200


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """List offers with a window within a week; `gpu` and `region` narrow the list."""
    actor_of(request)
    market, now = market_of(request), timezone.now()
    wanted = {name: request.GET.get(name, "").strip()[:80] for name in ("gpu", "region")}
    found = listed_offers(
        since=now,
        until=now + AHEAD,
        market=market,
        model=wanted["gpu"] or None,
        region=wanted["region"] or None,
        limit=SHOWN_MAX + 1,
    )
    context = {
        **choice_of(market, "/supply"),
        "listings": [_shown(each) for each in found[:SHOWN_MAX]],
        "more": len(found) > SHOWN_MAX,
        "shown_max": SHOWN_MAX,
        "wanted": wanted,
        "now": now,
    }
    return page(request, "pages/supply.html", context)


def _shown(each: Listed) -> dict[str, Any]:
    return {
        "listing": each,
        "notice": timedelta(seconds=each.notice_seconds),
        "lease_min": timedelta(seconds=each.lease_min_seconds),
        "memory_gib": each.memory_mib // 1024,
    }
