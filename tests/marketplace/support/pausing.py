"""Markets in which work may be paused for other work, and what becomes of it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from ledger.domain.ids import BidId, LeaseId
from marketplace.domain.facts.close_reasons import PAUSED
from marketplace.domain.facts.events import Continues, LeaseGranted, Workload
from tests.marketplace.support.market import Market, named

HOUR = timedelta(hours=1)
SAVES = Workload(kind="training", checkpoint_seconds=60)


def pausable(market: Market, word: str = "long", **how: Any) -> LeaseGranted | None:
    """Bid for work that may be paused: eight hours of it, within two days."""
    said: dict[str, Any] = {"hours": 8, "at": 2, "deadline": market.now + 48 * HOUR} | how
    market.bid(word, pausable=True, resume=True, work=said.pop("work", SAVES), **said)
    market.run()
    return market.grant(word)


def fresh(market: Market, word: str = "fresh", **how: Any) -> LeaseGranted | None:
    """Bid for two hours that have to begin within ten minutes."""
    said: dict[str, Any] = {"hours": 2, "at": 2, "deadline": market.now + 2 * HOUR}
    said["deadline"] += timedelta(minutes=10)
    market.bid(word, **said | how)
    market.run()
    return market.grant(word)


def rest_of(
    market: Market,
    word: str,
    of: str = "long",
    *,
    hours: float = 6,
    done: timedelta = 2 * HOUR,
    paused: bool = True,
    **how: Any,
) -> LeaseGranted | None:
    """Bid for the rest of work that was paused, as the market does."""
    continues = Continues(
        first_id=BidId(named(f"bid {of}")),
        bid_id=BidId(named(f"bid {of}")),
        number=2,
        lease_id=None,
        resumes=True,
        done_seconds=done // timedelta(seconds=1),
        pauses=int(paused),
        paused=paused,
    )
    said: dict[str, Any] = {"deadline": market.now + 40 * HOUR} | how
    return pausable(market, word, hours=hours, continues=continues, seeks="soonest", **said)


def pause(market: Market, word: str = "long") -> None:
    """Let the lease of a bid end because its work was paused."""
    market.close(word, reason=PAUSED)
    market.run()


def paused_at(granted: LeaseGranted, market: Market) -> dict[LeaseId, timedelta]:
    """Return in what time from now on the leases stop whose work a grant has paused."""
    assert all(cut.because == "paused" for cut in granted.cuts)
    return {LeaseId(cut.lease_id): cut.ends_at - market.now for cut in granted.cuts}
