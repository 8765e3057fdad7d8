"""What an owner changes of an offer that stands in the book: its floor, its terms, its state.

Each change puts the offer behind others at its floor, as if it came now (`since`): bids that waited
before it did so for less, and an owner keeps no place by listing early what nobody wants.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ledger.domain.event import Event
from ledger.domain.ids import OfferId
from listings.domain.changes import on_terms
from listings.domain.events import (
    OfferPaused,
    OfferPublished,
    OfferRepriced,
    OfferResumed,
    OfferTermsChanged,
)
from marketplace.domain.index.offer_index import Catalogue
from marketplace.domain.orderbook.listed_offer import Listed
from marketplace.domain.orderbook.triggers import SupplyGrew, Trigger


class Book(Protocol):
    """The book of a market, as far as a change of its offers needs it."""

    offers: dict[OfferId, Listed]
    catalogue: Catalogue

    def take_out(self, listed: Listed) -> None:
        """Forget an offer."""
        ...

    def take_in(self, listed: Listed) -> None:
        """Take in an offer."""
        ...


def repriced(book: Book, event: OfferRepriced, position: int) -> Trigger | None:
    """Take in another floor; a lower one may serve bids that waited."""
    listed = book.offers.get(event.offer_id)
    if listed is None:
        return None
    cheaper = event.floor.nanos_per_gpu_hour < listed.floor
    listed.floor, listed.since = event.floor.nanos_per_gpu_hour, position
    book.catalogue.changed(listed)
    return _grew(listed) if cheaper else None


def on_other_terms(book: Book, event: OfferTermsChanged, position: int) -> Trigger | None:
    """Put the offer in its own place, on the new terms; they may serve bids that waited.

    A new one, because what fits it, and when it has room, was worked out from its terms. What
    its owner keeps of its GPUs stays kept: they are not published anew.
    """
    was = book.offers.get(event.offer_id)
    if was is None:
        return None
    listed = Listed(on_terms(was.terms, event), position, was.floor)
    listed.published, listed.paused = was.published, was.paused
    book.take_out(was)
    book.take_in(listed)
    if not _may_serve_more(was.terms, listed.terms):
        return None
    return _grew(listed, rests=_may_go_to_more(was.terms, listed.terms))


def paused(book: Book, event: OfferPaused, position: int) -> Trigger | None:
    """Take note that it gives no new leases."""
    listed = book.offers.get(event.offer_id)
    if listed is not None:
        listed.paused = True
        book.catalogue.changed(listed)
    return None


def resumed(book: Book, event: OfferResumed, position: int) -> Trigger | None:
    """Take note that it gives new leases again."""
    listed = book.offers.get(event.offer_id)
    if listed is None:
        return None
    listed.paused, listed.since = False, position
    book.catalogue.changed(listed)
    return _grew(listed, rests=True)


RULES: dict[type[Event], Callable[[Book, Any, int], Trigger | None]] = {
    OfferRepriced: repriced,
    OfferTermsChanged: on_other_terms,
    OfferPaused: paused,
    OfferResumed: resumed,
}


def _grew(listed: Listed, *, rests: bool = False) -> Trigger:
    return SupplyGrew(frozenset({listed.terms.host_id}), rests=rests)


def _may_serve_more(was: OfferPublished, now: OfferPublished) -> bool:
    """Tell if a bid may take the new terms that did not take the old ones."""
    return (
        now.notice_seconds > was.notice_seconds
        or now.grace_seconds > was.grace_seconds
        or now.reclaim_fee_ppm > was.reclaim_fee_ppm
        or _may_go_to_more(was, now)
    )


def _may_go_to_more(was: OfferPublished, now: OfferPublished) -> bool:
    """Tell if the rest of a lease may go to who could not have it.

    What a reclaim gives goes with a lease that is sold on: other terms change nothing of that.
    """
    return now.lease_min_seconds < was.lease_min_seconds or now.workload_kinds != was.workload_kinds
