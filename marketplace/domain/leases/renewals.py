"""How work continues: bids that follow one another, and leases that are extended step by step.

A bid with `repeat_until` is placed again when its lease is over or when it expires: "keep four H100
for me whenever there are". One with `resume` asks for the rest of its time when an owner, the
market or a fault took the capacity away: so work that may be interrupted pauses and goes on. Each
bid of a chain is a bid like any other, with a hold of its own; the market places it on the terms of
the one before. A budget is that of the whole chain.

The rest is what lies after the last checkpoint: without one, and where the work does not say that
it can do without, all of it (`checkpoints`). It goes on at once, on whatever host can serve it. A
host on which it failed may be as good as before in a moment: it is kept off for a while, and nobody
else waits for that.

Whoever ends a lease, withdraws a bid or sells the rest of a lease does not want the next one
either. Work that failed by its own error is not started again.

A lease with `auto_extend_until` is extended in place, an hour at most at a time, so that it never
binds its bidder or its owner for much longer than it must. Each step is asked for once, some time
before the lease ends; what the engine declines (the floor has risen, others hold the GPUs, the
owner wants them back) ends the lease at its time.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Literal
from uuid import uuid5

from ledger.domain.ids import BidId, HostId
from ledger.domain.money import Money, Rate
from ledger.domain.refusal import Refusal
from marketplace.domain.bids.bid import Bid, BidTerms
from marketplace.domain.bids.bounds import (
    DEADLINE_AHEAD_MAX,
    DURATION_MAX,
    DURATION_MIN,
    RESUMES_FROM,
    RESUMES_LEASE,
)
from marketplace.domain.bids.pausing import done_before, finish_by
from marketplace.domain.bids.query_language import GRACE_MAX
from marketplace.domain.bids.sources import pinned
from marketplace.domain.facts import close_reasons
from marketplace.domain.facts.events import BidPlaced, Continues, KeptOff, Workload
from marketplace.domain.facts.instants import ONE_MILLI, ONE_SECOND
from marketplace.domain.leases.actions import LEASE_MAX
from marketplace.domain.leases.lease import Lease

LINKS_MAX = 10_000
MOVES_WITHIN = timedelta(minutes=1)
"""A lease that work moves to begins so much later at most than was asked for."""
RETRY_AFTER = timedelta(minutes=5)
"""After a fault: a host that lost the work may need a moment, and is not asked in a loop."""
TRIES_AT_ONCE = 3
"""So many hosts in a row on which work fails are followed by others at once. Then it may be the
work's own doing, and it pauses: it is not to go through all hosts of a market in a minute."""
LEASED_SHORTEST = timedelta(minutes=15)
"""As short as owners lease unless they say otherwise: a shorter rest asks for so much where it can
be had, for it might wait in vain. Work that is done earlier ends its lease, and pays no more."""

Because = Literal[
    "consumer", "done", "failed", "money", "no-money", "until", "budget", "expired", "links"
]
NO_MONEY = "no-money"
STAYED = "stayed"
"""Nothing follows a bid to which work was to move, and did not."""

ENDED: dict[str, str] = {
    "consumer": "The consumer wanted no more.",
    "done": "The work had all its time.",
    "failed": "The work ended with an error of its own.",
    "money": "The money set aside was spent.",
    "no-money": "No money came in time for what was to follow.",
    "until": "The date is reached.",
    "budget": "The budget is spent.",
    "expired": "The rest could no longer be met by its deadline.",
    "links": "There were ten thousand bids already.",
    "stayed": "The work stayed where it was.",
}
"""Why nothing follows a bid, besides the code of a refusal of the next one."""

_BY_CONSUMER = frozenset(
    {close_reasons.CLOSED_BY_CONSUMER, close_reasons.BID_WITHDRAWN, close_reasons.RESOLD}
)
_NEVER_CAME_UP = frozenset(
    {
        close_reasons.NEVER_STARTED,
        close_reasons.START_FAILED,
        close_reasons.GPU_OCCUPIED,
        close_reasons.HOST_FALLS_SHORT,
    }
)
_WITHHELD = frozenset(
    {
        close_reasons.HOST_SILENT,
        close_reasons.GPU_LOST,
        close_reasons.DRIVER_CHANGED,
        close_reasons.GPU_FAILING,
        close_reasons.MACHINE_GONE,
    }
)
"""What failed is leased to nobody for now: what follows need not wait to keep off it."""
_MAY_RECOVER = close_reasons.FAULTS - _WITHHELD - {close_reasons.HOST_FALLS_SHORT}
"""The host is as good as before, or will be; one that falls short is asked nothing it cannot do."""
_COPIED = tuple(field.name for field in fields(BidTerms))


def next_id(bid_id: BidId) -> BidId:
    """Return the id of the bid that follows one: so it is placed once, whoever places it."""
    return BidId(uuid5(bid_id, "next"))


@dataclass(frozen=True, slots=True)
class Before:
    """How a bid of a chain ended. base: the last bid that asked for all its time.

    lease: the lease it became; None: it expired. deadline, limit: by when its work is to be done,
    and the most that may cost; None: the bid's own, which are narrower for one that work was to
    move to.
    """

    bid: Bid
    base: BidPlaced
    lease: Lease | None
    deadline: datetime | None = None
    limit: Rate | None = None


def follow(before: Before, *, now: datetime) -> BidTerms | Because:
    """Return what is asked for next, or why nothing is."""
    lease, terms = before.lease, before.bid.terms
    if terms.continues is not None and terms.continues.number >= LINKS_MAX:
        return "links"
    if lease is None:
        return _repeated(before, now) if terms.repeat_until is not None else "expired"
    reason = lease.ending_reason
    if reason in _BY_CONSUMER:
        return "consumer"
    if reason in (close_reasons.WORK_FAILED, close_reasons.OVER_SHARE):
        return "failed"
    if reason == close_reasons.MONEY_SPENT:
        return "money"
    if reason == close_reasons.AWAITS_MONEY:
        return _next_step(before, lease, now)
    if reason in close_reasons.CUT_SHORT and terms.resume:
        rest = _rest(lease, now)
        if rest > timedelta():
            return _resumed(before, lease, max(rest, DURATION_MIN), now)
    return _repeated(before, now) if terms.repeat_until is not None else "done"


def _repeated(before: Before, now: datetime) -> BidTerms | Because:
    """Ask for all of it once more."""
    until = before.base.repeat_until
    assert until is not None
    earliest = _earliest(before.lease, now)
    least = timedelta(seconds=before.base.duration_min_seconds or before.base.duration_seconds)
    deadline = min(until, now + DEADLINE_AHEAD_MAX)
    if earliest + least > deadline:
        return "until"
    terms = _copied(before, before.base)
    return _paid(before, replace(terms, earliest_start=earliest, deadline=deadline), now)


def _resumed(before: Before, lease: Lease, rest: timedelta, now: datetime) -> BidTerms | Because:
    """Ask for the rest of a lease, with as many GPUs as it had, by the same deadline."""
    terms = before.bid.wanted
    whole = timedelta(seconds=before.base.duration_seconds)
    longest = max(rest, min(whole, LEASED_SHORTEST))
    shortest = rest
    if terms.duration_min_seconds is not None:
        shortest = min(rest, timedelta(seconds=terms.duration_min_seconds))
    gpus, fewest = lease.gpus, terms.gpus_min
    kept_off = _keeps_off(before, lease, now)
    earliest = max(now, before.bid.terms.earliest_start)
    if len(kept_off) > TRIES_AT_ONCE:
        earliest, kept_off = max(earliest, now + RETRY_AFTER), ()
    continues = replace(_link_of_rest(before, lease, now), keeps_off=kept_off)
    asked = replace(
        _copied(before, terms),
        gpus=gpus,
        gpus_min=None if fewest is None else min(fewest, gpus),
        duration_seconds=longest // ONE_SECOND,
        duration_min_seconds=None if shortest == longest else shortest // ONE_SECOND,
        # No sooner than its bid wanted it to begin.
        earliest_start=earliest,
        deadline=_finish_by(before, lease),
        continues=continues,
        # Work that was interrupted goes on as soon as it can, and waits for no round.
        patience="immediate",
        seeks="soonest",
    )
    return _paid(before, asked, now)


def _next_step(before: Before, lease: Lease, now: datetime) -> BidTerms | Because:
    """Ask for the step for which there was no money, and what is to be done again.

    It goes on from there, step by step, until when its bid wanted: so it needs little to go on.
    """
    wanted = before.bid.wanted
    until = min(wanted.auto_extend_until or wanted.deadline, now + DEADLINE_AHEAD_MAX)
    step = min(timedelta(seconds=before.base.duration_seconds), STEP_MAX)
    rest = min(_rest(lease, now) + step, until - max(now, before.bid.terms.earliest_start))
    rest -= rest % ONE_SECOND
    if rest < DURATION_MIN:
        return "until"
    asked = _resumed(before, lease, rest, now)
    return asked if isinstance(asked, str) else replace(asked, deadline=until)


def _link_of_rest(before: Before, lease: Lease, now: datetime) -> Continues:
    """Return what the rest goes on from, with what is done of the work by now."""
    terms, paused = before.bid.terms, lease.ending_reason in close_reasons.PAUSES
    link = terms.continues
    pauses = link.pauses if link is not None and link.resumes else 0
    return replace(
        _link(before, resumes=True),
        done_seconds=done_before(terms) + lease.left(now).kept // ONE_SECOND,
        pauses=pauses + paused,
        paused=paused,
    )


def _finish_by(before: Before, lease: Lease) -> datetime:
    """Return by when the rest has to be done.

    What went on in place, beyond the deadline of its bid, may do so until its bid says.
    """
    deadline = before.deadline or before.bid.deadline
    return deadline if lease.ends_at <= deadline else max(deadline, finish_by(before.bid.wanted))


def moving(
    before: Before,
    *,
    bid_id: BidId,
    starts_at: datetime,
    seconds: int,
    limit: Rate,
    now: datetime,
) -> BidTerms | Because:
    """Return what is asked for where work that runs shall move: its rest, from a moment on.

    It is the bid's own work, on its terms, with as many GPUs as it has. What it gets begins then,
    or the work stays where it is.

    Args:
        before: the bid whose lease runs.
        seconds: the rest, with what has to be done again.
        limit: the most per GPU-hour at which it pays to move.
    """
    lease = before.lease
    assert lease is not None, "work that runs has a lease"
    workload = _with_checkpoint(before.bid.wanted.workload, lease, moves=True)
    asked = replace(
        _copied(before, before.bid.wanted),
        bid_id=bid_id,
        workload=workload,
        gpus=lease.gpus,
        gpus_min=None,
        duration_seconds=seconds,
        duration_min_seconds=None,
        earliest_start=starts_at,
        deadline=starts_at + timedelta(seconds=seconds) + MOVES_WITHIN,
        limit=limit,
        continues=replace(_link_of_rest(before, lease, now), moves=True),
        patience="immediate",
        seeks="soonest",
    )
    return _paid(before, asked, starts_at)


def _copied(before: Before, base: BidPlaced) -> BidTerms:
    """Return the terms of a bid as those of the next one, which says what it follows."""
    bid = before.bid
    known = {name: getattr(base, name) for name in _COPIED}
    workload = replace(base.workload, fetch=bid.terms.workload.fetch)  # it may be a commit by now
    return BidTerms(
        **known
        | {
            "bid_id": next_id(bid.terms.bid_id),
            "limit": before.limit or bid.limit,
            # It may have been handed on to another market.
            "market": base.market if before.lease is None else before.lease.terms.market,
            "good_till": "good-till-deadline",
            "good_until": None,
            "workload": _with_checkpoint(workload, before.lease),
            "continues": _link(before, resumes=False),
        }
    )


def _link(before: Before, *, resumes: bool) -> Continues:
    terms = before.bid.terms
    link = terms.continues
    return Continues(
        first_id=terms.bid_id if link is None else link.first_id,
        bid_id=terms.bid_id,
        number=2 if link is None else link.number + 1,
        lease_id=None if before.lease is None else before.lease.terms.lease_id,
        resumes=resumes,
    )


def _with_checkpoint(workload: Workload, lease: Lease | None, *, moves: bool = False) -> Workload:
    """Tell the work which lease came before and up to when it is safe: where its checkpoint is.

    Its source is from here on the commit that was fetched: what runs next is the same code.
    """
    if lease is None:
        return workload
    workload = replace(workload, fetch=pinned(workload.fetch, lease.commit))
    others = dict(workload.environment) | {RESUMES_LEASE: str(lease.terms.lease_id)}
    others.pop(RESUMES_FROM, None)
    goes_on = moves or lease.ending_reason in close_reasons.CUT_SHORT
    if lease.progress.safe_at is not None and goes_on:
        others[RESUMES_FROM] = lease.progress.safe_at.isoformat()
    return replace(workload, environment=tuple(sorted(others.items())))


def _keeps_off(before: Before, lease: Lease, now: datetime) -> tuple[KeptOff, ...]:
    """Return the hosts on which the work failed just now, or not long before."""
    link = before.bid.terms.continues
    kept = {each.host_id: each for each in (() if link is None else link.keeps_off)}
    if lease.ending_reason in _MAY_RECOVER:
        kept |= {host_id: KeptOff(host_id, now + RETRY_AFTER) for host_id in _failed_on(lease)}
    still = (each for each in kept.values() if each.until > now)
    return tuple(sorted(still, key=lambda each: (each.until, each.host_id)))


def _failed_on(lease: Lease) -> frozenset[HostId]:
    """Return the hosts for which a lease ended; where that is not known all that it had."""
    if lease.ending_reason == close_reasons.NEVER_STARTED:
        return lease.hosts - lease.started - lease.awaiting or lease.hosts
    found = lease.rights.of_host or lease.broke_on
    return lease.hosts if found is None else frozenset({found})


def _earliest(lease: Lease | None, now: datetime) -> datetime:
    if lease is not None and lease.ending_reason in close_reasons.FAULTS - _WITHHELD:
        return now + RETRY_AFTER
    # Work that is done at once is not started again and again within a minute.
    return now if lease is None else max(now, lease.starts_at + DURATION_MIN)


def _paid(before: Before, terms: BidTerms, now: datetime) -> BidTerms | Because:
    """Take what the lease cost at most off the budget; drop an extension that ends too soon."""
    least = timedelta(seconds=terms.duration_min_seconds or terms.duration_seconds)
    until = terms.auto_extend_until
    if until is not None and until <= (terms.earliest_start or now) + least:
        terms = replace(terms, auto_extend_until=None)
    budget = before.bid.terms.budget
    if budget is None:
        return terms
    left = budget.nanos - _spent(before.lease, now)
    if left <= 0:
        return "budget"
    return replace(terms, budget=Money(left, budget.currency))


def _spent(lease: Lease | None, now: datetime) -> int:
    """Return what a lease that is over cost at most, in nano-units."""
    if lease is None:
        return 0
    ran = _ran(lease, now)
    return lease.cost_at_most(ends_at=lease.starts_at + ran).nanos if ran >= ONE_MILLI else 0


def _ran(lease: Lease, now: datetime) -> timedelta:
    """Return how long it had its GPUs for work; nothing where the work never came up."""
    if not lease.started or lease.ending_reason in _NEVER_CAME_UP:
        return timedelta()
    return max(timedelta(), min(now, lease.right_ends_at) - lease.starts_at)


def _rest(lease: Lease, now: datetime) -> timedelta:
    """Return what is still to be done of its time, in whole seconds."""
    rest = lease.ends_at - lease.starts_at - lease.left(now).kept
    return min(-(-rest // ONE_SECOND) * ONE_SECOND, DURATION_MAX)


# --- leases that are extended step by step ----------------------------------------------------

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
