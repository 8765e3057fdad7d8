"""Run the facts of a stretch of the log past the real engine, under other rules.

What people did is repeated as far as it still makes sense: bids come and are amended or withdrawn
when they were; offers come, change and go; who left a lease early leaves after the same time of
use; an extension is asked for by as much; an owner who took GPUs back takes them back from whoever
holds them then. The engine's own decisions, and what follows from them, are made anew.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import count, groupby

from ledger.domain.event import Event
from ledger.domain.ids import BidId
from ledger.domain.refusal import Refusal
from ledger.eventstore.port import START, Position, Recorded, record
from listings.domain.events import OfferPublished
from marketplace.domain.bids.bid import NOW_OR_NEVER, Bid
from marketplace.domain.book.book import Book
from marketplace.domain.clearing.fills import Rules
from marketplace.domain.decisions.decide import on_round
from marketplace.domain.facts.close_reasons import (
    CLOSED_BY_CONSUMER,
    INTERRUPTED,
    RECLAIMED,
    WINDOW_OVER,
)
from marketplace.domain.facts.events import (
    BidAmended,
    BidCancelled,
    BidExpired,
    BidFilled,
    BidMoveAsked,
    BidPlaced,
    ExtensionGranted,
    ExtensionRequested,
    GrantRefused,
    LeaseClosed,
    LeaseGranted,
    ReclaimRequested,
)
from marketplace.domain.facts.instants import EPOCH
from marketplace.domain.facts.policy_events import HalfLifeSet, LeastRunSet
from marketplace.engine import Engine
from marketplace.folding import Folding, to_the_end
from marketplace.lab.past import what_was
from marketplace.lab.replica import Replica
from marketplace.lab.variants import Variant
from marketplace.snapshots.port import Snapshot


class LabTooSlow(Refusal):
    """The stretch takes too long to run again.

    Ask for a shorter one.
    """


@dataclass(slots=True)
class _Lease:
    granted: LeaseGranted
    ends: datetime


@dataclass(frozen=True, slots=True)
class Stretch:
    """The log up to a place in it, and the facts and decisions that came then. market: whose.

    after: the position of the last that came before it.

    start: the book with which the history begins; None: at the first event. behind: what a stream
    held by then.
    """

    market: str
    history: Sequence[Recorded]
    recorded: Sequence[Recorded]
    since: datetime
    until: datetime
    after: Position
    start: Snapshot | None = None
    behind: Callable[[str], Sequence[Recorded]] | None = None

    @property
    def begins(self) -> Position:
        """Return the position after which the history begins."""
        return START if self.start is None else self.start.next_position


class _Unhurried(Engine):
    """The engine without its clock: each round is searched to its stated end, in every run.

    And without money: a bid out of time ends, and there is no account to give its hold back to.

    start: the book it goes on from; None: it folds the log.
    """

    def __init__(
        self,
        store: Replica,
        market: str,
        *,
        round_seconds: int,
        rules: Rules,
        start: Snapshot | None,
    ) -> None:
        super().__init__(store, market, round_seconds=round_seconds, rules=rules)
        self._start = start

    def _fold(self) -> Folding:
        # Whoever read the stretch saw that no decision since had read less than the snapshot.
        return to_the_end(Folding(self._market, self._start), self._store)

    def _clear_round(self, book: Book) -> None:
        round_id = self._next_id("round")
        self._keep(book, on_round(book, now=self._millis, round_id=round_id, rules=self._rules))

    def _expire(self, bid_ids: Iterable[BidId]) -> int:
        ended = 0
        for bid_id in bid_ids:
            record(self._store, Bid, bid_id, self._out_of_time, by=self._by)
            ended += 1
        return ended

    def _out_of_time(self, bid: Bid | None) -> Sequence[BidExpired]:
        return [] if bid is None else bid.expire(now=self._now)


class Run:
    """One run of a stretch under one variant. `again` returns the log that came of it."""

    def __init__(self, stretch: Stretch, variant: Variant) -> None:
        self._stretch, self._variant = stretch, variant
        self._stream = f"market-{stretch.market}"
        self._round_every = timedelta(seconds=variant.round_seconds)
        start = stretch.start
        self._store = Replica(
            stretch.history,
            after=stretch.begins,
            versions={self._stream: 0 if start is None else start.version},
            behind=stretch.behind,
        )
        self._engine = _Unhurried(
            self._store,
            stretch.market,
            round_seconds=variant.round_seconds,
            rules=variant.rules,
            start=start,
        )
        self._was = what_was(stretch.recorded, self._stream)
        self._govern()
        self._unlisted: set[str] = set()
        """Streams of offers that nobody was let list."""
        self._live: dict[BidId, _Lease] = {}
        self._due: list[tuple[datetime, int, Callable[[], None]]] = []
        self._number = count()
        self._news = self._ticking = False
        self._latest = EPOCH
        before = 0 if start is None else start.version
        self._version = before + sum(1 for _ in self._store.read_stream(self._stream))

    def again(
        self, *, enough: Callable[[], bool], told: Callable[[int], None] = lambda done: None
    ) -> Sequence[Recorded]:
        """Run it all.

        Args:
            enough: asked at each step; true once it has run too long.
            told: told after each moment how much of what was recorded is gone through.

        Raises: LabTooSlow.
        """
        done, facts = 0, self._facts()
        # Together what came at one moment: a round that is due then finds all of it.
        for at, together in groupby(facts, key=self._moment):
            self._pass(at, enough)
            self._step(max(self._boundary(at), self._store.now), enough)
            for number, recorded in together:
                self._repeat(recorded)
                done = number
            self._step(at, enough)
            told(done)
        self._pass(self._stretch.until, enough)
        self._step(self._stretch.until, enough)
        return self._store.records

    def _govern(self) -> None:
        """Put the variant's policies before the stretch."""
        for policy in self._variant.decrees(self._market, self._stretch.since):
            self._store.put(f"governance-{self._market}", policy)

    @property
    def _market(self) -> str:
        return self._stretch.market

    def _facts(self) -> Iterator[tuple[int, Recorded]]:
        """Yield what was no decision of the engine, and its place in the stretch."""
        return (
            (number, each)
            for number, each in enumerate(self._stretch.recorded, 1)
            if each.stream != self._stream
        )

    def _moment(self, fact: tuple[int, Recorded]) -> datetime:
        """Return when a fact is repeated: when it happened, and never before what came earlier."""
        at: datetime = fact[1].event.at  # type: ignore[attr-defined]  # facts have it
        self._latest = max(at, self._latest)
        return self._latest

    def _pass(self, until: datetime, enough: Callable[[], bool]) -> None:
        """Let what is due by then happen."""
        while self._due and self._due[0][0] <= until:
            at, _, act = heapq.heappop(self._due)
            self._store.now = max(at, self._store.now)
            act()
            self._step(self._store.now, enough)

    def _step(self, now: datetime, enough: Callable[[], bool]) -> None:
        """Let the engine look at what is new, and once more when the next round is due."""
        if enough():
            raise LabTooSlow(facts=len(self._stretch.recorded))
        self._store.now = now
        self._engine.run_once(now=now)
        for recorded in self._store.read_stream(self._stream, after_version=self._version):
            self._version += 1
            self._follow(recorded.event)
        if self._news and not self._ticking:
            self._news, self._ticking = False, True
            self._at(self._boundary(now) + self._round_every, self._tick)

    def _at(self, when: datetime, act: Callable[[], None]) -> None:
        heapq.heappush(self._due, (when, next(self._number), act))

    def _boundary(self, at: datetime) -> datetime:
        """Return when the last round was due: they go on at their pace, also with nobody there."""
        since = self._stretch.since
        return since + (at - since) // self._round_every * self._round_every

    def _tick(self) -> None:
        """Come to where a round is due. Without news since the last there is nothing to clear."""
        self._ticking = False

    def _put(self, stream: str, event: Event) -> None:
        self._news = True
        self._store.put(stream, event)

    def _follow(self, decided: Event) -> None:
        """Do what follows from a decision of the engine."""
        if isinstance(decided, ExtensionGranted):
            for lease in self._live.values():
                if lease.granted.lease_id == decided.lease_id:
                    lease.ends = decided.ends_at
                    self._end_at(lease, decided.ends_at, WINDOW_OVER)
        if not isinstance(decided, LeaseGranted):
            return
        for cut in decided.cuts:
            for lease in self._live.values():
                if lease.granted.lease_id == cut.lease_id:
                    lease.ends = cut.ends_at
                    self._end_at(lease, cut.ends_at, INTERRUPTED)
        filled = BidFilled(bid_id=decided.bid_id, lease_id=decided.lease_id, at=decided.at)
        self._put(f"bid-{decided.bid_id}", filled)
        lease = self._live[decided.bid_id] = _Lease(decided, decided.window.ends_at)
        self._end_at(lease, lease.ends, WINDOW_OVER)
        left = self._was.left(BidId(decided.bid_id), decided.window)
        if left is not None:
            self._end_at(lease, left, CLOSED_BY_CONSUMER)

    def _end_at(self, lease: _Lease, at: datetime, reason: int) -> None:
        def end() -> None:
            if self._live.get(lease.granted.bid_id) is not lease:
                return
            if reason == WINDOW_OVER and lease.ends > at:
                return
            del self._live[lease.granted.bid_id]
            self._put(f"lease-{lease.granted.lease_id}", self._closed(lease, at, reason))

        self._at(max(at, self._store.now), end)

    def _closed(self, lease: _Lease, at: datetime, reason: int) -> LeaseClosed:
        return LeaseClosed(
            lease_id=lease.granted.lease_id,
            market=self._stretch.market,
            reason=reason,
            failed=False,
            compensation=None,
            compensation_from=None,
            at=at,
        )

    # --- what people did -------------------------------------------------------------------

    def _repeat(self, recorded: Recorded) -> None:
        """Put a fact of the past as it makes sense in this run, or leave it out."""
        stream, event = recorded.stream, recorded.event
        match event:
            case BidPlaced():
                self._put(stream, self._in_lane(event))
            case BidMoveAsked():
                self._put(stream, replace(event, placed=self._in_lane(event.placed)))
            case BidFilled() | GrantRefused() | BidExpired():
                pass
            case BidAmended() | BidCancelled() if self._is_over(stream):
                pass
            case OfferPublished() if event.reserved_for and self._is_over(
                f"bid-{event.reserved_for}"
            ):
                pass
            case OfferPublished() if self._may_not_list(event):
                self._unlisted.add(stream)
            case _ if stream in self._unlisted:
                pass
            case ReclaimRequested() if event.lease_id in self._was.bids:
                self._reclaim(event)
            case LeaseClosed() if event.lease_id in self._was.bids:
                pass
            case ExtensionRequested() if event.lease_id in self._was.bids:
                self._ask_for_more(event)
            case HalfLifeSet() | LeastRunSet() if self._variant.overrules(event):
                pass
            case _:
                self._put(stream, event)

    def _in_lane(self, placed: BidPlaced) -> BidPlaced:
        match self._variant.lanes:
            case "instant":
                return replace(placed, patience="immediate")
            case "patient" if placed.good_till not in NOW_OR_NEVER:
                return replace(placed, patience="patient")
            case _:
                return placed

    def _may_not_list(self, offer: OfferPublished) -> bool:
        permits = self._variant.listing
        return permits is not None and not all(
            permits.may_list(offer.tenant_id, gpu.model) for gpu in offer.gpus
        )

    def _is_over(self, stream: str) -> bool:
        """Tell if a bid waits no longer in this run."""
        over = (BidFilled, BidExpired, BidCancelled)
        return any(isinstance(each.event, over) for each in self._store.read_stream(stream))

    def _reclaim(self, was: ReclaimRequested) -> None:
        """Take the same GPUs back from whoever holds them now."""
        wanted = self._was.gpus[was.lease_id, was.owner_id]
        for lease in list(self._live.values()):
            granted = lease.granted
            held = {
                uuid
                for share in granted.shares
                if share.owner_id == was.owner_id
                for uuid in share.gpu_uuids
            }
            if held & wanted and granted.window.starts_at < was.stop_at:
                event = replace(was, lease_id=granted.lease_id)
                self._put(f"lease-{granted.lease_id}", event)
                self._end_at(lease, was.stop_at, RECLAIMED)

    def _ask_for_more(self, was: ExtensionRequested) -> None:
        lease = self._live.get(self._was.bids[was.lease_id])
        if lease is None:
            return
        more = was.ends_at - self._was.asked_from[was.lease_id, was.ends_at]
        lease_id = lease.granted.lease_id
        event = replace(was, lease_id=lease_id, ends_at=lease.ends + more, at=self._store.now)
        self._put(f"lease-{lease_id}", event)
