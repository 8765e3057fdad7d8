"""Which bids wait that another market may serve, and what each market would do with one now."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Literal
from uuid import UUID

from ledger.access import Actor
from ledger.domain.ids import BidId
from ledger.domain.refusal import Refusal
from ledger.eventstore.port import EventStore, load
from marketplace.domain.bids.bid import Bid, BidTerms
from marketplace.domain.bids.routing import Look
from marketplace.domain.facts.bid_events import Considered, RouteReason
from marketplace.models.bids import RouteRow
from marketplace.queries.bids import bid
from marketplace.queries.books import preview
from marketplace.queries.routing import route_of

Because = RouteReason | Literal["no-choice"]


@dataclass(frozen=True, slots=True)
class Route:
    """How a bid came to its market, and where it is now.

    because: `no-choice` where it named its market, or only one could have what it asks for; then
    none was considered. moves: market, to and at of each time it was handed on.
    """

    bid_id: BidId
    market: str
    because: Because
    considered: tuple[Considered, ...]
    at: datetime
    market_now: str
    moves: list[dict[str, str]]


def route(actor: Actor, store: EventStore, bid_id: UUID) -> Route:
    """Return how a bid came to its market, and moved since.

    Raises: BidUnknown.
    """
    row = bid(actor, bid_id)
    known, routed = BidId(row.bid_id), route_of(store, row.bid_id)
    if routed is None:
        market = row.moves[0]["market"] if row.moves else row.market
        return Route(known, market, "no-choice", (), row.placed_at, row.market, row.moves)
    return Route(
        known,
        routed.market,
        routed.because,
        routed.considered,
        routed.at,
        row.market,
        row.moves,
    )


_CHOSEN = tuple(field.name for field in fields(BidTerms))


@dataclass(frozen=True, slots=True)
class Waiting:
    """A bid that waits in `market`, and may be served in each of `markets`."""

    bid_id: BidId
    market: str
    markets: tuple[str, ...]
    moves: int


def waiting_bids(*, since: datetime, after: UUID | None, limit: int) -> list[Waiting]:
    """Return bids that several markets may serve and that are where they are since `since`.

    after: the last of the page before; None: from the first on.
    """
    rows = RouteRow.objects.filter(since__lte=since)
    if after is not None:
        rows = rows.filter(bid_id__gt=after)
    return [
        Waiting(BidId(row.bid_id), row.market, tuple(row.markets), row.moves)
        for row in rows.order_by("bid_id")[:limit]
    ]


def looks(store: EventStore, bid_id: BidId, markets: Iterable[str], *, now: datetime) -> list[Look]:
    """Return what each market would do with a bid as it is now, without those that refuse it."""
    known = load(store, Bid, bid_id)
    if known is None or known.state != "open":
        return []
    terms = _terms_now(known, now)
    found = []
    for market in markets:
        try:
            quote = preview(store, terms=replace(terms, market=market), now=now)
        except Refusal:
            continue  # nor would it be placed there now: its time is too short, for instance
        if quote.price is None or quote.window is None:
            found.append(Look(market))
        else:
            found.append(Look(market, quote.price, quote.window.starts_at))
    return found


def _terms_now(bid: Bid, now: datetime) -> BidTerms:
    known = {name: getattr(bid.terms, name) for name in _CHOSEN}
    changed = {
        "limit": bid.limit,
        "deadline": bid.deadline,
        "earliest_start": max(bid.terms.earliest_start, now),
        # What comes after its lease has no part in where it is served.
        "repeat_until": None,
        "auto_extend_until": None,
    }
    return BidTerms(**known | changed)
