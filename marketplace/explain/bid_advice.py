"""What would change it, for a bid that waits.

Each answer is tried by the code that clears, on the book as it is, with one thing changed and all
else equal, within quotas, limits and permissions. For a patient bid it says what would be placed if
the bid were alone in its round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from ledger.domain.ids import BidId, LeaseId
from ledger.domain.money import Rate
from ledger.eventstore.port import EventStore
from marketplace.domain.admission.gate import Found, Gate
from marketplace.domain.bids.bounds import DEADLINE_AHEAD_MAX
from marketplace.domain.book.book import Book
from marketplace.domain.facts.events import BidPlaced
from marketplace.domain.facts.instants import from_above, moment
from marketplace.domain.facts.policy_events import QuotaSet
from marketplace.domain.orderbook.listed_offer import Entry
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.placement.placement import Placement, place
from marketplace.domain.placement.sizes import apart, at_home
from marketplace.domain.quotas.card_units import unit_of
from marketplace.domain.quotas.quota_book import QuotaBook
from marketplace.queries.books import book_of

What = Literal[
    "limit", "deadline", "gpus", "duration", "placement", "quota",
    "models", "memory", "compute-capability", "compute-share", "nvlink", "region",
    "isolation", "sandbox", "network", "labels", "notice", "reclaim", "grace",
    "starts", "availability",
]  # fmt: skip
WAIVED: dict[What, dict[str, Any]] = {
    "models": {"models": ()},
    "memory": {"memory_mib_min": None},
    "compute-capability": {"compute_capability_min": None},
    "nvlink": {"nvlink": False},
    "region": {"region": None},
    "compute-share": {"compute_percent_min": None},
    "isolation": {"isolation": "cooperative"},
    "sandbox": {"sandbox_min": None},
    "network": {"network": None},
    "labels": {"labels": ()},
    "notice": {"notice_seconds_min": None},
    "reclaim": {"reclaim_fee_ppm_min": None},
    "grace": {"grace_seconds_min": None},
    "starts": {"start_seconds_max": None},
    "availability": {"availability_min_ppm": None},
}
"""What a request asks for, and how it looks without."""
MINUTE = timedelta(minutes=1)
QUOTA = ("quota",)
"""The reasons that more nominal quota may help against."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change that alone would let a bid be placed now: the smallest of its kind.

    limit, deadline, gpus, duration: the new value, of the one that `what` names; None for the
    others, and where something asked for is left out. With `quota`, gpus is how many more its unit
    would have of its own, of gpu_class. floor: the highest of the GPUs it would get; gpu_models,
    region: which those are. starts_at: when.
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
    gpu_class: str | None = None


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
        self.reason: str | None = None
        """Why quotas held the last placement back."""
        self.terms: BidPlaced = replace(
            bid.terms,
            limit=Rate(bid.limit, bid.shape.currency),
            deadline=moment(bid.deadline),
        )

    def placement(self, *, quotas: QuotaBook | None = None, **changes: Any) -> Placement | None:
        """Return where it would go, within quotas, limits and permissions.

        quotas: in place of the book's own.
        """
        changed = OpenBid.of(replace(self.terms, **changes), since=self.bid.since)
        quotas = quotas or self.book.quotas
        found = self._find(changed)
        if found is None or quotas is None:
            return None if found is None else found[1]
        gate = Gate(quotas, self.book.catalogue)
        let = gate.admit(changed, self._find, LeaseId(changed.bid_id))
        self.reason = None if let is not None else gate.reasons.get(changed.bid_id)
        return None if let is None else let[1]

    def _find(self, wish: OpenBid, limit: int | None = -1) -> Found | None:
        entries: Sequence[Entry] = self.book.entries(wish.shape)
        calendar, now = self.book.calendar, from_above(self.now)
        if wish.terms.tenant_id in self.book.owners:
            own, entries = apart(wish, entries)
            home = at_home(wish, own, calendar, now=now)
            if home is not None:
                return home
        found = place(wish, entries, calendar, now=now, limit=limit)
        return None if found is None else (wish, found)

    def at_any_price(self) -> Placement | None:
        """Return where it would go if its limit were high enough and no quota in the way."""
        found = self._find(OpenBid.of(self.terms, since=self.bid.since), None)
        return None if found is None else found[1]

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
    found = trial.at_any_price()
    if found is None or found.floor <= trial.bid.limit:
        return None
    # Tried again with the limit that it takes: limits of money count bids at theirs.
    needed = Rate(found.floor, trial.bid.shape.currency)
    placement = trial.placement(limit=needed)
    return None if placement is None else trial.change("limit", placement, limit=needed)


def _more_quota(trial: _Trial) -> Change | None:
    """Give its unit more nominal quota of one class: that which the fewest GPUs of it would do."""
    quotas, unit = trial.book.quotas, str(trial.terms.subscriber_id)
    if quotas is None or quotas.policies is None or trial.placement() is not None:
        return None
    if trial.reason not in QUOTA:
        return None
    tried = ((_least_quota(trial, quotas, unit, each), each) for each in quotas.policies.classes)
    needed = [(more, gpu_class) for more, gpu_class in tried if more is not None]
    if not needed:
        return None
    more, gpu_class = min(needed)
    placement = trial.placement(quotas=_with_more(trial, quotas, unit, gpu_class, more))
    assert placement is not None
    return trial.change("quota", placement, gpus=more, gpu_class=gpu_class)


def _least_quota(trial: _Trial, quotas: QuotaBook, unit: str, gpu_class: str) -> int | None:
    def fits(more: int) -> bool:
        raised = _with_more(trial, quotas, unit, gpu_class, more)
        return trial.placement(quotas=raised) is not None

    assert quotas.policies is not None
    counts = quotas.policies.counts
    had = sum(
        use.of_class(gpu_class, counts)
        for use in quotas.uses.values()
        if str(use.terms.subscriber_id) == unit
    )
    # Quotas are set in whole GPUs, whatever parts of them are used.
    return _least(-(-had // unit_of(counts)) + trial.terms.gpus, fits)


def _with_more(trial: _Trial, quotas: QuotaBook, unit: str, gpu_class: str, more: int) -> QuotaBook:
    """Return quotas in which a unit has some more GPUs of its own."""
    assert quotas.policies is not None
    was, raised = quotas.policies.quotas.get((unit, gpu_class)), quotas.copy()
    had = 0 if was is None else was.nominal or 0
    raised.apply(
        QuotaSet(
            market=trial.book.market,
            node=unit,
            gpu_class=gpu_class,
            nominal=had + more,
            borrowing=None if was is None else was.borrowing,
            lending=None if was is None else was.lending,
            at=trial.now,
            gpu_hours=None if was is None else was.gpu_hours,
        )
    )
    return raised


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
    _more_quota,
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
