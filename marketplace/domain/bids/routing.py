"""Which of several markets a bid goes to: the cheapest with room now, else the shortest wait.

Decided once, when the bid is placed, from what the markets' books say at that moment. A bid is in
one market only; it is never in two at once, so nothing can grant it twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import ClassVar

from ledger.domain.ids import BidId
from ledger.domain.money import Rate
from marketplace.domain.facts.route_events import BidRouted, Considered, RouteReason

AT_ONCE = timedelta(minutes=1)
"""A start within this time of the earliest is room now."""


@dataclass(frozen=True, slots=True)
class Look:
    """What one market would do with a bid.

    price, starts_at: of a quote; None: no room. fitting: GPUs listed that could serve it, taken or
    not. wanted: GPUs that those ahead of it wait for.
    """

    market: str
    price: Rate | None = None
    starts_at: datetime | None = None
    fitting: int = 0
    wanted: int = 0

    @property
    def crowd_ppm(self) -> int:
        """Return how many GPUs are waited for on each that could serve, in millionths."""
        return self.wanted * 1_000_000 // self.fitting


@dataclass(frozen=True, slots=True)
class Route:
    """How one bid was routed."""

    STREAM: ClassVar[str] = "route"

    routed: BidRouted

    @classmethod
    def evolve(cls, state: Route | None, event: BidRouted, /) -> Route:
        """Return the route; there is only one event."""
        return cls(event) if state is None else replace(state, routed=event)


def choose(looks: Sequence[Look], *, bid_id: BidId, earliest: datetime, now: datetime) -> BidRouted:
    """Choose among markets, which come in the order of the installation's list.

    Cheapest of those with room now; else the soonest start; else the fewest GPUs waited for on
    each GPU that could serve; else the first.
    """
    assert looks
    because: RouteReason
    quoted = [look for look in looks if look.price is not None and look.starts_at is not None]
    at_once = [look for look in quoted if _starts(look) <= max(earliest, now) + AT_ONCE]
    if at_once:
        best, because = min(at_once, key=lambda look: (_price(look), _starts(look))), "cheapest-now"
    elif quoted:
        best, because = min(quoted, key=lambda look: (_starts(look), _price(look))), "soonest"
    else:
        could = [look for look in looks if look.fitting]
        if could:
            best, because = min(could, key=lambda look: look.crowd_ppm), "least-waited-for"
        else:
            best, because = looks[0], "nowhere"
    return BidRouted(
        bid_id=bid_id,
        market=best.market,
        because=because,
        considered=tuple(
            Considered(look.market, look.price, look.starts_at, look.fitting, look.wanted)
            for look in looks
        ),
        at=now,
    )


def _starts(look: Look) -> datetime:
    assert look.starts_at is not None
    return look.starts_at


def _price(look: Look) -> int:
    assert look.price is not None
    return look.price.nanos_per_gpu_hour
