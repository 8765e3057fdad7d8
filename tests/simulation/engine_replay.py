"""A stretch of a trace cleared by the product's own engine: the book, and all that it decides.

Only the clearing is the product's: `Book`, `on_fact` with its preemption, extensions. What people
and the other loops of the product do is played here, by rules as near to the model's as the
product allows:

- an owner's nodes are offers, always open, with a notice of two minutes;
- a job bids for one firm hour at first, for how long it takes nobody knows, and leaves when it is
  done. A quarter of an hour before its hour is over it bids for the next, at a lower limit;
- past its first hour it runs in interruptible leases, that go on in place, hour by hour, while
  nothing stands in the way. A fresh job that finds nothing free may interrupt those that have run
  for half an hour;
- a bid wants to begin within ten minutes, and is placed anew until it is met.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from uuid import uuid5

import numpy as np

from ledger.domain.event import Event
from ledger.domain.ids import BidId, LeaseId
from marketplace.domain.book.book import Book
from marketplace.domain.decisions.decide import on_fact
from marketplace.domain.facts.close_reasons import CLOSED_BY_CONSUMER, INTERRUPTED, WINDOW_OVER
from marketplace.domain.facts.events import (
    BidCancelled,
    BidExpired,
    BidFilled,
    ExtensionGranted,
    ExtensionRequested,
    LeaseClosed,
    LeaseGranted,
    MarketEvent,
)
from marketplace.domain.facts.instants import from_above
from marketplace.domain.leases.renewals import ANSWERED, AWAY_MAX
from tests.simulation.engine_facts import (
    MARKET,
    NAMES,
    STEP,
    bid_of,
    gpus_in,
    moment,
    offer_of,
    seconds,
)
from tests.simulation.fleet import Tally
from tests.simulation.rules import Outcome, Rules
from tests.simulation.traces import DAY, GPUS_PER_NODE, HOUR, Jobs

PATIENCE = 600.0
"""How much later than at once a bid lets its lease begin."""
AHEAD = (ANSWERED + AWAY_MAX).total_seconds()
FORGET_EVERY = 1 * HOUR
ARRIVES, ENDS, ASKS, EXPIRES, FORGETS = range(5)


class Running:
    """A lease of a job. works: from when on it makes progress; ends: when the lease does."""

    __slots__ = ("closed", "ends", "granted", "job", "starts", "told", "works")

    def __init__(self, job: int, granted: LeaseGranted) -> None:
        self.job, self.granted = job, granted
        self.starts = self.works = seconds(granted.window.starts_at)
        self.ends = seconds(granted.window.ends_at)
        self.closed, self.told = False, False

    def samegpus_in(self, other: Running) -> bool:
        """Tell if another lease is of the same GPUs: then work goes on without a break."""
        return gpus_in(self.granted) == gpus_in(other.granted)


class EngineReplay:
    """One replay. Call `run` once."""

    def __init__(self, jobs: Jobs, nodes: tuple[int, ...], horizon: float) -> None:
        self.jobs, self.nodes, self.horizon = jobs, nodes, horizon
        self.rules = Rules()
        self.tally = Tally(DAY, horizon - DAY)
        self.book = Book(MARKET)
        self.position = self.decided = self.tries = 0
        self.now = 0.0
        count = len(jobs)
        self.gpus, self.owner = jobs.gpus.tolist(), jobs.owner.tolist()
        self.remaining = jobs.duration.tolist()
        self.started, self.ended = np.full(count, np.inf), np.full(count, np.inf)
        self.stood, self.within = np.zeros(count), np.zeros(count, dtype=np.bool_)
        self.used = [0] * len(nodes)
        self.waits_since: dict[int, float] = {}
        self.interrupted: dict[int, tuple[float, str]] = {}
        self.bids: dict[BidId, int] = {}
        self.asked: dict[int, BidId] = {}
        """The bid of each job that waits for one."""
        self.leases: dict[LeaseId, Running] = {}
        self.running: dict[int, Running] = {}
        self.next: dict[int, Running] = {}
        """Leases that are to follow on those that run."""
        self.events: list[tuple[float, int, int, object]] = [
            (at, job, ARRIVES, job) for job, at in enumerate(jobs.arrival.tolist())
        ]
        self.events.append((FORGET_EVERY, 0, FORGETS, None))
        heapify(self.events)
        self.number = count

    def run(self) -> Outcome:
        """Go through all jobs, to the end of the last."""
        for owner, count in enumerate(self.nodes):
            for node in range(count):
                self._take_in(offer_of(owner, node, self.horizon))
        act: dict[int, Callable[[object], None]] = {
            ARRIVES: self._arrives,
            ENDS: self._ends,
            ASKS: self._asks,
            EXPIRES: self._expires,
            FORGETS: self._forgets,
        }
        while self.events:
            self.now, _, what, subject = heappop(self.events)
            act[what](subject)
        return Outcome(
            self.jobs,
            sum(self.nodes),
            self.started,
            self.ended,
            self.stood,
            self.within,
            self.tally,
        )

    def _at(self, when: float, what: int, subject: object) -> None:
        self.number += 1
        heappush(self.events, (when, self.number, what, subject))

    # --- the engine -------------------------------------------------------------------------

    def _take_in(self, event: Event) -> None:
        """Fold a fact, let the engine decide, fold the decisions, do what follows from them."""
        self.position += 1
        trigger = self.book.apply(event, self.position)
        self.book.read_to = self.position
        if trigger is None:
            return
        round_id = uuid5(NAMES, f"round {self.position}")
        made = on_fact(self.book, trigger, now=from_above(moment(self.now)), round_id=round_id)
        for each in made:
            self.book.apply(each, self.position)
        self.decided += len(made)
        for each in made:
            self._follow(each)

    def _follow(self, decided: MarketEvent) -> None:
        match decided:
            case LeaseGranted():
                for cut in decided.cuts:
                    self._cut(LeaseId(cut.lease_id), seconds(cut.ends_at))
                self._granted(decided)
            case ExtensionGranted():
                lease = self.leases[LeaseId(decided.lease_id)]
                lease.ends = seconds(decided.ends_at)
                self._plan_end(lease)
            case _:
                pass

    # --- bids -------------------------------------------------------------------------------

    def _arrives(self, subject: object) -> None:
        assert isinstance(subject, int)
        owner, gpus = self.owner[subject], self.gpus[subject]
        own = GPUS_PER_NODE * self.nodes[owner]
        self.within[subject] = self.used[owner] + gpus <= own
        self.waits_since[subject] = self.now
        self._bid(subject, self.now)

    def _bid(self, job: int, earliest: float) -> None:
        self.tries += 1
        latest = earliest + PATIENCE
        terms = bid_of(
            self.tries,
            self.owner[job],
            self.gpus[job],
            earliest=earliest,
            deadline=latest + STEP,
            fresh=self._is_fresh(job),
            now=self.now,
        )
        self.bids[terms.bid_id], self.asked[job] = job, terms.bid_id
        self._at(latest + 1, EXPIRES, terms.bid_id)
        self._take_in(terms)

    def _is_fresh(self, job: int) -> bool:
        """Tell if a job is in its first hour of progress."""
        assert self.rules.firm_for is not None
        done = float(self.jobs.duration[job]) - float(self.remaining[job])
        return done < self.rules.firm_for

    def _expires(self, subject: object) -> None:
        """Place a bid anew that waited in vain."""
        bid_id = BidId(subject)  # type: ignore[arg-type]  # what EXPIRES comes with
        job = self.bids.pop(bid_id, None)
        if job is not None:
            del self.asked[job]
            self._take_in(BidExpired(bid_id=bid_id, at=moment(self.now)))
            self._bid(job, self.now)

    # --- leases -----------------------------------------------------------------------------

    def _granted(self, granted: LeaseGranted) -> None:
        bid_id = BidId(granted.bid_id)
        job = self.bids.pop(bid_id)
        del self.asked[job]
        lease = self.leases[LeaseId(granted.lease_id)] = Running(job, granted)
        if job in self.running:
            self.next[job] = lease
        else:
            self._begin(lease)
        self._take_in(
            BidFilled(bid_id=bid_id, lease_id=LeaseId(granted.lease_id), at=moment(self.now))
        )

    def _begin(self, lease: Running) -> None:
        job = lease.job
        again = self.interrupted.pop(job, None)
        lease.works = lease.starts + (self.rules.resume if again else 0.0)
        self.running[job] = lease
        self.used[self.owner[job]] += self.gpus[job]
        self.stood[job] += lease.starts - self.waits_since.pop(job)
        self.started[job] = min(self.started[job], lease.starts)
        if again:
            self.tally.resumed_after.setdefault(again[1], []).append(lease.starts - again[0])
        self._plan_end(lease)

    def _plan_end(self, lease: Running) -> None:
        done = lease.works + self.remaining[lease.job]
        self._at(min(done, lease.ends), ENDS, lease)
        if done > lease.ends and not lease.told:
            self._at(max(self.now, lease.ends - AHEAD), ASKS, lease)

    def _asks(self, subject: object) -> None:
        """Ask to go on in place; where that is declined, or the hour was firm, bid anew."""
        assert isinstance(subject, Running)
        if subject.closed or subject.told or self.now < subject.ends - AHEAD:
            return
        ends = subject.ends
        if not self._was_firm(subject):
            self._take_in(
                ExtensionRequested(
                    lease_id=LeaseId(subject.granted.lease_id),
                    market=MARKET,
                    ends_at=moment(ends + STEP),
                    at=moment(self.now),
                )
            )
        if subject.ends == ends and subject.job not in self.asked and subject.job not in self.next:
            self._bid(subject.job, ends)

    def _was_firm(self, lease: Running) -> bool:
        held = self.book.held.get(LeaseId(lease.granted.lease_id))
        return held is not None and not held.is_interruptible

    def _cut(self, lease_id: LeaseId, ends: float) -> None:
        """Note that a lease ends sooner, for a fresh job: the rest of the work bids anew."""
        lease = self.leases[lease_id]
        lease.ends, lease.told = ends, True
        self._at(min(lease.works + self.remaining[lease.job], ends), ENDS, lease)

    def _ends(self, subject: object) -> None:
        assert isinstance(subject, Running)
        if subject.closed:
            return
        job = subject.job
        done = subject.works + self.remaining[job]
        if self.now < min(done, subject.ends):
            return  # it was extended meanwhile
        finished = done <= subject.ends
        self._close(subject, self.now if finished else subject.ends, finished=finished)
        if finished:
            self.ended[job] = self.now
            self._leave(job)
        else:
            self._go_on(subject)

    def _leave(self, job: int) -> None:
        """Cancel what was to follow on a job's last lease."""
        bid_id = self.asked.pop(job, None)
        if bid_id is not None:
            del self.bids[bid_id]
            self._take_in(BidCancelled(bid_id=bid_id, at=moment(self.now)))
        following = self.next.pop(job, None)
        if following is not None:
            self._say_closed(following, self.now, CLOSED_BY_CONSUMER)

    def _go_on(self, before: Running) -> None:
        """Begin the lease that follows, or wait for it."""
        job, at = before.job, before.ends
        self.waits_since[job] = at
        following = self.next.pop(job, None)
        if following is None or following.starts > at or not before.samegpus_in(following):
            self.interrupted[job] = (at, "interrupted" if before.told else "window over")
        if following is not None:
            self._begin(following)
        elif job not in self.asked:
            self._bid(job, self.now)

    def _close(self, lease: Running, at: float, *, finished: bool) -> None:
        job, gpus = lease.job, self.gpus[lease.job]
        # Told to go, work makes no progress in the notice: it is saved meanwhile.
        until = at if finished or not lease.told else max(lease.works, at - self.rules.notice)
        self.remaining[job] = max(1.0, self.remaining[job] - max(0.0, until - lease.works))
        self.used[self.owner[job]] -= gpus
        del self.running[job], self.leases[LeaseId(lease.granted.lease_id)]
        self.tally.held_owners += self.tally.overlap(lease.starts, at) * gpus
        idle = self.tally.overlap(lease.starts, min(lease.works, at))
        self.tally.lost += (idle + self.tally.overlap(until, at)) * gpus
        interrupted = INTERRUPTED if lease.told else WINDOW_OVER
        self._say_closed(lease, at, CLOSED_BY_CONSUMER if finished else interrupted)

    def _say_closed(self, lease: Running, at: float, reason: int) -> None:
        lease.closed = True
        self._take_in(
            LeaseClosed(
                lease_id=LeaseId(lease.granted.lease_id),
                market=MARKET,
                reason=reason,
                failed=False,
                compensation=None,
                compensation_from=None,
                at=moment(at),
            )
        )

    def _forgets(self, subject: object) -> None:
        self.book.forget_before(from_above(moment(self.now - DAY)))
        self.book.dead(from_above(moment(self.now)))
        if len(self.events) > 0:
            self._at(self.now + FORGET_EVERY, FORGETS, None)
