"""What owners promised a lease of their service: agreed at the grant, measured once it is paid."""

from __future__ import annotations

from collections import defaultdict
from typing import cast

from ledger.commands.sla import credit_missed_sla
from ledger.domain.events import HoldReleased
from ledger.domain.ids import BidId, LeaseId, OfferId, TenantId
from ledger.domain.sla_credits import SlaMiss
from ledger.eventstore.port import EventStore, Meta, Recorded, load, record, stream_name
from ledger.following import Policy, names_of
from listings.domain.sla import NO_LEVEL, OfferSla
from marketplace.domain.bids.bid import Bid
from marketplace.domain.facts.events import LeaseEvent, LeaseScheduled
from marketplace.domain.facts.sla_events import SlaAgreed, SlaMeasured, SlaResult
from marketplace.domain.leases.lease import Lease
from marketplace.domain.leases.sla import LeaseSla, agree, measure, reason_of


def agree_when_lease_scheduled(recorded: Recorded, store: EventStore) -> None:
    """A lease has what its owners promised when it was granted, whatever they say later."""
    lease = recorded.event
    assert isinstance(lease, LeaseScheduled)
    offers = dict.fromkeys(OfferId(share.offer_id) for share in lease.shares)
    promised = [(str(each), load(store, OfferSla, each)) for each in offers]
    if not any(sla for _, sla in promised):
        return
    bid = load(store, Bid, lease.bid_id)
    wanted = NO_LEVEL if bid is None else bid.wanted.request.level
    agreed = agree(lease, promised, wanted=wanted)
    if not agreed:
        return

    def decide(sla: LeaseSla | None) -> list[SlaAgreed]:
        return agreed if sla is None else []

    by = Meta.because(recorded, policy="agree-when-lease-scheduled")
    record(store, LeaseSla, lease.lease_id, decide, by=by)


def credit_when_paid(recorded: Recorded, store: EventStore) -> None:
    """Once all use of a lease is charged, measure what was promised and credit what was missed.

    The measure is recorded before the credits, and each credit has an id of its own: a process that
    dies in between asks for the same again.
    """
    released = recorded.event
    assert isinstance(released, HoldReleased)
    bid = load(store, Bid, BidId(released.hold_id))
    if bid is None or bid.lease_id is None or load(store, LeaseSla, bid.lease_id) is None:
        return
    lease = load(store, Lease, bid.lease_id)
    assert lease is not None
    by = Meta.because(recorded, policy="credit-when-paid")
    measured = _measured(store, lease, recorded, by)
    if measured is None:
        return
    for owner_id, credit_ppm, gpus, worst in _by_owner(measured):
        credit_missed_sla(
            store,
            account_id=lease.terms.account_id,
            miss=SlaMiss(
                hold_id=lease.terms.hold_id,
                lease_id=LeaseId(lease.terms.lease_id),
                owner_id=owner_id,
                gpus=gpus,
                of_gpus=lease.gpus,
                credit_ppm=credit_ppm,
                reason=reason_of(worst),
            ),
            by=by.step(str(owner_id)),
            now=released.at,
        )


def _measured(store: EventStore, lease: Lease, recorded: Recorded, by: Meta) -> SlaMeasured | None:
    """Return the measure of a lease that is over; None: it is not."""
    lease_id = lease.terms.lease_id
    stream = stream_name(Lease, lease_id)
    events = [cast(LeaseEvent, each.event) for each in store.read_stream(stream)]

    def decide(sla: LeaseSla | None) -> list[SlaMeasured]:
        return measure(sla, lease, events, now=cast(HoldReleased, recorded.event).at)

    record(store, LeaseSla, lease_id, decide, by=by.step("measure"))
    sla = load(store, LeaseSla, lease_id)
    return None if sla is None else sla.measured


def _by_owner(measured: SlaMeasured) -> list[tuple[TenantId, int, int, SlaResult]]:
    """Return for each owner the share that is credited of all its GPUs, their number, the worst."""
    parts: dict[TenantId, list[SlaResult]] = defaultdict(list)
    for each in measured.results:
        if each.credit_ppm:
            parts[each.owner_id].append(each)
    found = []
    for owner_id, missed in parts.items():
        gpus = sum(each.gpus for each in missed)
        share = sum(each.credit_ppm * each.gpus for each in missed) // gpus
        worst = max(missed, key=lambda each: each.credit_ppm)
        found.append((owner_id, share, gpus, worst))
    return found


POLICIES: tuple[Policy, ...] = (
    Policy(
        name="marketplace.agree-when-lease-scheduled",
        react=agree_when_lease_scheduled,
        on=names_of(LeaseScheduled),
    ),
    Policy(
        name="marketplace.credit-when-paid",
        react=credit_when_paid,
        on=names_of(HoldReleased),
    ),
)
