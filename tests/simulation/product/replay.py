"""A trace through the product: its commands, engine, policies, metering and ledger, in memory.

Nothing here decides what a grant is, whom it costs or what it pays. What people and agents do is
played:

- an owner's nodes are standing offers, always open, with a notice of two minutes;
- a job bids for an hour to begin within ten minutes, which goes on hour by hour until it is done,
  for how long it takes nobody knows. It may be paused once it had its firm hour; until then it may
  have others paused. What the market places for the rest is the market's doing. A bid that is not
  met is placed anew;
- work that can wait (`backlog`) bids the floor, for what is free beyond a headroom, and is
  interruptible from its start;
- agents start and stop what they are told to, save work in its last two minutes, need two minutes
  to resume it, and tell what was used, a day at a time.

Each job is named in its bids' cost centre, so that the events alone tell what became of it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import uuid5

import listings.policies
import marketplace.policies
import metering.policies
from ledger.domain.account_ids import funds_account
from ledger.domain.ids import BidId, HostId, LeaseId
from ledger.domain.refusal import Refusal
from ledger.domain.span import Window
from ledger.eventstore.port import Meta
from marketplace.commands import bids, leases
from marketplace.domain.bids.bid import BidTerms
from marketplace.domain.facts.events import (
    BidExpired,
    BidPlaced,
    GpuRequest,
    LeaseClosed,
    LeaseExtended,
    LeaseInterrupted,
    LeaseScheduled,
    Workload,
)
from marketplace.domain.leases.renewals import ANSWERED, AWAY_MAX, STEP_MAX
from marketplace.engine import Engine
from metering import commands as meters
from metering.domain.events import GpuUse
from tests.simulation.product.backlog import LOOK_EVERY, Backlog
from tests.simulation.product.clock import SPARED, Clock
from tests.simulation.product.forgetting import ForgettingStore
from tests.simulation.product.founding import (
    BY,
    CURRENCY,
    FLOOR,
    MARKET,
    MODEL,
    NAMES,
    found,
    moment,
    rate,
    seconds,
    tenant_of,
    unit_of,
)
from tests.simulation.product.work import Job, Running
from tests.simulation.traces import DAY, FILLER, GPUS_PER_NODE, HOUR, Jobs

LIMIT = 1.5
"""Per GPU-hour: what owners' jobs pay at most."""
STEP = STEP_MAX.total_seconds()
OWN_STEP = DAY
"""How far a lease on own GPUs is extended at a time: nobody else waits for them."""
AHEAD = (ANSWERED + AWAY_MAX).total_seconds()
PATIENCE = 600.0
"""How much later than at once a bid lets its lease begin."""
FILLS = 2_400.0
"""For how long filler bids, and goes on, at a time: so it never has more than an hour to lose."""
GOES_ON = 27 * DAY
"""For how long a bid lets its lease be extended."""
CHECKPOINT_SECONDS = 1800
SAVING = RESUMING = 120.0
START_GRACE = timedelta(minutes=10)
FORGET_EVERY = 6 * HOUR
FEE_PPM = 50_000
CLOCK = Meta(actor="loop:lease-clock")
USAGE = Meta(actor="loop:usage")


@dataclass(slots=True)
class ProductReplay:
    """One replay. Call `run` once. jobs: arrivals and lengths in whole seconds."""

    jobs: Jobs
    nodes: tuple[int, ...]
    store: ForgettingStore = field(default_factory=ForgettingStore)
    clock: Clock = field(init=False)
    _jobs: list[Job] = field(init=False)
    _leases: dict[LeaseId, Running] = field(default_factory=dict)
    _over: list[tuple[float, str]] = field(default_factory=list)
    open_jobs: int = 0
    backlog: Backlog = field(init=False)

    def __post_init__(self) -> None:
        """Build the market around the store."""
        policies = (
            *listings.policies.POLICIES,
            *marketplace.policies.policies(fee_ppm=FEE_PPM),
            *metering.policies.POLICIES,
        )
        engine = Engine(self.store, MARKET, round_seconds=900)
        self.clock = Clock(self.store, engine, policies)
        self._jobs = [Job(length) for length in self.jobs.duration.tolist()]
        self.open_jobs = sum(1 for owner in self.jobs.owner.tolist() if owner != FILLER)
        self.backlog = Backlog(GPUS_PER_NODE * sum(self.nodes), self.clock, self._fill)

    def run(self) -> None:
        """Go through all jobs, to the end of the last."""
        found(self.store, self.nodes)
        self.clock.listen([BidPlaced], self._placed)
        self.clock.listen([LeaseScheduled], self._scheduled)
        self.clock.listen([LeaseInterrupted], self._interrupted)
        self.clock.listen([LeaseExtended], self._extended)
        self.clock.listen([BidExpired], self._expired)
        self.clock.listen([LeaseClosed], self._closed)
        for job, at in enumerate(self.jobs.arrival.tolist()):
            self.clock.at(at, self._arrives, job)
        self.clock.at(FORGET_EVERY, self._forget)
        if self.open_jobs < len(self._jobs):
            self.clock.at(0.0, self._looks)
        self.clock.run()

    def _arrives(self, number: int) -> None:
        self._ask(number)

    def _ask(self, number: int, *, again: bool = False) -> None:
        """Let a job without GPUs ask for some. again: it had some before."""
        if self.jobs.owner[number] == FILLER:
            self.backlog.add(number, int(self.jobs.gpus[number]), again=again)
        else:
            self._bid(number)

    def _looks(self, _: object) -> None:
        """Fill what is free, as long as any owner's job is to be done."""
        self.backlog.fill()
        if self.open_jobs:
            self.clock.at(self.clock.now + LOOK_EVERY, self._looks)

    # --- bids -------------------------------------------------------------------------------

    def _bid(self, number: int, earliest: float | None = None) -> None:
        """Bid for the next hour of a job. earliest: None: at once."""
        self._place(number, self.clock.now if earliest is None else earliest, limit=LIMIT)

    def _fill(self, number: int) -> bool:
        """Bid for what is free now, for work that can wait; tell if it got it."""
        job = self._jobs[number]
        self._place(number, self.clock.now, limit=FLOOR, length=FILLS)
        self.clock.settle()
        job.asked = None
        return job.running is not None

    def _place(self, number: int, earliest: float, *, limit: float, length: float = STEP) -> None:
        job, owner = self._jobs[number], int(self.jobs.owner[number])
        gpus, waits = int(self.jobs.gpus[number]), owner != FILLER
        job.tries += 1
        bid_id = BidId(uuid5(NAMES, f"bid {number} {job.tries}"))
        terms = BidTerms(
            bid_id=bid_id,
            tenant_id=tenant_of(owner),
            subscriber_id=unit_of(owner),
            user_id=None,
            account_id=funds_account(unit_of(owner), CURRENCY),
            market=MARKET,
            request=GpuRequest(models=(MODEL,)),
            gpus=gpus,
            placement="same-host" if gpus <= GPUS_PER_NODE else "any-hosts",
            duration_seconds=int(length),
            earliest_start=moment(earliest),
            deadline=moment(earliest + length + PATIENCE),
            limit=rate(limit),
            service_class="on-demand" if waits else "interruptible",
            patience="immediate",
            workload=Workload(kind="training", checkpoint_seconds=CHECKPOINT_SECONDS),
            cost_centre=f"job-{number}",
            good_till="good-till-deadline" if waits else "immediate-or-cancel",
            auto_extend_until=moment(earliest + GOES_ON) if waits else None,
            pausable=waits,
        )
        job.asked = bid_id
        bids.place_bid(self.store, terms=terms, by=BY, now=moment(self.clock.now))
        if waits:
            self.clock.at(earliest + PATIENCE + 1, self._lapses, (number, bid_id))

    def _lapses(self, subject: tuple[int, BidId]) -> object:
        """Let the engine look at a bid that may be past its time."""
        number, bid_id = subject
        return None if self._jobs[number].asked == bid_id else SPARED

    def _placed(self, placed: BidPlaced) -> None:
        """Note what the market placed for the rest of a job."""
        job = self._jobs[int(placed.cost_centre.removeprefix("job-"))]
        job.bids.append(placed.bid_id)
        if placed.continues is not None:
            job.asked = placed.bid_id

    def _expired(self, expired: BidExpired) -> None:
        number = self._number_of(expired.bid_id)
        job = self._jobs[number]
        if job.asked == expired.bid_id:
            job.asked = None
            if self.jobs.owner[number] != FILLER:
                self._bid(number)

    def _number_of(self, bid_id: BidId) -> int:
        for recorded in self.store.read_stream(f"bid-{bid_id}"):
            return int(recorded.event.cost_centre.removeprefix("job-"))  # type: ignore[attr-defined]
        raise AssertionError("every bid is one of ours")

    # --- leases -----------------------------------------------------------------------------

    def _scheduled(self, event: LeaseScheduled) -> None:
        number = int(event.cost_centre.removeprefix("job-"))
        job = self._jobs[number]
        lease = Running(
            number,
            event,
            seconds(event.window.starts_at),
            seconds(event.window.ends_at),
            hosts=tuple(sorted({share.host_id for share in event.shares})),
        )
        self._leases[event.lease_id] = lease
        self.backlog.held += int(self.jobs.gpus[number])
        job.asked = None
        if job.running is None:
            job.running = lease
        else:
            job.following = lease
        self.clock.at(lease.starts, self._starts, lease)

    def _starts(self, lease: Running) -> object:
        if lease.over:
            return SPARED
        job = self._jobs[lease.job]
        if job.running is not lease:
            assert job.following is lease
            assert job.running is not None
            self._ends(job.running)  # at this very moment
            assert job.running is lease
        self._advance(lease)
        lease.begun = True
        resuming = RESUMING if job.begun else 0.0
        job.begun = True
        lease.works = self.clock.now + resuming
        self.clock.at(lease.works, self._works, lease)
        return None

    def _works(self, lease: Running) -> object:
        if lease.over:
            return SPARED
        for host_id in lease.hosts:
            leases.lease_started(
                self.store,
                lease_id=lease.lease_id,
                host_id=host_id,
                by=Meta(actor=f"agent:{host_id}"),
                now=moment(self.clock.now),
            )
        self._plan(lease)
        return None

    def _plan(self, lease: Running) -> None:
        done = lease.works + self._jobs[lease.job].remaining
        if done <= self._until(lease):
            self.clock.at(done, self._is_done, lease)
        else:
            self.clock.at(lease.ends, self._ends, lease)
            if not lease.told:
                self.clock.at(max(self.clock.now, lease.ends - AHEAD), self._asks, lease)

    def _until(self, lease: Running) -> float:
        """Return up to when a lease's work makes progress: it is saved in the last two minutes."""
        return max(lease.works, lease.ends - SAVING)

    def _asks(self, lease: Running) -> object:
        """Ask to go on in place; where that is declined, bid anew."""
        job = self._jobs[lease.job]
        if lease.over or lease.told or self.clock.now < lease.ends - AHEAD:
            return SPARED
        ends, is_filler = lease.ends, self.jobs.owner[lease.job] == FILLER
        longer = ends + (
            OWN_STEP if lease.is_own else lease.scheduled.window.length.total_seconds()
        )
        with suppress(Refusal):
            leases.request_extension(
                self.store,
                lease_id=lease.lease_id,
                ends_at=moment(longer),
                by=BY,
                now=moment(self.clock.now),
            )
            self.clock.settle()
        if lease.ends > ends or lease.told:
            return None
        if job.asked is None and job.following is None and not is_filler:
            self._bid(lease.job, lease.ends)
        return None

    def _extended(self, extended: LeaseExtended) -> None:
        lease = self._leases[extended.lease_id]
        lease.ends = seconds(extended.ends_at)
        self._plan(lease)

    def _interrupted(self, interrupted: LeaseInterrupted) -> None:
        lease = self._leases[interrupted.lease_id]
        lease.ends, lease.told = seconds(interrupted.stop_at), True
        self._plan(lease)

    # --- ends -------------------------------------------------------------------------------

    def _is_done(self, lease: Running) -> object:
        job = self._jobs[lease.job]
        done = lease.works + job.remaining
        if lease.over or self.clock.now < done or done > self._until(lease):
            return SPARED
        lease.over = True
        for host_id in lease.hosts:
            self._stopped(lease, host_id, exit_code=0)
        self._meter(lease)
        job.running = None
        job.remaining = 0.0
        for bid_id in job.bids:
            self.store_over(f"bid-{bid_id}")
        if self.jobs.owner[lease.job] != FILLER:
            self.open_jobs -= 1
        if job.asked is not None:
            bids.cancel_bid(self.store, bid_id=job.asked, by=BY, now=moment(self.clock.now))
            job.asked = None
        if job.following is not None:
            following, job.following = job.following, None
            following.over = True
            leases.close_lease(
                self.store, lease_id=following.lease_id, by=BY, now=moment(self.clock.now)
            )
            self.clock.settle()
            meters.close_meter(
                self.store, lease_id=following.lease_id, by=USAGE, now=moment(self.clock.now)
            )
        return None

    def _ends(self, lease: Running) -> object:
        if lease.over or self.clock.now < lease.ends:
            return SPARED
        job = self._jobs[lease.job]
        lease.over = True
        until = self._until(lease)
        if lease.works < until:
            job.remaining -= until - lease.works
        self._advance(lease)
        for host_id in lease.hosts:
            if lease.works < until:
                leases.save_work(
                    self.store,
                    lease_id=lease.lease_id,
                    host_id=host_id,
                    safe_at=moment(until),
                    by=Meta(actor=f"agent:{host_id}"),
                    now=moment(self.clock.now),
                )
        for host_id in lease.hosts:
            self._stopped(lease, host_id, exit_code=None)
        self._meter(lease)
        job.running, job.following = job.following, None
        if job.running is None and job.asked is None:
            self._ask(lease.job, again=True)
        return None

    def _stopped(self, lease: Running, host_id: HostId, exit_code: int | None) -> None:
        leases.lease_stopped(
            self.store,
            lease_id=lease.lease_id,
            host_id=host_id,
            exit_code=exit_code,
            by=Meta(actor=f"agent:{host_id}"),
            now=moment(self.clock.now),
        )

    def _advance(self, lease: Running) -> None:
        leases.advance_lease(
            self.store,
            lease_id=lease.lease_id,
            start_grace=START_GRACE,
            by=CLOCK,
            now=moment(self.clock.now),
        )

    def _closed(self, closed: LeaseClosed) -> None:
        lease = self._leases.pop(closed.lease_id)
        self.backlog.held -= int(self.jobs.gpus[lease.job])
        self.store_over(f"lease-{closed.lease_id}")
        self.store_over(f"meter-{closed.lease_id}")

    def _meter(self, lease: Running) -> None:
        """Tell what was used, cut at midnight."""
        self.clock.settle()
        since = lease.starts
        while since < self.clock.now:
            until = min(self.clock.now, (since // DAY + 1) * DAY)
            window = Window(moment(since), moment(until))
            uses = tuple(
                GpuUse(uuid, share.host_id, share.owner_id, window.millis, None, None, gap_ms=0)
                for share in lease.scheduled.shares
                for uuid in share.gpu_uuids
            )
            meters.close_usage_window(
                self.store,
                lease_id=lease.lease_id,
                window=window,
                gpus=uses,
                gaps=(),
                by=USAGE,
                now=moment(self.clock.now),
            )
            since = until
        meters.close_meter(
            self.store, lease_id=lease.lease_id, by=USAGE, now=moment(self.clock.now)
        )

    # --- what is over -----------------------------------------------------------------------

    def store_over(self, stream: str) -> None:
        """Note a stream of which nobody will ask soon."""
        self._over.append((self.clock.now, stream))

    def _forget(self, _: object) -> None:
        now, kept = self.clock.now, []
        for at, stream in self._over:
            if at < now - HOUR:
                self.store.drop(stream)
            else:
                kept.append((at, stream))
        self._over = kept
        self.store.shorten(f"market-{MARKET}")
        for owner in (FILLER, *range(len(self.nodes))):
            self.store.shorten(f"account-{funds_account(unit_of(owner), CURRENCY)}")
        self.store.forget_log()
        if self.open_jobs:
            self.clock.at(now + FORGET_EVERY, self._forget)
