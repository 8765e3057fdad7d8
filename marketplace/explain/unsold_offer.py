"""Why nobody takes an offer: which bids looked at it, what stood in the way, what would change it.

Every bid is explained on a book with that one offer, by the code that explains and clears, with the
calendar, quotas and limits of the market; one that the offer cannot serve alone, on a book with the
market's other offers too. Changes are tried the same way, one thing changed and all else equal. It
names counts, prices and times, never anybody.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from ledger.domain.ids import OfferId
from ledger.domain.money import Rate
from ledger.domain.span import Window
from ledger.eventstore.port import EventStore
from marketplace.domain.book.book import Book
from marketplace.domain.facts.instants import Millis, from_above, moment
from marketplace.domain.orderbook.listed_offer import Listed
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.placement.eligibility import CONSTRAINTS, Explanation
from marketplace.explain.joint_offers import ELSEWHERE, PRICES, Joint, Together
from marketplace.queries.books import book_of
from marketplace.queries.market import Level

BIDS_MAX = 500
"""Bids that are looked at, by price and then by age."""
LEVELS_MAX = 20
SHOWN_MAX = 50
SIZE = "size"
"""A bid wants more GPUs than the offer has."""
KINDS = frozenset(name for name, _ in CONSTRAINTS)
ANY_TIME = ("windows", "taken")

What = Literal["floor", "resume", "lease-minimum", "workload-kind", "window"]


@dataclass(frozen=True, slots=True)
class Looked:
    """A bid that waits, without a name. reason: what stands in its way; None: nothing does.

    left: how many GPUs of the offer were left before that. gpus, length: the least that would do.
    together: how the offer would serve it with others; None: alone, or not at all.
    """

    limit: Rate
    gpus: int
    length: timedelta
    deadline: datetime
    reason: str | None
    left: int
    together: Together | None = None


@dataclass(frozen=True, slots=True)
class Removed:
    """The bids that one constraint stood in the way of. gpus: that they want together."""

    reason: str | None
    bids: int
    gpus: int
    limit: Rate


@dataclass(frozen=True, slots=True)
class OfferChange:
    """One change of its terms that alone would let a bid be served: the smallest of its kind.

    floor, duration, starts_at: the new value, of what `what` names. With `window` the offer would
    be free from starts_at on for the duration. bids, gpus: which could be served then, each alone;
    limit: the best of them. together: how many of the bids it would serve with other offers only.
    """

    what: What
    bids: int
    gpus: int
    limit: Rate
    together: int = 0
    floor: Rate | None = None
    duration: timedelta | None = None
    starts_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Unsold:
    """Why nobody takes an offer, as of now.

    waiting: bids of others in the book; looked: how many of them were looked at, the best first.
    fitting: those that its GPUs could serve; in_time: of these, those that it could serve at
    some time before their deadline, at any price, as far as policies let them; together: of those,
    the ones for which it takes other offers too. limits: GPUs that those want by limit, highest
    first. floor_needed: the highest floor at which one of them would be served; None: none.
    removed: by what stood in the way. bids: the best of them, one by one.
    """

    waiting: int
    looked: int
    fitting: int
    in_time: int
    limits: tuple[Level, ...]
    floor: Rate
    floor_needed: Rate | None
    removed: tuple[Removed, ...] = ()
    changes: tuple[OfferChange, ...] = ()
    bids: tuple[Looked, ...] = ()
    together: int = 0


def explain_offer(
    store: EventStore, *, market: str, offer_id: UUID, now: datetime
) -> Unsold | None:
    """Say why nobody takes an offer; None for one that is not in the book."""
    with book_of(store, market) as book:
        listed = book.offers.get(OfferId(offer_id))
        return None if listed is None else _Asked(book, listed, from_above(now)).answer()


class _Asked:
    """An offer, and the bids of others that look at it."""

    def __init__(self, book: Book, listed: Listed, now: Millis) -> None:
        self.book, self.listed, self.now = book, listed, now
        self.currency = listed.terms.floor.currency
        owner = listed.terms.tenant_id
        others = [bid for bid in book.bids.values() if bid.terms.tenant_id != owner]
        self.waiting = len(others)
        self.bids = sorted(others, key=lambda bid: bid.price_time)[:BIDS_MAX]
        alone = self.as_if()
        self.told = {bid: self._explain(alone, bid) for bid in self.bids}
        self.reasons = {bid: _reason(told, bid) for bid, told in self.told.items()}
        self.joint = Joint(book, listed, [bid for bid in self.bids if self._short(bid)])
        self.together: dict[OpenBid, Together] = {}
        self._with_others()

    def answer(self) -> Unsold:
        """Return all there is to say."""
        free_of_charge = self.served(self.bids, floor=0, paused=False)
        levels: dict[int, int] = {}
        for bid in free_of_charge:
            levels[bid.limit] = levels.get(bid.limit, 0) + bid.gpus
        limits = tuple(Level(*level) for level in sorted(levels.items(), reverse=True))
        needed = self._floor_needed(free_of_charge)
        floor = self.rate(self.listed.floor)
        return Unsold(
            waiting=self.waiting,
            looked=len(self.bids),
            fitting=sum(_fits(told) for told in self.told.values()),
            in_time=len(free_of_charge),
            limits=limits[:LEVELS_MAX],
            floor=floor,
            floor_needed=needed,
            removed=tuple(self._removed()),
            changes=tuple(self._changes(needed)),
            bids=tuple(self._looked(bid) for bid in self.bids[:SHOWN_MAX]),
            together=sum(bid in self.joint.bids for bid in free_of_charge),
        )

    def rate(self, nanos: int) -> Rate:
        """Return a price in the offer's currency."""
        return Rate(nanos, self.currency)

    def _alone(self, listed: Listed) -> Book:
        """Return a book with one offer, under the policies of the market.

        listed: not one of the market's book: what is listed knows the book that it is in.
        """
        alone = Book(self.book.market)
        alone.leases.records[listed.terms.host_id] = self.listed.record
        alone.agents, alone.promises = self.book.agents, self.book.promises
        alone.take_in(listed)
        alone.quotas = self.book.quotas
        return alone

    def as_if(self, **changes: Any) -> Book:
        """Return a book with the offer as it is, or would be with something changed."""
        return self._alone(self._changed(**changes))

    def _changed(
        self, *, floor: int | None = None, paused: bool | None = None, **terms: Any
    ) -> Listed:
        was = self.listed
        changed = Listed(
            replace(was.terms, **terms), was.published, was.floor if floor is None else floor
        )
        changed.since, changed.paused = was.since, was.paused if paused is None else paused
        return changed

    def served(self, bids: Iterable[OpenBid], **changes: Any) -> list[OpenBid]:
        """Return the bids that it would serve with something changed, best first.

        Each is looked at alone; those that take other offers too, with those.
        """
        changed, joint = self.as_if(**changes), None
        found = []
        for bid in bids:
            if bid not in self.joint.bids:
                if self._explain(changed, bid).reason is None:
                    found.append(bid)
                continue
            joint = joint or self.joint.with_it(self._changed(**changes))
            told = joint(bid, self.now)
            if told.reason is None and self.joint.used(told.placement) is not None:
                found.append(bid)
        return found

    def _short(self, bid: OpenBid) -> bool:
        """Tell if the offer has some of what a bid wants, and other offers may have the rest."""
        if self.reasons[bid] not in (SIZE, *ANY_TIME, "together") or not _fits(self.told[bid]):
            return False
        if bid.terms.placement != "same-host":
            return True
        beside = self.book.entries_on(bid.shape, {self.listed.terms.host_id})
        return any(entry.listed is not self.listed for entry in beside)

    def _with_others(self) -> None:
        """Explain the bids for which it takes other offers too."""
        if not self.joint.bids:
            return
        as_is = self.joint.with_it(self._changed())
        for bid in self.joint.bids:
            told = as_is(bid, self.now)
            used = self.joint.used(told.placement) if told.reason is None else None
            if used is not None:
                self.reasons[bid], self.together[bid] = None, used
            elif told.reason is None:
                self.reasons[bid] = ELSEWHERE
            elif told.reason == "limit":
                self.reasons[bid] = "limit" if self.served([bid], floor=0) else PRICES
            elif bid.terms.placement != "same-host" and told.reason in ANY_TIME:
                self.reasons[bid] = told.reason

    def _explain(self, book: Book, bid: OpenBid) -> Explanation:
        return book.explain(bid, now=self.now, calendar=self.book.calendar)

    def _floor_needed(self, free_of_charge: Sequence[OpenBid]) -> Rate | None:
        """Return the highest floor at which a bid would be served, by the limits of those.

        Where others serve a bid with it, what they ask counts too: it has to be among the cheapest.
        """
        floors = {bid.limit for bid in free_of_charge}
        if any(bid in self.joint.bids for bid in free_of_charge):
            floors |= {floor for floor in self.joint.floors if floor < max(floors)}
        for floor in sorted(floors, reverse=True)[:LEVELS_MAX]:
            if self.served(free_of_charge, floor=floor, paused=False):
                return self.rate(floor)
        return None

    def _looked(self, bid: OpenBid) -> Looked:
        told, least = self.told[bid], bid.least
        lefts = [stage.left for stage in told.funnel]
        short = next((n for n, left in enumerate(lefts) if left < least.gpus), len(lefts))
        return Looked(
            limit=self.rate(bid.limit),
            gpus=least.gpus,
            length=timedelta(milliseconds=least.duration),
            deadline=moment(bid.deadline),
            reason=self.reasons[bid],
            left=lefts[max(0, short - 1)],
            together=self.together.get(bid),
        )

    def _removed(self) -> Iterator[Removed]:
        by_reason: dict[str | None, list[OpenBid]] = {}
        for bid, reason in self.reasons.items():
            by_reason.setdefault(reason, []).append(bid)
        for reason, bids in sorted(by_reason.items(), key=lambda one: -len(one[1])):
            yield Removed(
                reason,
                len(bids),
                sum(bid.least.gpus for bid in bids),
                self.rate(max(bid.limit for bid in bids)),
            )

    # --- what would change it ------------------------------------------------------------------

    def _changes(self, floor_needed: Rate | None) -> Iterator[OfferChange]:
        if self.listed.paused:
            yield from self._change("resume", self.served(self.bids, paused=False))
            return
        if floor_needed is not None and floor_needed.nanos_per_gpu_hour < self.listed.floor:
            nanos = floor_needed.nanos_per_gpu_hour
            served = self.served(self.bids, floor=nanos)
            yield from self._change("floor", served, floor=floor_needed)
        yield from self._shorter()
        of_kind = self._because("workload-kind")
        yield from self._change("workload-kind", self.served(of_kind, workload_kinds=()))
        yield from self._window()

    def _because(self, *reasons: str) -> list[OpenBid]:
        return [bid for bid, reason in self.reasons.items() if reason in reasons]

    def _change(self, what: What, bids: Sequence[OpenBid], **values: Any) -> Iterator[OfferChange]:
        if bids:
            yield OfferChange(
                what=what,
                bids=len(bids),
                gpus=sum(bid.least.gpus for bid in bids),
                limit=self.rate(max(bid.limit for bid in bids)),
                together=sum(bid in self.joint.bids for bid in bids),
                **values,
            )

    def _shorter(self) -> Iterator[OfferChange]:
        served = self.served(self._because("lease-minimum"), lease_min_seconds=0)
        if served:
            longest = max(bid.least.duration for bid in served)
            seconds = longest // 1_000
            again = self.served(served, lease_min_seconds=seconds)
            yield from self._change("lease-minimum", again, duration=timedelta(seconds=seconds))

    def _window(self) -> Iterator[OfferChange]:
        """Say when it would have to be free for the best of the bids that came at a wrong time."""
        bids = self._because(*ANY_TIME)
        if not bids:
            return
        until = moment(max(bid.deadline for bid in bids))
        always = Window(moment(self.now), until + timedelta(days=1))
        changed = self.as_if(windows=(always,), weekly=None)
        found = {bid: self._explain(changed, bid).placement for bid in bids}
        served = [bid for bid in bids if found[bid] is not None]
        if served:
            placement = found[served[0]]
            assert placement is not None
            yield from self._change(
                "window",
                served,
                starts_at=moment(placement.starts),
                duration=timedelta(milliseconds=served[0].least.duration),
            )


def _reason(told: Explanation, bid: OpenBid) -> str | None:
    """Return what stands in a bid's way; of an offer too small, first what it is not."""
    if told.reason is None:
        return None
    nothing = next((stage.constraint for stage in told.funnel if stage.left == 0), None)
    if told.reason == "listed":
        return nothing if nothing in KINDS else SIZE
    return told.reason


def _fits(told: Explanation) -> bool:
    """Tell if anything of the offer is left once all was applied that never changes."""
    return all(stage.left for stage in told.funnel if stage.constraint in KINDS)
