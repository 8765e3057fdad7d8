"""What each market would do with a bid, as this process knows their books."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from ledger.eventstore.port import EventStore, load
from listings.domain.markets import Market, named, within_reach
from marketplace.domain.bids.bid import Bid, BidTerms
from marketplace.domain.bids.routing import Look, Route, choose
from marketplace.domain.book.book import Book
from marketplace.domain.facts.bid_events import BidRouted
from marketplace.domain.facts.events import GpuRequest
from marketplace.domain.facts.instants import from_above
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.queries.books import book_of, preview


def routed(
    store: EventStore,
    terms: BidTerms,
    *,
    markets: Sequence[Market],
    accepted: Sequence[str] = (),
    now: datetime,
) -> tuple[BidTerms, BidRouted | None]:
    """Return the terms with their market, and how it was chosen; None where there was no choice.

    accepted: names of the markets that will do; none: all that can have hosts in the region asked
    for. A bid that is there already stays where it is.

    Raises: MarketUnknown, and what `bid.place` refuses.
    """
    names = [named(markets, name).name for name in accepted]
    names = names or _reach(markets, terms.request)
    if len(names) == 1:
        return replace(terms, market=names[0]), None
    known = load(store, Bid, terms.bid_id)
    if known is not None:
        return replace(terms, market=known.terms.market), None
    looks = [_look(store, replace(terms, market=name), now) for name in names]
    if all(look.price is None and not look.fitting for look in looks):
        # Its limit is below every floor: it waits where there is what it asks for.
        looks = [_look(store, replace(terms, market=name), now, any_price=True) for name in names]
    route = choose(looks, bid_id=terms.bid_id, earliest=terms.earliest_start or now, now=now)
    return replace(terms, market=route.market), route


def _reach(markets: Sequence[Market], asked: GpuRequest) -> list[str]:
    return within_reach(markets, asked.regions, asked.not_regions)


def only_market(terms: BidTerms, markets: Sequence[Market]) -> BidTerms | None:
    """Return the terms with their market where only one can have hosts for them, else None."""
    names = _reach(markets, terms.request)
    return replace(terms, market=names[0]) if len(names) == 1 else None


def _look(store: EventStore, terms: BidTerms, now: datetime, *, any_price: bool = False) -> Look:
    quote = preview(store, terms=terms, now=now)
    if quote.price is not None and quote.window is not None:
        return Look(terms.market, quote.price, quote.window.starts_at)
    with book_of(store, terms.market) as book:
        asked = OpenBid.of(quote.placed, since=book.read_to + 1)
        fitting, wanted = _waited_for(book, asked, from_above(now), any_price=any_price)
    return Look(terms.market, fitting=fitting, wanted=wanted)


def _waited_for(book: Book, asked: OpenBid, now: int, *, any_price: bool) -> tuple[int, int]:
    """Return how many GPUs could serve a bid, taken or not, and how many bids ahead want."""
    found = book.entries(asked.shape)
    entries = [entry for entry in found if any_price or entry.floor <= asked.limit]
    hosts = {entry.listed.terms.host_id for entry in entries}
    uuids = {uuid for entry in entries for uuid in entry.uuids}
    if not hosts:
        return 0, 0
    ahead = (each for each in book.resting(hosts) if each.limit >= asked.limit)
    return len(uuids), sum(each.gpus for each in ahead)


def route_of(store: EventStore, bid_id: UUID) -> BidRouted | None:
    """Return how a bid was routed; None where there was no choice of markets for it."""
    route = load(store, Route, bid_id)
    return None if route is None else route.routed
