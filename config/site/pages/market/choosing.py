"""Which market a page is about, where an installation has several."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpRequest

from listings.domain.markets import named


def market_of(request: HttpRequest) -> str:
    """Return the market that is looked at: the installation's own unless another is named."""
    names = [market.name for market in settings.MARKETS]
    asked = request.GET.get("market")
    return asked if asked in names else names[0]


def market_sent(request: HttpRequest) -> str:
    """Return the market that a form is about: nothing is set in another than was meant.

    Raises: MarketUnknown.
    """
    asked = request.POST.get("market")
    return named(settings.MARKETS, asked).name if asked else market_of(request)


def choice_of(market: str, path: str, query: str = "") -> dict[str, Any]:
    """Return what `parts/markets.html` shows: the markets, which one it is, where they lead.

    query: what a link to another market keeps, such as `lane=round`.
    """
    rest = f"&{query}" if query else ""
    links = [(each.name, f"{path}?market={each.name}{rest}") for each in settings.MARKETS]
    return {
        "market": market,
        "market_links": links if len(links) > 1 else [],
        "in_market": f"market={market}" if len(links) > 1 else "",
    }
