"""What the owner of an offer promises of its service, in a market of tests."""

from __future__ import annotations

from ledger.domain.ids import OfferId
from listings.domain.sla_events import OfferSlaSet, SlaStep, SlaTerms
from tests.marketplace.support.market import OWNER, Market, named


def promise(market: Market, word: str, *, start: int | None = None, below: int = 0) -> None:
    """Promise a start within seconds and an availability in millionths; neither: nothing.

    A late start credits 5 %, less availability 10 %.
    """
    terms = SlaTerms(
        start_by_seconds=start,
        late_credit_ppm=0 if start is None else 50_000,
        steps=(SlaStep(below, 100_000),) if below else (),
    )
    said = None if terms == SlaTerms() else terms
    offer_id = OfferId(named(f"offer {word}"))
    event = OfferSlaSet(offer_id=offer_id, owner_id=OWNER, terms=said, at=market.now)
    market.put(f"offer-sla-{offer_id}", event)
