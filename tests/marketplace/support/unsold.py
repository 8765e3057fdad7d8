"""What an offer that nobody takes is told, in short."""

from __future__ import annotations

from marketplace.explain.unsold_offer import OfferChange, Unsold, explain_offer
from tests.marketplace.support.market import MARKET, Market, named


def unsold(market: Market, word: str = "a") -> Unsold:
    found = explain_offer(
        market.store, market=MARKET, offer_id=named(f"offer {word}"), now=market.now
    )
    assert found is not None
    return found


def changes(found: Unsold) -> dict[str, OfferChange]:
    return {each.what: each for each in found.changes}


def reasons(found: Unsold) -> dict[str | None, int]:
    return {each.reason: each.bids for each in found.removed}
