"""Find the bid at which a round breaks off: by its name, or else by halving.

By its name, where the round was trying it just then; else parts of the round are cleared until one
bid is left. Where nobody can be cleared at all it is no bid's fault, and the round is given up.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import accumulate, takewhile
from typing import TypeVar

from ledger.domain.ids import BidId
from marketplace.domain.facts.faults import RoundUnsound
from marketplace.domain.orderbook.open_bid import OpenBid

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


class LookBudget:
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
        self._left -= sum(map(self._of, bids))

    def over(self) -> bool:
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
