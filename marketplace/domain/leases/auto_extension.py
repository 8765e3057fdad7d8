"""Leases that go on by themselves: when the next step is asked for, and until when.

A step is at most an hour, so that a lease that goes on for a day never binds its bidder or its
owner for much longer than it must. Each step is asked for once, some time before the
lease ends; what the engine declines (the floor has risen, others hold the GPUs, the owner wants
them back) ends the lease at its time.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from ledger.domain.refusal import Refusal
from marketplace.domain.bids.query_language import GRACE_MAX
from marketplace.domain.facts.events import BidPlaced
from marketplace.domain.leases.actions import LEASE_MAX
from marketplace.domain.leases.lease import Lease

STEP_MAX = timedelta(hours=1)
AWAY_MAX = timedelta(minutes=15)
"""So long the market may be away at the worst moment without a lease ending for it."""
ANSWERED = timedelta(minutes=5)
"""The answer comes so long before the work is asked to stop: then it is too late for it."""
LOOKED_AHEAD = timedelta(seconds=GRACE_MAX) + ANSWERED + AWAY_MAX
"""How long before its end a lease is extended at the earliest, at the longest grace."""


class BudgetSpent(Refusal):
    """The bid's budget does not cover the next step."""


def next_end(bid: BidPlaced, lease: Lease, *, now: datetime) -> datetime | None:
    """Return until when a lease is to go on, or None where nothing is to be asked for now."""
    until = bid.auto_extend_until
    if until is None or lease.over or lease.state == "ending" or lease.stop_at is not None:
        return None
    window = lease.terms.window
    step = min(window.ends_at - window.starts_at, STEP_MAX)
    ahead = min(step, lease.grace + ANSWERED + AWAY_MAX)
    if not lease.ends_at - ahead <= now < lease.ends_at:
        return None
    ends_at = min(lease.ends_at + step, until, window.starts_at + LEASE_MAX)
    if ends_at <= lease.ends_at or lease.extension_asked == ends_at:
        return None
    return ends_at


def need_budget(bid: BidPlaced, lease: Lease, *, ends_at: datetime) -> None:
    """Refuse a step that the bid's budget does not cover.

    Raises: BudgetSpent.
    """
    if bid.budget is not None and lease.cost_at_most(ends_at=ends_at) > bid.budget:
        raise BudgetSpent(budget=bid.budget, ends_at=ends_at)
