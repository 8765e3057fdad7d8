"""Bring work in a cloud home: weigh it, secure a place, let it move, and take down what came of it.

Whoever is killed between two lines leaves a record from which the next pass goes on: the try is
recorded before its bid is placed, under the id that follows from it; that the place is taken and
that the lease in the cloud ends there is one append of the market's. The rest (the end of the one
lease, the beginning of the other, the machine that is given back) is what happens to all leases.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime

from bursting.commands.records import lease_of
from bursting.commands.spilling import Overflow
from bursting.domain import home_moves
from bursting.domain.events import HomeMoveEvent, HomePolicySet
from bursting.domain.home_moves import BID_WAITS, HomeMoves, HomeRules, InCloud, Plan, Why
from bursting.domain.home_policy import HomePolicy, set_policy
from bursting.domain.instances import BurstInstance, host_of
from ledger.domain.ids import LeaseId, TenantId
from ledger.domain.money import Rate
from ledger.domain.refusal import Refusal
from ledger.eventstore.port import EventStore, Meta, Position, load, record
from marketplace.commands.bids import cancel_bid, place_bid
from marketplace.commands.chains import before_move
from marketplace.domain.bids.bid import Bid, BidNotOpen, BidTerms
from marketplace.domain.leases import moves
from marketplace.domain.leases.lease import Lease
from marketplace.domain.leases.renewals import moving
from marketplace.domain.volumes.terms import volume_id_of
from marketplace.domain.volumes.volume import Volume

AskPrice = Callable[[EventStore, BidTerms, datetime], Rate | None]
"""What local supply asks per GPU-hour of a bid that begins when it says; None: there is no place,
or only where others would have to give way."""


def weigh(
    store: EventStore,
    instance: BurstInstance,
    *,
    rules: HomeRules,
    now: datetime,
) -> tuple[Lease, Plan | Why] | None:
    """Return the lease on an instance and whether its work would move; None: there is none."""
    lease = lease_of(store, instance)
    if lease is None or host_of(instance.intent.instance_id) not in lease.hosts:
        return None
    work = _in_cloud(store, instance, lease)
    tries = load(store, HomeMoves, lease.terms.lease_id)
    rules = rules_of(store, lease.terms.tenant_id, rules)
    return lease, home_moves.plan(work, tries, rules=rules, now=now)


def rules_of(store: EventStore, tenant_id: TenantId, rules: HomeRules) -> HomeRules:
    """Return the platform's rules as they hold for an organisation, by its own policy."""
    policy = load(store, HomePolicy, tenant_id)
    return rules if policy is None else policy.over(rules)


def set_home_policy(
    store: EventStore,
    *,
    tenant_id: TenantId,
    moves: bool,
    margin_percent: int | None,
    by: Meta,
    now: datetime,
) -> Position:
    """Set whether an organisation's work in clouds moves home, from now on.

    margin_percent: None: as the platform has it. Raises: MarginOutOfRange.
    """

    def decide(policy: HomePolicy | None) -> Sequence[HomePolicySet]:
        return set_policy(
            policy, tenant_id=tenant_id, moves=moves, margin_percent=margin_percent, now=now
        )

    return record(store, HomePolicy, tenant_id, decide, by=by)


def ask_home(
    store: EventStore,
    instance: BurstInstance,
    *,
    overflow: Overflow,
    ask_price: AskPrice,
    by: Meta,
    now: datetime,
) -> bool:
    """Bid for a place at home for the work on an instance if it pays to move; tell if it was.

    Raises: what `ask_price` raises.
    """
    weighed = weigh(store, instance, rules=overflow.home, now=now)
    if weighed is None:
        return False
    lease, decided = weighed
    if not isinstance(decided, Plan):
        return False
    lease_id = lease.terms.lease_id
    tries = load(store, HomeMoves, lease_id)
    number = 1 if tries is None else tries.last.number + 1
    terms = _terms(store, lease, decided, number=number, now=now)
    price = None if terms is None else ask_price(store, terms, now)
    if price is None or price > decided.limit:
        return False

    def decide(known: HomeMoves | None) -> list[HomeMoveEvent]:
        return list[HomeMoveEvent](
            home_moves.ask(
                known,
                decided,
                lease_id=lease_id,
                instance_id=instance.intent.instance_id,
                tenant_id=instance.intent.tenant_id,
                owner_id=instance.intent.owner_id,
                price=price,
                now=now,
            )
        )

    record(store, HomeMoves, lease_id, decide, by=by.step("ask"))
    follow_home(store, lease_id, by=by, now=now)
    return True


def follow_home(store: EventStore, lease_id: LeaseId, *, by: Meta, now: datetime) -> bool:
    """Take a try to move home as far as it goes now; tell if it is over by this."""
    tries, lease = load(store, HomeMoves, lease_id), load(store, Lease, lease_id)
    assert tries is not None and lease is not None, "a try is of a lease"
    if tries.ended is not None:
        return False
    asked = tries.last
    bid = load(store, Bid, asked.bid_id)
    if bid is None:
        why = _place(store, lease, tries, by, now)
        return why is not None and _end(store, lease_id, why, by, now)
    if bid.state == "open":
        # Where a store writes streams one by one the lease may know before the bid does.
        moved = lease.rights.moved
        is_told = moved is not None and moved.bid_id == asked.bid_id
        if now < asked.at + BID_WAITS and (is_told or moves.is_free(lease)):
            return False
        with suppress(BidNotOpen):
            cancel_bid(store, bid_id=asked.bid_id, by=by.step("withdraw"), now=now)
        bid = load(store, Bid, asked.bid_id)
        assert bid is not None
    if bid.lease_id is None:
        return _end(store, lease_id, "not-granted", by, now)
    home = load(store, Lease, bid.lease_id)
    if home is None:
        return False
    why = _outcome(lease, home)
    return why is not None and _end(store, lease_id, why, by, now, home=home)


def _outcome(lease: Lease, home: Lease) -> str | None:
    """Return how a move ended for which there is a place; None: it is under way."""
    if home.over and not home.started:
        gone = lease.over and not moves.goes_on_elsewhere(lease)
        return "work-ended" if gone else "place-gone"
    if not lease.over:
        return None
    if not moves.goes_on_elsewhere(lease):
        return "work-ended"
    return "moved" if home.started else None


def _place(
    store: EventStore, lease: Lease, tries: HomeMoves, by: Meta, now: datetime
) -> str | None:
    """Place the bid of a try, by the terms that were recorded; return why it cannot be."""
    asked = tries.last
    if not moves.is_free(lease):
        return "work-ended"
    if now + lease.grace >= asked.starts_at:
        return "too-late"
    terms = moving(
        before_move(store, lease),
        bid_id=asked.bid_id,
        starts_at=asked.starts_at,
        seconds=asked.seconds,
        limit=asked.limit,
        now=now,
    )
    if isinstance(terms, str):
        return terms
    try:
        place_bid(store, terms=terms, by=by.step("bid"), now=now)
    except Refusal as refusal:
        return refusal.code
    return None


def _terms(
    store: EventStore, lease: Lease, decided: Plan, *, number: int, now: datetime
) -> BidTerms | None:
    terms = moving(
        before_move(store, lease),
        bid_id=home_moves.home_bid_of(lease.terms.lease_id, number),
        starts_at=decided.starts_at,
        seconds=decided.seconds,
        limit=decided.limit,
        now=now,
    )
    return None if isinstance(terms, str) else terms


def _end(
    store: EventStore,
    lease_id: LeaseId,
    reason: str,
    by: Meta,
    now: datetime,
    *,
    home: Lease | None = None,
) -> bool:
    price = None if home is None or reason != "moved" else home.terms.price

    def decide(tries: HomeMoves | None) -> list[HomeMoveEvent]:
        assert tries is not None
        place = None if home is None else home.terms.lease_id
        ended = tries.end(reason, home_lease_id=place, price=price, now=now)
        return list[HomeMoveEvent](ended)

    record(store, HomeMoves, lease_id, decide, by=by.step("end"))
    return True


def _in_cloud(store: EventStore, instance: BurstInstance, lease: Lease) -> InCloud:
    before = before_move(store, lease)
    return InCloud(
        gpus=lease.gpus,
        price=lease.terms.price,
        limit=before.limit or before.bid.limit,
        starts_at=lease.starts_at,
        ends_at=lease.ends_at,
        deadline=before.deadline or before.bid.deadline,
        safe_at=lease.progress.safe_at,
        resumes=before.bid.terms.resume and not before.bid.chain_ended,
        is_free=moves.is_free(lease) and instance.state == "running",
        grace=lease.grace,
        hourly=instance.hourly,
        billing=home_moves.BILLING.get(instance.intent.cloud, home_moves.BY_THE_HOUR),
        launched_at=instance.launched_at or instance.intent.at,
        volume_bytes=_volume_bytes(store, lease),
    )


def _volume_bytes(store: EventStore, lease: Lease) -> int:
    """Return what the volumes that the work writes to hold: what of it leaves a cloud at most."""
    names = [each.name for each in lease.terms.workload.volumes if each.writable]
    known = (load(store, Volume, volume_id_of(lease.terms.tenant_id, name)) for name in names)
    return sum(each.size_bytes for each in known if each is not None)
