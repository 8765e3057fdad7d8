"""What would change it: for a bid that waits and for an offer that nobody takes.

Each answer is tried by the code that clears, on the book as it is, with one thing changed and all
else equal. For a patient bid it says what would be placed if the bid were alone in its round. It
names counts and prices, never anybody.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from ledger.domain.ids import BidId, OfferId
from ledger.domain.money import Rate
from ledger.eventstore.port import EventStore
from marketplace.domain.book import Book
from marketplace.domain.bounds import DEADLINE_AHEAD_MAX
from marketplace.domain.demand import OpenBid
from marketplace.domain.events import BidPlaced
from marketplace.domain.moments import from_above, moment
from marketplace.domain.packing import Placement, place
from marketplace.domain.ranges import apart, at_home
from marketplace.queries.books import book_of
from marketplace.queries.market import Level

What = Literal[
    "limit", "deadline", "gpus", "duration", "placement",
    "models", "memory", "compute-capability", "compute-share", "nvlink", "region",
    "isolation", "labels",
]  # fmt: skip
WAIVED: dict[What, dict[str, Any]] = {
    "models": {"models": ()},
    "memory": {"memory_mib_min": None},
    "compute-capability": {"compute_capability_min": None},
    "nvlink": {"nvlink": False},
    "region": {"region": None},
    "compute-share": {"compute_percent_min": None},
    "isolation": {"isolation": "cooperative"},
    "labels": {"labels": ()},
}
"""What a request asks for, and how it looks without."""
MINUTE = timedelta(minutes=1)
LEVELS_MAX = 20


@dataclass(frozen=True, slots=True)
class Change:
    """One change that alone would let a bid be placed now: the smallest of its kind.

    limit, deadline, gpus, duration: the new value, of the one that `what` names; None for the
    others, and where something asked for is left out. floor: the highest of the GPUs it would get;
    gpu_models, region: which those are. starts_at: when.
    """

    what: What
    floor: Rate
    gpu_models: tuple[str, ...]
    region: str
    starts_at: datetime
    limit: Rate | None = None
    deadline: datetime | None = None
    gpus: int | None = None
    duration: timedelta | None = None


def advise(store: EventStore, *, market: str, bid_id: UUID, now: datetime) -> list[Change] | None:
    """Return the single changes that would help; none where it fits. None: it waits no more."""
    with book_of(store, market) as book:
        bid = book.bids.get(BidId(bid_id))
        if bid is None:
            return None
        trial = _Trial(book, bid, now)
        if trial.placement() is not None:
            return []
        return [change for find in FINDERS if (change := find(trial)) is not None] + [
            change for what in WAIVED if (change := _without(trial, what)) is not None
        ]


class _Trial:
    """A bid as it stands, and what comes of it with something changed."""

    def __init__(self, book: Book, bid: OpenBid, now: datetime) -> None:
        self.book, self.bid, self.now = book, bid, now
        self.terms: BidPlaced = replace(
            bid.terms,
            limit=Rate(bid.limit, bid.shape.currency),
            deadline=moment(bid.deadline),
        )

    def placement(self, *, limit: int | None = -1, **changes: Any) -> Placement | None:
        changed = OpenBid.of(replace(self.terms, **changes), since=self.bid.since)
        entries = self.book.entries(changed.shape)
        calendar, now = self.book.calendar, from_above(self.now)
        if changed.terms.tenant_id in self.book.owners:
            own, entries = apart(changed, entries)
            home = at_home(changed, own, calendar, now=now)
            if home is not None:
                return home[1]
        return place(changed, entries, calendar, now=now, limit=limit)

    def change(self, what: What, placement: Placement, **values: Any) -> Change:
        listed = [each for each, _ in placement.gpus]
        uuids = {uuid for _, uuid in placement.gpus}
        models = {gpu.model for each in listed for gpu in each.terms.gpus if gpu.uuid in uuids}
        return Change(
            what=what,
            floor=Rate(placement.floor, self.bid.shape.currency),
            gpu_models=tuple(sorted(models)),
            region=listed[0].terms.region,
            starts_at=moment(placement.starts),
            **values,
        )


def _higher_limit(trial: _Trial) -> Change | None:
    placement = trial.placement(limit=None)
    if placement is None or placement.floor <= trial.bid.limit:
        return None
    needed = Rate(placement.floor, trial.bid.shape.currency)
    return trial.change("limit", placement, limit=needed)


def _later_deadline(trial: _Trial) -> Change | None:
    minutes = (trial.now + DEADLINE_AHEAD_MAX - trial.terms.deadline) // MINUTE

    def later(by: int) -> datetime:
        return trial.terms.deadline + by * MINUTE

    by = _least(minutes, lambda by: trial.placement(deadline=later(by)) is not None)
    if by is None:
        return None
    placement = trial.placement(deadline=later(by))
    assert placement is not None
    return trial.change("deadline", placement, deadline=later(by))


def _fewer_gpus(trial: _Trial) -> Change | None:
    gpus = trial.terms.gpus
    less = _least(
        gpus - 1, lambda less: trial.placement(gpus=gpus - less, gpus_min=None) is not None
    )
    if less is None:
        return None
    placement = trial.placement(gpus=gpus - less, gpus_min=None)
    assert placement is not None
    return trial.change("gpus", placement, gpus=gpus - less)


def _shorter(trial: _Trial) -> Change | None:
    minutes = trial.terms.duration_seconds // 60

    def seconds(less: int) -> int:
        return (minutes - less) * 60

    def fits(less: int) -> Placement | None:
        return trial.placement(duration_seconds=seconds(less), duration_min_seconds=None)

    less = _least(minutes - 1, lambda less: fits(less) is not None)
    if less is None:
        return None
    placement = fits(less)
    assert placement is not None
    return trial.change("duration", placement, duration=timedelta(seconds=seconds(less)))


def _several_hosts(trial: _Trial) -> Change | None:
    if trial.terms.placement == "any-hosts" or trial.terms.gpus == 1:
        return None
    placement = trial.placement(placement="any-hosts")
    return None if placement is None else trial.change("placement", placement)


FINDERS: tuple[Callable[[_Trial], Change | None], ...] = (
    _higher_limit,
    _later_deadline,
    _fewer_gpus,
    _shorter,
    _several_hosts,
)


def _without(trial: _Trial, what: What) -> Change | None:
    """Leave out one thing that the request asks for."""
    request = replace(trial.terms.request, **WAIVED[what])
    if request == trial.terms.request:
        return None
    placement = trial.placement(request=request)
    return None if placement is None else trial.change(what, placement)


def _least(most: int, holds: Callable[[int], bool]) -> int | None:
    """Return the least number from 1 to `most` that holds, if what holds for one holds beyond."""
    if most < 1 or not holds(most):
        return None
    low, high = 1, most
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


@dataclass(frozen=True, slots=True)
class Unsold:
    """Why nobody takes an offer, as of now.

    waiting: bids in the book. fitting: those that its GPUs could serve; in_time: of these, those
    that it could serve alone at some time before their deadline, at any price. limits: GPUs that
    those want by limit, highest first. floor_needed: the highest floor at which one of them would
    be served; None: none.
    """

    waiting: int
    fitting: int
    in_time: int
    limits: tuple[Level, ...]
    floor: Rate
    floor_needed: Rate | None


def explain_offer(
    store: EventStore, *, market: str, offer_id: UUID, now: datetime
) -> Unsold | None:
    """Count the bids that an offer could serve; None for one that is not in the book."""
    with book_of(store, market) as book:
        listed = book.offers.get(OfferId(offer_id))
        if listed is None:
            return None
        currency = listed.terms.floor.currency
        fitting, in_time, levels = 0, 0, dict[int, int]()
        for bid in book.bids.values():
            if bid.terms.tenant_id == listed.terms.tenant_id:
                continue
            entries = [each for each in book.entries(bid.shape) if each.listed is listed]
            if not entries:
                continue
            fitting += 1
            found = place(bid, entries, book.calendar, now=from_above(now), limit=None)
            if found is not None:
                in_time += 1
                levels[bid.limit] = levels.get(bid.limit, 0) + bid.gpus
        limits = tuple(Level(*level) for level in sorted(levels.items(), reverse=True))
        return Unsold(
            waiting=len(book.bids),
            fitting=fitting,
            in_time=in_time,
            limits=limits[:LEVELS_MAX],
            floor=Rate(listed.floor, currency),
            floor_needed=Rate(limits[0].price_nanos, currency) if limits else None,
        )
