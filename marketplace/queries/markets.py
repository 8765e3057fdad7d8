"""The markets of an installation side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from ledger.eventstore.port import EventStore
from listings.domain.markets import Market
from marketplace.queries.books import book_of
from marketplace.queries.market import market_now, rounds


@dataclass(frozen=True, slots=True)
class MarketNow:
    """One market: what is listed, free and wanted there now, in GPUs and bids."""

    name: str
    is_home: bool
    regions: tuple[str, ...]
    gpus: int
    free: int
    bids: int
    wanted: int
    cleared_at: datetime | None


def markets_now(store: EventStore, markets: Sequence[Market], *, now: datetime) -> list[MarketNow]:
    """Return every market, in the order of the installation's list."""
    found = []
    for market in markets:
        goods = market_now(store, market=market.name, now=now)
        with book_of(store, market.name) as book:
            waiting = [bid.gpus for bid in book.bids.values()]
        last = rounds(market.name).first()
        found.append(
            MarketNow(
                name=market.name,
                is_home=market is markets[0],
                regions=market.regions,
                gpus=sum(each.listed for each in goods),
                free=sum(each.free for each in goods),
                bids=len(waiting),
                wanted=sum(waiting),
                cleared_at=None if last is None else last.at,
            )
        )
    return found
