"""When something happens in the market, what is asked for next."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ledger.commands.money import pay_compensation, resize_hold, resizing_hold
from ledger.domain.events import HoldReleased
from ledger.domain.ids import BidId
from ledger.domain.refusal import Refusal
from ledger.eventstore.folds import Fold
from ledger.eventstore.port import EventStore, Meta, Recorded, load
from ledger.eventstore.together import Part, look, look_at_each, record_together
from ledger.following import Policy, names_of
from marketplace.commands.bids import fill_bid, filling_bid, release_bid
from marketplace.commands.chains import continue_bid
from marketplace.commands.leases import (
    abandon_lease,
    extend_lease,
    give_lease_back,
    interrupt_lease,
    schedule_lease,
    scheduling_lease,
    shorten_lease,
)
from marketplace.domain.bids import Bid, BidNotOpen
from marketplace.domain.events import (
    BidCancelled,
    BidExpired,
    BidPlaced,
    Compensation,
    Cut,
    ExtensionDeclined,
    ExtensionGranted,
    LeaseClosed,
    LeaseGranted,
)
from marketplace.domain.leases import Lease

OPEN_LEASE = "open-lease-when-granted"


def open_lease_when_granted(recorded: Recorded, store: EventStore, *, fee_ppm: int) -> None:
    """A grant becomes a lease, and its hold shrinks from the bid's limit to the cleared price.

    The bid's own stream decides between this and a cancellation that came at the same moment:
    where the cancellation won, the lease is scheduled and closed, which frees the capacity. So
    does the stream of a lease that was cut for the grant, between this and its owner's reclaim.
    """
    granted = recorded.event
    assert isinstance(granted, LeaseGranted)
    by = Meta.because(recorded, policy=OPEN_LEASE)
    seen = look(store, Bid, granted.bid_id)
    bid: Bid | None = seen.state
    assert bid is not None, "the engine grants only bids that it has read"
    if not granted.cuts:
        try:
            record_together(store, _opening(granted, seen, fee_ppm, by))
            return
        except Refusal:
            pass  # nothing is written yet: step by step it comes out what is in the way
    taken_up = [_cut(store, granted, cut, by) for cut in granted.cuts]
    schedule_lease(store, granted=granted, bid=bid.terms, fee_ppm=fee_ppm, by=by)
    try:
        fill_bid(
            store,
            bid_id=granted.bid_id,
            lease_id=granted.lease_id,
            by=by.step("fill"),
            now=granted.at,
        )
    except BidNotOpen:
        abandon_lease(store, lease_id=granted.lease_id, by=by.step("abandon"), now=granted.at)
        return
    if not all(taken_up):
        owner_id = granted.shares[0].owner_id
        give_lease_back(
            store,
            lease_id=granted.lease_id,
            owner_id=owner_id,
            by=by.step("give-back"),
            now=granted.at,
        )
        return
    record_together(store, [_hold(granted, bid.terms, by)])


def open_leases(
    granted: Sequence[Recorded], store: EventStore, *, fee_ppm: int
) -> list[list[list[Part]] | None]:
    """Return what opens a lease for each of these grants; None where others have to be cut.

    The hold is a step of its own: where many bids are placed, an account moves on all the time, and
    what is decided on it is decided in a moment.
    """
    events = [recorded.event for recorded in granted]
    grants = [event for event in events if isinstance(event, LeaseGranted)]
    bids = look_at_each(store, Bid, [grant.bid_id for grant in grants])
    return [
        None
        if grant.cuts
        else _steps(grant, bids[grant.bid_id], fee_ppm, Meta.because(recorded, policy=OPEN_LEASE))
        for grant, recorded in zip(grants, granted, strict=True)
    ]


def _steps(granted: LeaseGranted, seen: Fold, fee_ppm: int, by: Meta) -> list[list[Part]]:
    lease, filled, hold = _opening(granted, seen, fee_ppm, by)
    return [[lease, filled], [hold]]


def _opening(granted: LeaseGranted, seen: Fold, fee_ppm: int, by: Meta) -> list[Part]:
    """Return lease, bid and hold as they are written where nobody was faster."""
    bid: BidPlaced = seen.state.terms
    lease = scheduling_lease(granted=granted, bid=bid, fee_ppm=fee_ppm, by=by)
    filled = filling_bid(
        bid_id=granted.bid_id,
        lease_id=granted.lease_id,
        by=by.step("fill"),
        now=granted.at,
        seen=seen,
    )
    return [lease, filled, _hold(granted, bid, by)]


def _hold(granted: LeaseGranted, bid: BidPlaced, by: Meta) -> Part:
    gpus = sum(len(share.gpu_uuids) for share in granted.shares)
    return resizing_hold(
        account_id=bid.account_id,
        hold_id=bid.hold_id,
        money=granted.price.charge(granted.window.millis * gpus),
        by=by.step("hold"),
        now=granted.at,
    )


def _cut(store: EventStore, granted: LeaseGranted, cut: Cut, by: Meta) -> bool:
    """Tell a lease that it ends sooner in favour of the one granted; tell if the grant stands."""
    step = by.step(f"cut:{cut.lease_id}")
    if cut.because == "interrupted":
        return interrupt_lease(
            store,
            lease_id=cut.lease_id,
            in_favour_of=granted.lease_id,
            stop_at=cut.ends_at,
            by=step,
            now=granted.at,
        )
    return shorten_lease(
        store,
        lease_id=cut.lease_id,
        sold_to=granted.lease_id,
        ends_at=cut.ends_at,
        by=step,
        now=granted.at,
    )


def settle_extension_when_decided(recorded: Recorded, store: EventStore) -> None:
    """A granted extension moves the lease's end; a declined one gives its money back."""
    decided = recorded.event
    assert isinstance(decided, ExtensionGranted | ExtensionDeclined)
    by = Meta.because(recorded, policy="settle-extension-when-decided")
    if isinstance(decided, ExtensionGranted):
        extend_lease(
            store, lease_id=decided.lease_id, ends_at=decided.ends_at, by=by, now=decided.at
        )
    lease = load(store, Lease, decided.lease_id)
    assert lease is not None
    if not lease.over:
        resize_hold(
            store,
            account_id=lease.terms.account_id,
            hold_id=lease.terms.hold_id,
            money=lease.cost_at_most(ends_at=lease.ends_at),
            by=by.step("hold"),
            now=decided.at,
        )


def compensate_when_reclaimed(recorded: Recorded, store: EventStore) -> None:
    """Every owner who took capacity back pays the consumer what was told at the reclaim."""
    closed = recorded.event
    assert isinstance(closed, LeaseClosed)
    owed = list(closed.compensations)
    if closed.compensation is not None and closed.compensation_from is not None:
        owed.insert(0, Compensation(closed.compensation_from, closed.compensation))
    if not owed:
        return
    lease = load(store, Lease, closed.lease_id)
    assert lease is not None
    by = Meta.because(recorded, policy="compensate-when-reclaimed")
    for each in owed:
        pay_compensation(
            store,
            account_id=lease.terms.account_id,
            lease_id=closed.lease_id,
            owner_id=each.owner_id,
            money=each.money,
            by=by,
            now=closed.at,
        )


def release_hold_when_bid_over(recorded: Recorded, store: EventStore) -> None:
    """A bid that ended without a lease gives its money back.

    Whoever ended it does so at once; this is for the process that died in between.
    """
    over = recorded.event
    assert isinstance(over, BidCancelled | BidExpired)
    by = Meta.because(recorded, policy="release-hold-when-bid-over")
    release_bid(store, bid_id=over.bid_id, by=by, now=over.at)


def continue_when_lease_over(recorded: Recorded, store: EventStore) -> None:
    """Ask for more at once, if the account covers it beside what the last lease still holds."""
    closed = recorded.event
    assert isinstance(closed, LeaseClosed)
    lease = load(store, Lease, closed.lease_id)
    assert lease is not None
    by = Meta.because(recorded, policy="continue-when-lease-over")
    continue_bid(store, bid_id=lease.terms.bid_id, by=by, now=closed.at, is_last_try=False)


def continue_when_hold_released(recorded: Recorded, store: EventStore) -> None:
    """Ask for more once the last lease is paid and the rest of its hold is free again.

    So do bids that expired: their money comes back too.
    """
    released = recorded.event
    assert isinstance(released, HoldReleased)
    bid_id = BidId(released.hold_id)
    if load(store, Bid, bid_id) is None:
        return  # a hold whose bid never came
    by = Meta.because(recorded, policy="continue-when-hold-released")
    continue_bid(store, bid_id=bid_id, by=by, now=released.at, is_last_try=True)


def policies(*, fee_ppm: int) -> tuple[Policy, ...]:
    """Return the market's policies for an installation that takes `fee_ppm` of each charge."""
    return (
        Policy(
            name="marketplace.release-hold-when-bid-over",
            react=release_hold_when_bid_over,
            on=names_of(BidCancelled, BidExpired),
        ),
        Policy(
            name="marketplace.open-lease-when-granted",
            react=partial(open_lease_when_granted, fee_ppm=fee_ppm),
            on=names_of(LeaseGranted),
            ask=partial(open_leases, fee_ppm=fee_ppm),
        ),
        Policy(
            name="marketplace.settle-extension-when-decided",
            react=settle_extension_when_decided,
            on=names_of(ExtensionGranted, ExtensionDeclined),
        ),
        Policy(
            name="marketplace.compensate-when-reclaimed",
            react=compensate_when_reclaimed,
            on=names_of(LeaseClosed),
        ),
        Policy(
            name="marketplace.continue-when-lease-over",
            react=continue_when_lease_over,
            on=names_of(LeaseClosed),
        ),
        Policy(
            name="marketplace.continue-when-hold-released",
            react=continue_when_hold_released,
            on=names_of(HoldReleased),
        ),
    )
