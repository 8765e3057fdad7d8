"""Which of several markets a bid goes to, and when one that waits is moved to another.

Decided when the bid is placed, from what the markets' books say at that moment: the cheapest with
room now, else the shortest wait. A bid is in one market only; it is never in two at once, so
nothing can grant it twice.

A bid that waits where nothing comes goes to a market that would serve it now: only bids that
several markets could serve, by their own words, and only where their market has nothing for them
while another one has. So that none goes back and forth, each waits for PAUSE before it is moved,
twice as long after each move, and MOVES_MAX times at most.

The hand-over is one fact of the market that gives the bid away. It is asked for on the bid's own
stream, with its terms as they are then; from there on the other market hears what is amended, and
whether it is withdrawn. When the first market hands it on, or has granted it before it was asked,
both know: it is never open in two markets, and never in none. Its hold and its age stay as they
are; in the new market it queues behind those that were there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import ClassVar

from ledger.domain.ids import BidId
from marketplace.domain.bids.bid import Bid
from marketplace.domain.facts.bid_events import BidRouted, Considered, RouteReason
from marketplace.domain.facts.events import BidMoveAsked

AT_ONCE = timedelta(minutes=1)
"""A start within this time of the earliest is room now."""


Look = Considered


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
        bid_id=bid_id, market=best.market, because=because, considered=tuple(looks), at=now
    )


def _starts(look: Look) -> datetime:
    assert look.starts_at is not None
    return look.starts_at


def _price(look: Look) -> int:
    assert look.price is not None
    return look.price.nanos_per_gpu_hour


# --- bids that wait are moved -----------------------------------------------------------------

PAUSE = timedelta(minutes=5)
PAUSE_MAX = timedelta(hours=2)
MOVES_MAX = 12


def pause_after(moves: int) -> timedelta:
    """Return how long a bid that was moved so often waits before it is looked at."""
    return min(PAUSE * (1 << min(moves, MOVES_MAX)), PAUSE_MAX)


def better(looks: Sequence[Look], *, market: str) -> Look | None:
    """Return the market that a bid would be better off in, or None.

    That is one which has room for it, where its own has none: the cheapest, then the soonest.
    """
    quoted = [look for look in looks if look.price is not None and look.starts_at is not None]
    if any(look.market == market for look in quoted):
        return None
    return min(quoted, key=lambda look: (_price(look), _starts(look)), default=None)


def ask_move(bid: Bid, *, market: str, to: Look, moves: int, now: datetime) -> list[BidMoveAsked]:
    """Decide whether a market is asked to hand a bid on; not again before the pause is over.

    market: the one it waits in. moves: how often it was handed on.
    """
    if bid.state != "open" or bid.terms.burst_allowed or moves >= MOVES_MAX or to.market == market:
        return []
    since = bid.terms.at if bid.move_asked_at is None else bid.move_asked_at
    if now < since + pause_after(moves):
        return []
    assert to.price is not None
    return [
        BidMoveAsked(
            bid_id=bid.terms.bid_id,
            market=market,
            to=to.market,
            placed=replace(bid.wanted, market=to.market),
            limit=bid.limit,
            deadline=bid.deadline,
            price=to.price,
            starts_at=_starts(to),
            at=now,
        )
    ]
