"""What owners promise of the service of the offers in the book.

The level of service is a part of an offer's kind, so that what fits a bid that asks for one is
worked out like all else that fits. An offer keeps its place: who promises more is not preferred.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ledger.domain.event import Event
from ledger.domain.ids import OfferId
from listings.domain.sla import ServiceLevel
from listings.domain.sla_events import OfferSlaSet, SlaTerms
from marketplace.domain.orderbook.listed_offer import Listed
from marketplace.domain.orderbook.triggers import SupplyGrew, Trigger


class Promises:
    """What is promised of each offer of the market, where anything is."""

    def __init__(self) -> None:
        self.said: dict[OfferId, SlaTerms] = {}

    def level(self, offer_id: OfferId) -> ServiceLevel:
        """Return the level of service that is promised of an offer."""
        return ServiceLevel.of(self.said.get(offer_id))


class Book(Protocol):
    """The book of a market, as far as promises change it."""

    promises: Promises
    offers: dict[OfferId, Listed]

    def take_out(self, listed: Listed) -> None:
        """Forget an offer."""
        ...

    def take_in(self, listed: Listed) -> None:
        """Take in an offer."""
        ...


def promised(book: Book, event: OfferSlaSet, position: int) -> Trigger | None:
    """Put an offer among those of its new kind; one that promises more may serve bids that waited.

    A new one, because what fits it was worked out from its kind.
    """
    was = book.offers.get(event.offer_id)
    if was is None:
        return None  # it is over, or in another market
    if event.terms is None:
        book.promises.said.pop(event.offer_id, None)
    else:
        book.promises.said[event.offer_id] = event.terms
    before, level = was.kind.level, book.promises.level(event.offer_id)
    if level == before:
        return None
    listed = Listed(was.terms, was.published, was.floor)
    listed.since, listed.paused = was.since, was.paused
    book.take_out(was)
    book.take_in(listed)
    return None if before.meets(level) else SupplyGrew(frozenset({was.terms.host_id}))


RULES: dict[type[Event], Callable[[Book, Any, int], Trigger | None]] = {OfferSlaSet: promised}
