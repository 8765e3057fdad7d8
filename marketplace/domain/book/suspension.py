"""A bid at which a round breaks off is set aside, and everybody else is served in the same round.

`bisect` finds it. The certificate names all that were left out, so a replay leaves out the same and
looks for nothing. Such a bid is tried again after a while, longer each time, as soon as it is
amended, and by every other rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ledger.domain.ids import BidId
from marketplace.domain.facts.events import ROUND_RULE, RoundCleared
from marketplace.domain.facts.instants import from_above
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.placement.eligibility import Explanation, Stage

SET_ASIDE = "set-aside"
"""The reason of a bid that is left out of rounds for a while."""
AGAIN_AFTER = 10 * 60_000
AGAIN_AFTER_MAX = 6 * 3_600_000
"""When such a bid is tried again, in milliseconds: twice as long each time, up to this."""


@dataclass(frozen=True, slots=True)
class Aside:
    """A bid that was set aside: at which place in the queue, by which rule, when, how often."""

    since: int
    rule: str
    at: int
    times: int

    @property
    def again_at(self) -> int:
        """Return when it is tried again."""
        return self.at + min(AGAIN_AFTER << min(self.times - 1, 16), AGAIN_AFTER_MAX)

    def holds(self, bid: OpenBid, *, now: int, rule: str = ROUND_RULE) -> bool:
        """Tell if a bid is still left out."""
        return (self.since, self.rule) == (bid.since, rule) and now < self.again_at


Known = Mapping[BidId, Aside]


def left_out(known: Known, bids: Iterable[OpenBid], *, now: int) -> frozenset[BidId]:
    """Return those of some bids that a round at that moment does not try."""
    return frozenset(
        bid.bid_id for bid in bids if bid.bid_id in known and known[bid.bid_id].holds(bid, now=now)
    )


def noted(known: Known, bids: Mapping[BidId, OpenBid], cleared: RoundCleared) -> dict[BidId, Aside]:
    """Return who is set aside after a round. What it tried and could clear is not, any more."""
    if cleared.certificate is None:
        return dict(known)
    at, found = from_above(cleared.at), dict[BidId, Aside]()
    for bid_id in cleared.certificate.aside:
        bid, before = bids.get(bid_id), known.get(bid_id)
        if bid is None:
            continue
        if before is not None and before.holds(bid, now=at, rule=cleared.rule):
            found[bid_id] = before
        else:
            is_same = before is not None and before.since == bid.since
            times = before.times + 1 if before is not None and is_same else 1
            found[bid_id] = Aside(bid.since, cleared.rule, at, times)
    return found


def explained(known: Known, bid: OpenBid, found: Explanation, *, now: int) -> Explanation:
    """Say of a bid that is set aside that this is what keeps it from being matched."""
    if not left_out(known, [bid], now=now):
        return found
    stage = Stage(SET_ASIDE, 0)
    return Explanation((*found.funnel, stage), SET_ASIDE, None, None)
