"""A bid at which a round breaks off is set aside, and everybody else is served in the same round.

Found by its name, where the round was trying it just then, or else by halving: parts of the round
are cleared until one bid is left. The certificate names all that were left out, so a replay leaves
out the same and looks for nothing. Such a bid is tried again after a while, longer each time, as
soon as it is amended, and by every other rule.

Where nobody can be cleared at all it is no bid's fault, and the round is given up.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile
from typing import TypeVar

from ledger.domain.ids import BidId
from marketplace.domain.demand import OpenBid
from marketplace.domain.eligibility import Explanation, Stage
from marketplace.domain.events import RoundCleared
from marketplace.domain.faults import RoundUnsound
from marketplace.domain.fills import ROUND_RULE
from marketplace.domain.moments import from_above

SET_ASIDE = "set-aside"
"""The reason of a bid that is left out of rounds for a while."""
AGAIN_AFTER = 10 * 60_000
AGAIN_AFTER_MAX = 6 * 3_600_000
"""When such a bid is tried again, in milliseconds: twice as long each time, up to this."""
ASIDE_MAX = 8
"""Bids that one round may set aside. Where it takes more, the mistake is elsewhere."""
GROUP_MAX = 64
"""So many are set aside together where time is up before it is known which of them it is."""

LOOKS_MAX = 8_000
"""Looks of a bid at a host, in all, until new supply is given up at which decisions break off: a
fraction of a second. A bound on the work, not on time, so that a replay comes to the same."""
LOOKS_SHARE = 8
"""Only so many bids take part that trying them all takes this part of it: then up to three of them
are found wherever they are."""

Result = TypeVar("Result")
Attempt = Callable[[Sequence[OpenBid]], Result]
"""Clears these bids alone; raises RoundUnsound."""


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


# --- finding out --------------------------------------------------------------------------------


class Looks:
    """What may be looked at to find out at which bids new supply breaks off.

    near, wide: how many hosts a bid looks at, and one that takes GPUs of several.
    """

    def __init__(self, *, near: int, wide: int) -> None:
        self._near, self._wide, self._left = near, wide, LOOKS_MAX

    def first(self, bids: Sequence[OpenBid]) -> Sequence[OpenBid]:
        """Return the first bids, as many as take part; GROUP_MAX at least."""
        looks = accumulate(map(self._of, bids))
        many = sum(1 for _ in takewhile(lambda all_: all_ <= LOOKS_MAX // LOOKS_SHARE, looks))
        return bids[: max(many, GROUP_MAX)]

    def take(self, bids: Iterable[OpenBid]) -> None:
        """Count a try of some bids."""
        self._left -= sum(map(self._of, bids))

    def over(self) -> bool:
        """Tell if it was looked for long enough."""
        return self._left <= 0

    def _of(self, bid: OpenBid) -> int:
        return 1 + (self._wide if bid.terms.placement == "any-hosts" else self._near)


def without_culprits(
    bids: Sequence[OpenBid],
    attempt: Attempt[Result],
    unsound: RoundUnsound,
    *,
    suspected: Collection[BidId] = (),
    too_long: Callable[[], bool] = lambda: False,
) -> tuple[Result, list[OpenBid]]:
    """Clear all bids but those at which a round breaks off; return which they are, too.

    Args:
        unsound: how it broke off with all of them. suspected: they were set aside before.
        too_long: true once it has been looked for long enough.

    Raises: RoundUnsound, as it was, where leaving out a few does not help.
    """
    aside, last = list[OpenBid](), unsound
    for _ in range(ASIDE_MAX):
        rest = [bid for bid in bids if bid not in aside]
        named = {last.bid_id, *suspected}
        first = [bid for bid in rest if bid.bid_id in named]
        found = _culprits(rest, first, attempt, too_long)
        aside += found
        rest = [bid for bid in rest if bid not in found]
        if len(found) > GROUP_MAX or (not rest and len(bids) > 1):
            break
        try:
            return attempt(rest), aside
        except RoundUnsound as again:
            last = again
    raise unsound


def _culprits(
    bids: Sequence[OpenBid],
    first: Sequence[OpenBid],
    attempt: Attempt[Result],
    too_long: Callable[[], bool],
) -> Sequence[OpenBid]:
    """Return one bid of those that break off together; several where there is no time to tell.

    first: is looked at first.
    """

    def breaks(some: Sequence[OpenBid]) -> bool:
        try:
            attempt(some)
        except RoundUnsound:
            return True
        return False

    few = first if first and breaks(first) else bids
    while len(few) > 1 and not too_long():
        halves = few[: len(few) // 2], few[len(few) // 2 :]
        half = next((half for half in halves if breaks(half)), None)
        if half is None:
            break
        few = half
    if len(few) == 1 or too_long():
        return few
    # It takes several of them together: the first after which it breaks off goes.
    low, high = len(few) // 2, len(few)
    while high - low > 1 and not too_long():
        middle = (low + high) // 2
        low, high = (low, middle) if breaks(few[:middle]) else (middle, high)
    return few[low:high]
