"""When something happens in the market, what is asked for next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial

from ledger.commands.money import pay_compensation
from ledger.domain.events import HoldReleased
from ledger.domain.ids import BidId
from ledger.eventstore.port import EventStore, Meta, Recorded, load
from ledger.following import Policy, names_of
from marketplace.commands.bids import release_bid
from marketplace.commands.chains import continue_bid
from marketplace.commands.grants import Steps, openings, take_up_grant
from marketplace.commands.leases import extend_lease, hold_what_remains
from marketplace.domain.bids.bid import Bid
from marketplace.domain.facts.events import (
    BidCancelled,
    BidExpired,
    Compensation,
    ExtensionDeclined,
    ExtensionGranted,
    LeaseClosed,
    LeaseGranted,
)
from marketplace.domain.leases.lease import Lease

Clock = Callable[[], datetime]

OPEN_LEASE = "open-lease-when-granted"


def open_lease_when_granted(
    recorded: Recorded, store: EventStore, *, fee_ppm: int, clock: Clock | None = None
) -> None:
    """A grant becomes a lease if all that it was decided on still holds; else it is refused.

    clock: None: as of the moment of the grant, for logs of another time.
    """
    granted = recorded.event
    assert isinstance(granted, LeaseGranted)
    by = Meta.because(recorded, policy=OPEN_LEASE)
    now = granted.at if clock is None else clock()
    take_up_grant(store, granted=granted, fee_ppm=fee_ppm, by=by, now=now)


def open_leases(
    granted: Sequence[Recorded], store: EventStore, *, fee_ppm: int, clock: Clock | None = None
) -> list[Steps | None]:
    """Return what opens a lease for each of these grants; None where others have to give way.

    The hold is a step of its own: where many bids are placed, an account moves on all the time, and
    what is decided on it is decided in a moment.
    """
    grants = [
        (recorded.event, Meta.because(recorded, policy=OPEN_LEASE))
        for recorded in granted
        if isinstance(recorded.event, LeaseGranted)
    ]
    now = None if clock is None else clock()
    return openings(store, grants, fee_ppm=fee_ppm, now=now)


def settle_extension_when_decided(recorded: Recorded, store: EventStore) -> None:
    """A granted extension moves the lease's end; a declined one gives its money back."""
    decided = recorded.event
    assert isinstance(decided, ExtensionGranted | ExtensionDeclined)
    by = Meta.because(recorded, policy="settle-extension-when-decided")
    if isinstance(decided, ExtensionGranted):
        extend_lease(
            store, lease_id=decided.lease_id, ends_at=decided.ends_at, by=by, now=decided.at
        )
    hold_what_remains(store, lease_id=decided.lease_id, by=by, now=decided.at)


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


def _bid_of(recorded: Recorded) -> str:
    """Return the bid that a grant is of: all grants of a market are in one stream."""
    granted = recorded.event
    assert isinstance(granted, LeaseGranted)
    return str(granted.bid_id)


def _lease_of(recorded: Recorded) -> str:
    """Return the lease that an answer to an extension is about."""
    decided = recorded.event
    assert isinstance(decided, ExtensionGranted | ExtensionDeclined)
    return str(decided.lease_id)


def policies(*, fee_ppm: int, clock: Clock | None = None) -> tuple[Policy, ...]:
    """Return the market's policies for an installation that takes `fee_ppm` of each charge.

    clock: by which a grant may be too late to be taken up; None: none ever is.
    """
    return (
        Policy(
            name="marketplace.release-hold-when-bid-over",
            react=release_hold_when_bid_over,
            on=names_of(BidCancelled, BidExpired),
        ),
        Policy(
            name="marketplace.open-lease-when-granted",
            react=partial(open_lease_when_granted, fee_ppm=fee_ppm, clock=clock),
            on=names_of(LeaseGranted),
            ask=partial(open_leases, fee_ppm=fee_ppm, clock=clock),
            subject=_bid_of,
        ),
        Policy(
            name="marketplace.settle-extension-when-decided",
            react=settle_extension_when_decided,
            on=names_of(ExtensionGranted, ExtensionDeclined),
            subject=_lease_of,
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
