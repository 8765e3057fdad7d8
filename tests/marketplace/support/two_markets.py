"""Two markets, and a bid that may move from one to the other."""

from __future__ import annotations

from ledger.domain.ids import BidId
from ledger.eventstore.memory import MemoryStore
from marketplace.commands.moving import ask_for_move
from marketplace.domain.bids.routing import Look
from tests.conftest import NOON
from tests.marketplace.support.market import Market, named, rate, somebody

EU = Look("eu", rate(1), NOON)


def two(store: MemoryStore | None = None) -> tuple[Market, Market]:
    store = store or MemoryStore()
    return Market(store), Market(store, name="eu")


def later(*markets: Market, **length: float) -> None:
    for market in markets:
        market.wait(**length)


def ask(market: Market, word: str, to: Look = EU, *, moves: int = 0) -> bool:
    return ask_for_move(
        market.store,
        bid_id=BidId(named(f"bid {word}")),
        market=market.name,
        to=to,
        moves=moves,
        by=somebody(),
        now=market.now,
    )
