"""In which form an idle card is worth most to the bids that wait, and when it changes its form.

What a form is worth is what those bids would pay at most, if the market were cleared with nothing
but the card in that form: by the instant lane's own rules, best price first, each bid once. It
changes only if another form is worth a tenth more, not before its owner's time is over, and never
while anybody holds it, now or later.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from ledger.domain.money import MILLIS_PER_HOUR
from listings.domain.events import Form, Gpu, OfferPublished
from listings.domain.forms import floor_of, in_form
from listings.domain.terms import cards_of
from marketplace.domain.book.book import Book
from marketplace.domain.clearing.continuous import clear
from marketplace.domain.facts.instants import Millis, from_above
from marketplace.domain.orderbook.listed_offer import Listed
from marketplace.domain.orderbook.open_bid import OpenBid

BETTER_PPM = 100_000
"""By so much more must a form be worth than the one there is."""
PPM = 1_000_000
BIDS_MAX = 200
"""Bids that are looked at, by price and then by age."""


@dataclass(frozen=True, slots=True)
class Worth:
    """What bids that wait would pay in a form, at most. served: those bids, best price first."""

    form: Form
    nanos: int
    served: tuple[OpenBid, ...]


def is_idle(book: Book, offer: OfferPublished, *, now: Millis) -> bool:
    """Tell if nobody holds any of an offer's cards from now on, in whatever form."""
    calendar = book.calendar
    for card in cards_of(offer):
        for uuid in (card, *sorted(calendar.parted.get(card, ()))):
            if any(span.ends > now for span in calendar.of(uuid)):
                return False
    return True


def waiting_for(
    book: Book, listed: Listed, *, now: Millis, taken: Iterable[OpenBid] = ()
) -> list[OpenBid]:
    """Return the bids that wait in vain, or for this offer alone: best price first.

    A bid that other GPUs can serve is not counted on: it will have those. taken: bids that another
    card has been given its form for.
    """
    owner, gone = listed.terms.tenant_id, {bid.bid_id for bid in taken}
    others = [
        bid
        for bid in book.bids.values()
        if bid.terms.tenant_id != owner and now <= bid.lapses and bid.bid_id not in gone
    ]
    found = []
    for bid in sorted(others, key=lambda each: each.price_time)[:BIDS_MAX]:
        at = book.explain(bid, now=now).placement
        if at is None or any(offer is listed for offer, _ in at.gpus):
            found.append(bid)
    return found


def worth_of(
    book: Book,
    offer: OfferPublished,
    form: Form,
    gpus: Sequence[Gpu],
    bids: Sequence[OpenBid],
    *,
    now: Millis,
    round_id: UUID,
) -> Worth:
    """Clear the waiting bids with nothing but an offer in a form. gpus: as it divides the cards."""
    floor = floor_of(form).nanos_per_gpu_hour
    alone = Book(book.market)
    alone.leases.records[offer.host_id] = book.offers[offer.offer_id].record
    alone.agents, alone.promises = book.agents, book.promises
    alone.take_in(Listed(in_form(offer, form, gpus), book.offers[offer.offer_id].published, floor))
    alone.quotas = book.quotas
    fills = clear(alone, bids, now=now, round_id=round_id).fills
    nanos = sum(
        fill.bid.limit * fill.bid.gpus * fill.bid.duration // MILLIS_PER_HOUR for fill in fills
    )
    return Worth(form, nanos, tuple(fill.bid for fill in fills))


def is_due(offer: OfferPublished, *, now: Millis) -> bool:
    """Tell if an offer leaves its form to the market and has been in it long enough to change."""
    by_demand = offer.by_demand
    return by_demand is not None and now >= from_above(offer.at) + by_demand.form_min_seconds * 1000


def better(current: Worth, others: Iterable[Worth]) -> Worth | None:
    """Return the form that is worth enough more than the one there is; None: it stays.

    Of forms worth the same, the one that the owner named first.
    """
    best = max(others, key=lambda worth: worth.nanos, default=current)
    enough = best.nanos * PPM > current.nanos * (PPM + BETTER_PPM)
    return best if enough else None
