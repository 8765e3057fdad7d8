"""What must still hold for a grant to become a lease: the pre-trade check of every fill.

The engine decides on the log as far as it had read, and others go on until its grant is taken up:
a bid is amended or withdrawn, an owner withdraws an offer or reclaims a lease. So each stream that
a grant rests on is asked once more, by its own rule here, and what is written is written only if
none of them has moved meanwhile. What was accepted before a grant is taken up is never overruled
by it: the grant is refused, and the bid is offered capacity again.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from operator import attrgetter

from ledger.domain.accounts import Account
from ledger.domain.event import Event
from ledger.domain.ids import HoldId, LeaseId
from ledger.domain.money import Money
from ledger.domain.refusal import Refusal
from listings.domain.offers import Offer
from marketplace.domain.bids.bid import Bid, shortest
from marketplace.domain.facts import close_reasons
from marketplace.domain.facts.events import (
    BidFilled,
    BidPlaced,
    Cut,
    CutWithdrawn,
    GrantRefusal,
    LeaseEvent,
    LeaseGranted,
    Share,
)
from marketplace.domain.leases.lease import Lease
from marketplace.domain.leases.reclaim import interrupt, owner_was_first
from marketplace.domain.leases.reclaim_schedule import least_notice
from marketplace.domain.leases.resale import shorten
from marketplace.domain.leases.state import claimed_for

LATE_MAX = timedelta(seconds=30)
"""How much later than it was decided a grant is taken up that begins at once, or interrupts a
lease: by so much the consumer, or the work that is told to stop, has less time than agreed."""
DOUBLINGS_MAX = 8
"""A bid that was refused for being late is given twice the time each time, so that a slow machine
grants late rather than never; at most 2^8 times."""


_promised = attrgetter("notice_seconds", "grace_seconds", "reclaim_fee_ppm", "reclaim_steps")
"""What an owner promises for a reclaim."""


class GrantUnfit(Refusal):
    """What the grant was decided on has changed: `reason` says what."""

    def __init__(self, reason: GrantRefusal, **details: object) -> None:
        super().__init__(reason=reason, **details)
        self.reason = reason


def cost_of(granted: LeaseGranted) -> Money:
    """Return what a grant costs if it is used in full."""
    gpus = sum(len(share.gpu_uuids) for share in granted.shares)
    return granted.price.charge(granted.window.millis * gpus)


def fill(bid: Bid | None, granted: LeaseGranted, *, now: datetime) -> list[BidFilled]:
    """Decide whether a bid, as it stands now, takes a grant; again changes nothing.

    now: when it is asked, by the clock of whoever takes the grant up.

    Raises: GrantUnfit.
    """
    assert bid is not None, "the engine grants only bids that it has read"
    if bid.is_filled_by(granted.lease_id):
        return []
    if bid.state != "open" or granted.lease_id in bid.refused:
        raise GrantUnfit("bid-over", state=bid.state)
    if not _takes(bid, granted):
        raise GrantUnfit("bid-changed")
    allowed = LATE_MAX * 2 ** min(len(bid.refused), DOUBLINGS_MAX)
    if now > granted.window.starts_at + allowed or (granted.cuts and now > granted.at + allowed):
        raise GrantUnfit("too-late", decided_at=granted.at)
    return bid.fill(lease_id=granted.lease_id, now=granted.at)


def _takes(bid: Bid, granted: LeaseGranted) -> bool:
    """Tell if a grant lies within what a bid asks for as last amended."""
    wanted, window = bid.wanted, granted.window
    gpus = sum(len(share.gpu_uuids) for share in granted.shares)
    longest = timedelta(seconds=wanted.duration_seconds)
    return (
        granted.price.currency == bid.limit.currency
        and granted.price <= bid.limit
        and (wanted.gpus_min or wanted.gpus) <= gpus <= wanted.gpus
        and shortest(wanted) <= window.length <= longest
        and wanted.earliest_start <= window.starts_at
        and not _kept_off(wanted, granted)
        and window.ends_at <= bid.deadline
        and cost_of(granted) <= bid.hold
    )


def _kept_off(wanted: BidPlaced, granted: LeaseGranted) -> bool:
    """Tell if a grant begins on a host that the bid still keeps off then."""
    keeps_off = () if wanted.continues is None else wanted.continues.keeps_off
    early = {each.host_id for each in keeps_off if granted.window.starts_at < each.until}
    return any(share.host_id in early for share in granted.shares)


def cover(
    account: Account | None, *, granted: LeaseGranted, hold_id: HoldId, now: datetime
) -> list[Event]:
    """Decide whether the money that is set aside covers a grant; let it grow where it can.

    Nothing to do where the hold is large enough: what is too much is given back afterwards.

    Raises: GrantUnfit.
    """
    cost = cost_of(granted)
    hold = None if account is None else account.holds.get(hold_id)
    if account is None or hold is None or hold.released:
        raise GrantUnfit("bid-unfunded")
    if hold.money >= cost:
        return []
    try:
        return list[Event](account.resize_hold(hold_id=hold_id, money=cost, now=now))
    except Refusal as refused:
        raise GrantUnfit("bid-unfunded", code=refused.code) from refused


def supply_stands(offer: Offer | None, share: Share, granted: LeaseGranted) -> None:
    """Check that an offer is still listed on the terms on which a share of it was granted.

    The rest of another's lease goes on that lease's terms; its owner takes new consumers or not.

    Raises: GrantUnfit.
    """
    if offer is None or offer.state != "listed":
        raise GrantUnfit("supply-changed", offer_id=str(share.offer_id))
    if share.resold is not None:
        return
    too_dear = not granted.own and offer.floor > granted.price
    if _promised(offer.terms) != _promised(share) or too_dear:
        raise GrantUnfit("supply-changed", offer_id=str(share.offer_id))


def cut_short(
    lease: Lease | None, cut: Cut, granted: LeaseGranted, *, now: datetime
) -> list[LeaseEvent]:
    """Decide whether a lease still gives way to a grant, and say so on its stream; once.

    An owner's reclaim that reached the lease first is stronger, and a consumer who no longer sells
    the rest keeps it. One that is over, or ends sooner anyway, is in nobody's way.

    now: as in `fill`: who is interrupted has the notice that was promised, but for LATE_MAX.

    Raises: GrantUnfit.
    """
    changed = GrantUnfit("lease-changed", lease_id=str(cut.lease_id))
    lease_id = granted.lease_id
    if lease is None:
        raise changed
    if lease.cut is not None and claimed_for(lease.cut) == lease_id:
        return []
    if cut.because == "resold":
        if not _is_for_sale(lease, cut, granted):
            raise changed
        return shorten(lease, sold_to=lease_id, ends_at=cut.ends_at, now=granted.at)
    if lease.over or lease.state == "ending":
        return []
    if owner_was_first(lease) or lease.rights.resale_open:
        raise changed
    if cut.ends_at < now + least_notice(lease.terms.shares) - LATE_MAX:
        raise GrantUnfit("too-late", decided_at=granted.at)
    return interrupt(
        lease,
        in_favour_of=lease_id,
        stop_at=cut.ends_at,
        now=granted.at,
        pausing=cut.because == "paused",
    )


def _is_for_sale(lease: Lease, cut: Cut, granted: LeaseGranted) -> bool:
    sale = lease.rights.resale
    if sale is None or not lease.rights.resale_open or lease.stop_at is not None:
        return False
    over = lease.over or lease.state == "ending"
    return not over and cut.ends_at >= sale.since and granted.price >= sale.floor


def withdraw_cut(lease: Lease | None, in_favour_of: LeaseId, *, now: datetime) -> list[LeaseEvent]:
    """Let a lease go on whose capacity a grant claimed that came to nothing; once."""
    before = None if lease is None or lease.over else lease.without_cut(in_favour_of)
    if before is None:
        return []
    return [
        CutWithdrawn(
            lease_id=before.terms.lease_id,
            market=before.terms.market,
            in_favour_of=in_favour_of,
            ends_at=before.ends_at,
            stop_at=before.stop_at,
            for_sale=before.rights.resale_open,
            at=now,
        )
    ]


def end_sold_whole(lease: Lease | None, sold_to: LeaseId, *, now: datetime) -> Sequence[LeaseEvent]:
    """End a lease that had not begun when all of it was sold."""
    assert lease is not None
    sold = lease.rights.shortened
    whole = sold is not None and sold.sold_to == sold_to and sold.ends_at <= lease.starts_at
    if not whole or lease.state != "scheduled":
        return []
    return lease.abandon(now=now, reason=close_reasons.RESOLD)
