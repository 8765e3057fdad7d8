"""What a bidder asks for, and a bid's life: open until it is filled, cancelled or expired."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import ClassVar, Literal, TypedDict, assert_never, get_args

from ledger.domain.ids import AccountId, BidId, HoldId, LeaseId, SubscriberId, TenantId, UserId
from ledger.domain.money import Money, Rate
from ledger.domain.refusal import Refusal, Unknown
from marketplace.domain.bids import bounds
from marketplace.domain.bids.bounds import DEADLINE_AHEAD_MAX, DEADLINE_ROOM, in_utc
from marketplace.domain.bids.idle_time import need_idle_time
from marketplace.domain.bids.pausing import is_return, need_saving, return_due_at
from marketplace.domain.bids.sources import check_source
from marketplace.domain.bids.workload_profiles import complete
from marketplace.domain.facts.events import (
    BidAmended,
    BidAwaitsMoney,
    BidCancelled,
    BidChainEnded,
    BidEvent,
    BidExpired,
    BidFilled,
    BidMoveAsked,
    BidPlaced,
    Continues,
    ExpiryReason,
    GoodTill,
    GpuRequest,
    GrantRefusal,
    GrantRefused,
    Patience,
    Placement,
    ReturnDue,
    Seeks,
    ServiceClass,
    Workload,
)
from marketplace.domain.spending.projects import need_project
from marketplace.domain.volumes.terms import need_mounts

BidState = Literal["open", "filled", "cancelled", "expired"]
BidAction = Literal["amend", "cancel"]
BID_ACTIONS: tuple[BidAction, ...] = get_args(BidAction)

NOW_OR_NEVER: tuple[GoodTill, ...] = ("immediate-or-cancel", "fill-or-kill")


class BidUnknown(Unknown):
    """There is no such bid."""


class BidNotOpen(Refusal):
    """That bid is no longer open: `state` says what became of it."""


class BidTermsDiffer(Refusal):
    """A bid with this id exists already, with other terms."""


class BidStandsAlone(Refusal):
    """That bid is neither placed again nor resumed, so nothing would follow it."""


class CountIsFixed(Refusal):
    """A bid that may run in a cloud keeps its number of GPUs: capacity may be on its way to it.

    Withdraw it and bid anew.
    """


class Sized(TypedDict, total=False):
    """What changes with the number of GPUs: fields of `BidAmended`."""

    gpus: int
    gpus_min: int | None
    request: GpuRequest


class GrantIsRefused(Refusal):
    """That grant was given back: what it was decided on had changed."""


class BidStillPossible(Refusal):
    """That bid can still be met by its deadline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BidTerms:
    """Everything a bidder chooses. `account_id` pays; see BidPlaced for the rest.

    earliest_start None: at once. deadline None: DEADLINE_ROOM after the earliest possible end, or
    when it is placed again no more.
    """

    bid_id: BidId
    tenant_id: TenantId
    subscriber_id: SubscriberId
    user_id: UserId | None
    account_id: AccountId
    market: str
    request: GpuRequest
    gpus: int
    placement: Placement
    duration_seconds: int
    earliest_start: datetime | None = None
    deadline: datetime | None = None
    limit: Rate
    service_class: ServiceClass
    patience: Patience
    workload: Workload
    cost_centre: str = ""
    burst_allowed: bool = False
    good_till: GoodTill = "good-till-deadline"
    good_until: datetime | None = None
    gpus_min: int | None = None
    duration_min_seconds: int | None = None
    budget: Money | None = None
    auto_extend_until: datetime | None = None
    repeat_until: datetime | None = None
    resume: bool = False
    continues: Continues | None = None
    seeks: Seeks = "cheapest"
    pausable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bid:
    """What one bid stream adds up to. limit, deadline, wanted: as last amended.

    terms: as it was placed. wanted: the same, for as many GPUs as are asked for by now.

    chain_ended: why no bid follows it; empty: nothing has been said about that. move_asked_at: when
    its market was last asked to hand it on to another. refused: grants that did not become leases.
    due_in: the market in which it cannot wait longer, as the rest of paused work. awaits: what is
    to follow it waits for money.
    """

    STREAM: ClassVar[str] = "bid"

    terms: BidPlaced
    wanted: BidPlaced
    limit: Rate
    deadline: datetime
    state: BidState = "open"
    lease_id: LeaseId | None = None
    chain_ended: str = ""
    move_asked_at: datetime | None = None
    refused: frozenset[LeaseId] = frozenset()
    due_in: str = ""
    awaits: BidAwaitsMoney | None = None
    version: int = 1

    @property
    def hold(self) -> Money:
        """Return the most the bid can cost: what its hold sets aside."""
        return hold_of(self.wanted, self.limit)

    def need_open(self) -> None:
        """Refuse unless the bid still waits for a lease.

        Raises: BidNotOpen.
        """
        if not offered(self.state):
            raise BidNotOpen(bid_id=self.terms.bid_id, state=self.state)

    def amend(
        self, *, limit: Rate, deadline: datetime, gpus: int | None = None, now: datetime
    ) -> list[BidAmended]:
        """Decide whether a bid may change; the same again changes nothing.

        gpus: None: as many as before. The least it makes do with stays, up to the new number.

        Raises: BidNotOpen, LimitCurrencyDiffers, CountIsFixed, and the bounds of `check_money`,
            `check_time` and `check_size`.
        """
        self.need_open()
        deadline = in_utc(deadline)
        sized = {} if gpus in (None, self.wanted.gpus) else self._sized(gpus)
        if (limit, deadline) == (self.limit, self.deadline) and not sized:
            return []
        if limit.currency != self.limit.currency:
            raise bounds.LimitCurrencyDiffers(currency=self.limit.currency)
        bounds.check_money(limit)
        duration = shortest(self.terms)
        bounds.check_deadline(max(self.terms.earliest_start, now), duration, deadline, now)
        return [
            BidAmended(bid_id=self.terms.bid_id, limit=limit, deadline=deadline, at=now, **sized)
        ]

    def _sized(self, gpus: int | None) -> Sized:
        """Return what another number of GPUs changes: also how much memory each of them needs."""
        assert gpus is not None
        wanted = self.wanted
        if wanted.burst_allowed:
            raise CountIsFixed(gpus=wanted.gpus)
        fewest = None if wanted.gpus_min is None else min(wanted.gpus_min, gpus)
        seconds = wanted.duration_seconds
        fewest, _ = bounds.check_size(gpus=gpus, gpus_min=fewest, seconds=seconds, seconds_min=None)
        kind, request = wanted.workload.kind, wanted.request
        bare = replace(request, memory_mib_min=None)
        if request == complete(bare, kind, gpus=wanted.gpus_min or wanted.gpus):
            request = complete(bare, kind, gpus=fewest or gpus)
        return {"gpus": gpus, "gpus_min": fewest, "request": request}

    def cancel(self, *, now: datetime) -> list[BidCancelled]:
        """Decide whether the bidder may withdraw: until it is filled; again changes nothing.

        Raises: BidNotOpen.
        """
        if self.state == "cancelled":
            return []
        self.need_open()
        return [BidCancelled(bid_id=self.terms.bid_id, at=now)]

    def expire(self, *, now: datetime) -> list[BidExpired]:
        """End a bid that waits no longer; one that is over already stays as it is.

        The engine asks for it, and only for a bid that it has looked at: so one that is filled
        at once or never is over as soon as it asks.

        Raises: BidStillPossible.
        """
        if self.state != "open":
            return []
        reason: ExpiryReason = "deadline"
        latest_start = self.deadline - shortest(self.terms)
        if self.terms.good_till in NOW_OR_NEVER:
            reason = "not-at-once"
        elif now <= latest_start:
            good_until = self.terms.good_until
            if good_until is None or now <= good_until:
                raise BidStillPossible(bid_id=self.terms.bid_id, latest_start=latest_start)
            reason = "good-till"
        return [BidExpired(bid_id=self.terms.bid_id, at=now, reason=reason)]

    def press(self, *, market: str, now: datetime) -> list[ReturnDue]:
        """Say that the rest of paused work cannot wait longer; once in each market."""
        if self.state != "open" or self.due_in == market or not is_return(self.terms):
            return []
        if now < return_due_at(self.terms, self.deadline):
            return []
        return [ReturnDue(bid_id=self.terms.bid_id, market=market, at=now)]

    def fill(self, *, lease_id: LeaseId, now: datetime) -> list[BidFilled]:
        """Take up a grant that was checked; the same grant again changes nothing.

        Raises: BidNotOpen, GrantIsRefused.
        """
        if self.is_filled_by(lease_id):
            return []
        self.need_open()
        if lease_id in self.refused:
            raise GrantIsRefused(lease_id=lease_id)
        return [BidFilled(bid_id=self.terms.bid_id, lease_id=lease_id, at=now)]

    def is_filled_by(self, lease_id: LeaseId) -> bool:
        return self.state == "filled" and self.lease_id == lease_id

    def refuse(
        self, *, lease_id: LeaseId, market: str, reason: GrantRefusal, now: datetime
    ) -> list[BidExpired | GrantRefused]:
        """Give a grant back that cannot become a lease; one that has, or was given back, stays.

        A bid whose money does not cover a grant that it takes is over, first of all: it would be
        granted and refused for ever, since the engine never looks at money.
        """
        if self.is_filled_by(lease_id) or lease_id in self.refused:
            return []
        bid_id, over = self.terms.bid_id, list[BidExpired | GrantRefused]()
        if reason == "bid-unfunded" and self.state == "open":
            over.append(BidExpired(bid_id=bid_id, at=now, reason="not-covered"))
        refused = GrantRefused(
            bid_id=bid_id, lease_id=lease_id, market=market, reason=reason, at=now
        )
        return [*over, refused]

    def end_chain(self, *, because: str, now: datetime) -> list[BidChainEnded]:
        """Let no bid follow this one; again changes nothing.

        Raises: BidStandsAlone.
        """
        if self.terms.repeat_until is None and not self.terms.resume:
            raise BidStandsAlone(bid_id=self.terms.bid_id)
        if self.chain_ended:
            return []
        return [BidChainEnded(bid_id=self.terms.bid_id, because=because, at=now)]

    @classmethod
    def evolve(cls, state: Bid | None, event: BidEvent, /) -> Bid:
        if isinstance(event, BidPlaced):
            assert state is None
            return cls(terms=event, wanted=event, limit=event.limit, deadline=event.deadline)
        assert state is not None
        version = state.version + 1
        match event:
            case BidAmended():
                return replace(
                    state,
                    limit=event.limit,
                    deadline=event.deadline,
                    wanted=event.taken_over(state.wanted),
                    version=version,
                )
            case BidCancelled():
                return replace(state, state="cancelled", version=version)
            case BidExpired():
                return replace(state, state="expired", version=version)
            case BidFilled():
                return replace(state, state="filled", lease_id=event.lease_id, version=version)
            case GrantRefused():
                refused = state.refused | {event.lease_id}
                return replace(state, refused=refused, version=version)
            case BidMoveAsked():
                return replace(state, move_asked_at=event.at, version=version)
            case ReturnDue():
                return replace(state, due_in=event.market, version=version)
            case BidChainEnded():
                return replace(state, chain_ended=event.because, awaits=None, version=version)
            case BidAwaitsMoney():
                return replace(state, awaits=event, version=version)
            case _:
                assert_never(event)


def offered(state: BidState) -> tuple[BidAction, ...]:
    """Return what its bidder may do with a bid: change and withdraw it while it waits."""
    return BID_ACTIONS if state == "open" else ()


def cost_at_most(limit: Rate, gpus: int, duration_seconds: int) -> Money:
    return limit.charge(gpus * duration_seconds * 1000)


def hold_of(placed: BidPlaced, limit: Rate) -> Money:
    """Return the most a bid can cost at a limit: all it asks for, or its budget if that is less."""
    most = cost_at_most(limit, placed.gpus, placed.duration_seconds)
    return most if placed.budget is None else min(most, placed.budget)


def shortest(placed: BidPlaced) -> timedelta:
    """Return the least time a bid makes do with."""
    return timedelta(seconds=placed.duration_min_seconds or placed.duration_seconds)


def _check_work(terms: BidTerms) -> None:
    """Refuse work that cannot be handed to a host, or GPUs that nobody could ask for."""
    bounds.check_request(terms.request)
    bounds.check_workload(terms.workload)
    need_idle_time(terms.workload.end_when_idle_seconds)
    need_project(terms.workload.project)
    one_host = terms.placement == "same-host"
    need_mounts(terms.workload.volumes, one_host=one_host)
    check_source(terms.workload, one_host=one_host)
    if terms.pausable:
        need_saving(terms.workload)


def place(terms: BidTerms, *, now: datetime) -> BidPlaced:
    """Decide whether this may be asked at all, and return the bid in its normal form.

    Times come out in UTC and whole milliseconds, an earliest start just gone by as `now`, a
    minimum that is the whole as none, and a request that says nothing of models or memory is
    completed from the workload's envelope, shared by the fewest GPUs that would do.

    Raises: a refusal for each bound in `bounds`, WorkloadUnknown, CurrencyUnknown.
    """
    gpus_min, seconds_min = bounds.check_size(
        gpus=terms.gpus,
        gpus_min=terms.gpus_min,
        seconds=terms.duration_seconds,
        seconds_min=terms.duration_min_seconds,
    )
    least = timedelta(seconds=seconds_min or terms.duration_seconds)
    earliest_start, deadline = _times(terms, now)
    bounds.check_start(earliest_start, now)
    ends, good_till = earliest_start + least, terms.good_till
    repeat_until = bounds.check_repeat(terms.repeat_until, good_till, earliest_end=ends, now=now)
    bounds.check_deadline(earliest_start, least, deadline, now)
    bounds.check_money(terms.limit, terms.budget)
    good_until = _good_until(terms, (gpus_min, seconds_min) != (None, None), deadline, now)
    bounds.check_account(market=terms.market, cost_centre=terms.cost_centre)
    _check_work(terms)
    return BidPlaced(
        bid_id=terms.bid_id,
        tenant_id=terms.tenant_id,
        subscriber_id=terms.subscriber_id,
        user_id=terms.user_id,
        account_id=terms.account_id,
        hold_id=HoldId(terms.bid_id),
        market=terms.market,
        request=complete(terms.request, terms.workload.kind, gpus=gpus_min or terms.gpus),
        gpus=terms.gpus,
        placement=terms.placement,
        duration_seconds=terms.duration_seconds,
        earliest_start=earliest_start,
        deadline=deadline,
        limit=terms.limit,
        service_class=terms.service_class,
        patience=terms.patience,
        workload=terms.workload,
        cost_centre=terms.cost_centre,
        burst_allowed=terms.burst_allowed,
        at=now,
        good_till=good_till,
        good_until=good_until,
        gpus_min=gpus_min,
        duration_min_seconds=seconds_min,
        budget=terms.budget,
        auto_extend_until=bounds.check_extension(
            terms.auto_extend_until, earliest_end=ends, now=now
        ),
        repeat_until=repeat_until,
        resume=terms.resume or terms.pausable,
        continues=terms.continues,
        seeks=bounds.check_seeks(terms.seeks, terms.patience),
        pausable=terms.pausable,
    )


def _times(terms: BidTerms, now: datetime) -> tuple[datetime, datetime]:
    """Return the earliest start and the deadline in UTC, those that were left out filled in."""
    starts = in_utc(terms.earliest_start or now)
    ends = starts + timedelta(seconds=terms.duration_seconds) + DEADLINE_ROOM
    if terms.repeat_until is not None:
        ends = in_utc(terms.repeat_until)
    return starts, in_utc(terms.deadline or min(ends, now + DEADLINE_AHEAD_MAX))


def _good_until(
    terms: BidTerms, has_ranges: bool, deadline: datetime, now: datetime
) -> datetime | None:
    return bounds.check_lasting(
        terms.good_till,
        terms.good_until,
        patience=terms.patience,
        has_ranges=has_ranges,
        deadline=deadline,
        now=now,
    )


def same_terms(placed: BidPlaced, terms: BidTerms) -> bool:
    """Tell if a bid that is there is what `terms` would have made at that moment."""
    return place(terms, now=placed.at) == placed
