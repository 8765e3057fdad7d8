"""Decide that a bid spills over to a cloud. Nothing is rented here: that follows the intent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from bursting.clouds.port import CloudProvider, CloudUnavailable
from bursting.domain import spill
from bursting.domain.budget import Budget, month_of
from bursting.domain.capacity import CloudOffer, GpuNeed
from bursting.domain.events import BurstDeferred, BurstEvent, InstanceId
from bursting.domain.home_moves import HomeRules
from bursting.domain.instances import BurstInstance, instance_of, intend
from bursting.domain.spill import GRACE_SECONDS_MAX, NOTICE_SECONDS, Attempt, SpillRules, Waiting
from bursting.domain.waits import Wait, defer
from ledger.domain.ids import BidId, TenantId
from ledger.domain.money import Money
from ledger.eventstore.port import EventStore, Meta, load, record
from marketplace.domain.bids.bid import Bid, BidUnknown
from marketplace.domain.facts.events import GpuRequest
from marketplace.domain.leases.moves import moving_from

ATTEMPTS_READ_MAX = 100
"""How many attempts of one bid are looked for: a bound, far above any sensible setting."""


USUAL = HomeRules()


@dataclass(frozen=True, slots=True, kw_only=True)
class Overflow:
    """What overflow works with: the clouds, how it spends, and on whose behalf.

    clouds: by their name. owner_id: the platform's tenant, which lists what is rented and pays.
    budget: most that a calendar month may cost. environment_of: what an instance finds set when
    it boots, such as where its agent reports; the same for one instance each time it is asked, or
    the cloud takes a repeated launch for another one. home: when what runs there moves home.
    """

    clouds: Mapping[str, CloudProvider]
    rules: SpillRules
    owner_id: TenantId
    budget: Money
    environment_of: Callable[[InstanceId], Mapping[str, str]]
    home: HomeRules = USUAL


def spill_bid(
    store: EventStore, *, bid_id: BidId, overflow: Overflow, by: Meta, now: datetime
) -> InstanceId:
    """Record the intent to rent an instance for a bid that waits in vain.

    Returns: the id of the instance intended, by whoever came first.
    Raises:
        BidUnknown, BurstNotAllowed, NoCloudWillDo, BidNotWaiting, BurstUnderWay, AttemptsExhausted,
        BurstBackingOff, DeadlineOutOfReach, BurstNotDue, NoCloudOffer, CloudTooDear,
        BudgetExhausted: nothing was recorded.
        CloudUnavailable: no cloud answered.
    """
    bid = load(store, Bid, bid_id)
    if bid is None:
        raise BidUnknown(bid_id=bid_id)
    waiting = waiting_of(bid)
    attempts = attempts_of(store, bid_id)
    wait = load(store, Wait, bid_id)
    if bid.state == "open" and wait is not None and wait.rests(bid.version, now):
        raise spill.BurstBackingOff(until=wait.last.next_at)
    spill.check_due(waiting, attempts, rules=overflow.rules, now=now)
    offers = _offers(overflow, waiting.need)
    decided = spill.choose(waiting, offers, attempts, rules=overflow.rules, now=now)
    intent = intend(waiting, decided, owner_id=overflow.owner_id, now=now)
    month = month_of(now)
    # Only a look, so that no attempt is spent on it: the launch sets the money aside.
    budget = load(store, Budget, month) or Budget(month=month)
    budget.reserve(intent.instance_id, intent.worst, cap=overflow.budget, now=now)

    def decide(instance: BurstInstance | None) -> Sequence[BurstEvent]:
        return [intent] if instance is None else []

    record(store, BurstInstance, intent.instance_id, decide, by=by)
    return intent.instance_id


def defer_bid(
    store: EventStore, *, bid_id: BidId, reason: str, words: str, by: Meta, now: datetime
) -> None:
    """Take down why a bid could not spill now; each time in a row it rests for longer.

    Raises: BidUnknown.
    """
    bid = load(store, Bid, bid_id)
    if bid is None:
        raise BidUnknown(bid_id=bid_id)
    tenant_id, version = bid.terms.tenant_id, bid.version

    def decide(wait: Wait | None) -> Sequence[BurstDeferred]:
        return defer(
            wait,
            bid_id=bid_id,
            tenant_id=tenant_id,
            bid_version=version,
            reason=reason,
            words=words,
            now=now,
        )

    record(store, Wait, bid_id, decide, by=by)


def waiting_of(bid: Bid) -> Waiting:
    """Return a bid as overflow needs to know it.

    Isolation is not among it: what is rented serves one bid alone, which is the strongest.
    """
    asked = bid.terms
    return Waiting(
        bid_id=asked.bid_id,
        tenant_id=asked.tenant_id,
        market=asked.market,
        need=GpuNeed(
            gpus=asked.gpus,
            gpu_models=asked.request.models,
            gpu_memory_mib_min=asked.request.memory_mib_min or 0,
            compute_capability_min=asked.request.compute_capability_min,
            nvlink=asked.request.nvlink,
            nvlink_min=asked.request.nvlink_min or 0,
            regions=asked.request.regions,
            not_models=asked.request.not_models,
            not_regions=asked.request.not_regions,
            spot=asked.service_class == "interruptible",
        ),
        labels=asked.request.labels,
        duration_seconds=asked.duration_seconds,
        earliest_start=asked.earliest_start,
        deadline=bid.deadline,
        limit=bid.limit,
        # Work in a cloud that may move home looks for a place there, and for no other machine.
        burst_allowed=asked.burst_allowed and moving_from(bid) is None,
        is_open=bid.state == "open",
        since=asked.at,
        not_labels=asked.request.not_labels,
        driver_min=asked.request.driver_min or "",
        at_home=_at_home(asked.request),
    )


def _at_home(asked: GpuRequest) -> tuple[str, ...]:
    """Return the conditions, by their words, that no rented machine meets.

    It is nobody's own, has proved nothing yet, and its owner gives short notice and grace, no fee,
    and promises nothing of its service.
    How its agent will keep work apart, and lets it connect, is known only once it runs.
    """
    conditions = {
        "tenant": asked.own,
        "host": bool(asked.hosts),
        "reliability": asked.reliability_min_ppm is not None,
        "notice": (asked.notice_seconds_min or 0) > NOTICE_SECONDS,
        "reclaim": bool(asked.reclaim_fee_ppm_min),
        "sandbox": asked.sandbox_min is not None,
        "network": asked.network is not None,
        "starts": asked.start_seconds_max is not None,
        "availability": asked.availability_min_ppm is not None,
        "grace": (asked.grace_seconds_min or 0) > GRACE_SECONDS_MAX,
    }
    return tuple(word for word, asks in conditions.items() if asks)


def attempts_of(store: EventStore, bid_id: BidId) -> list[Attempt]:
    """Return the attempts made for a bid, oldest first."""
    attempts: list[Attempt] = []
    for number in range(1, ATTEMPTS_READ_MAX + 1):
        instance = load(store, BurstInstance, instance_of(bid_id, number))
        if instance is None:
            break
        attempts.append(instance.as_attempt())
    return attempts


def _offers(overflow: Overflow, need: GpuNeed) -> list[CloudOffer]:
    """Ask every cloud; one that does not answer does not keep the others from serving."""
    offers: list[CloudOffer] = []
    troubles: list[CloudUnavailable] = []
    for cloud in overflow.clouds.values():
        try:
            offers += cloud.offers(need)
        except CloudUnavailable as trouble:
            troubles.append(trouble)
    if troubles and len(troubles) == len(overflow.clouds):
        raise troubles[0]
    return offers
