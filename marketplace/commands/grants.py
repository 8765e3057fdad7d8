"""A grant of the engine becomes a lease, or is refused: one step, whatever else goes on.

Order of the writes, for a store that cannot append to several streams at once: first the leases
that give way, then the bid, then the lease. `BidFilled` is the point of no return. A process that
dies before it has told some leases that they end sooner: the policy, asked again, fills the bid or
withdraws what was told. One that dies after it has a bid without its lease: asked again, the
policy opens it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from ledger.commands.money import resizing_hold
from ledger.domain.accounts import Account
from ledger.domain.event import Event
from ledger.domain.refusal import Refusal
from ledger.eventstore.folds import Fold
from ledger.eventstore.port import Aggregate, EventStore, Meta, load, record
from ledger.eventstore.together import NONE_YET, Part, look_at_all, record_together
from listings.domain.events import OfferEvent
from listings.domain.offers import Offer
from marketplace.commands.leases import hold_what_remains
from marketplace.domain.bids.bid import Bid
from marketplace.domain.facts.events import (
    BidEvent,
    Cut,
    GrantRefusal,
    LeaseEvent,
    LeaseGranted,
    LeaseScheduled,
    Share,
)
from marketplace.domain.leases import grant_checks, moves
from marketplace.domain.leases.grant_checks import GrantUnfit
from marketplace.domain.leases.lease import Lease

Steps = list[list[Part]]
"""Each step is one append; the next is asked for once the one before it is written."""


def take_up_grant(
    store: EventStore, *, granted: LeaseGranted, fee_ppm: int, by: Meta, now: datetime
) -> GrantRefusal | None:
    """Open the lease of a grant if all it was decided on still holds; else refuse the grant.

    now: by the clock of whoever takes it up.

    Returns: why it was refused; None: the lease is there, now or since an earlier call.
    """
    bid = load(store, Bid, granted.bid_id)
    assert bid is not None, "the engine grants only bids that it has read"
    reason: GrantRefusal | None = None
    if not bid.is_filled_by(granted.lease_id):
        try:
            record_together(store, opening(granted, bid, fee_ppm, by, now), whole=True)
        except Refusal as refused:
            # A rule beside the checks, such as an account that is gone, gives it back as well.
            reason = refused.reason if isinstance(refused, GrantUnfit) else "bid-unfunded"
            if refuse_grant(store, granted=granted, reason=reason, by=by, now=now):
                return reason
    # Filled by now, here or in an earlier call that died on the way.
    record_together(store, [leasing(granted, bid, fee_ppm, by)])
    for cut in granted.cuts:
        if cut.because == "resold":
            _finish_sale(store, granted, cut, by)
    record_together(store, following(granted, bid, by))
    return None


def refuse_grant(
    store: EventStore, *, granted: LeaseGranted, reason: GrantRefusal, by: Meta, now: datetime
) -> bool:
    """Give a grant back and withdraw what was told for it; tell if it is refused.

    It is not where the bid became this very lease: that cannot be taken back.
    """
    lease_id = granted.lease_id

    def decide(bid: Bid | None) -> Sequence[BidEvent]:
        assert bid is not None
        return bid.refuse(lease_id=lease_id, market=granted.market, reason=reason, now=now)

    record(store, Bid, granted.bid_id, decide, by=by.step("refuse"))
    bid = load(store, Bid, granted.bid_id)
    assert bid is not None
    if bid.is_filled_by(lease_id):
        return False
    for cut in granted.cuts:
        withdraw = partial(grant_checks.withdraw_cut, in_favour_of=lease_id, now=now)
        record(store, Lease, cut.lease_id, withdraw, by=by.step(f"withdraw:{cut.lease_id}"))
    moves_from = moves.moving_from(bid)
    if moves_from is not None:
        back = partial(moves.stay, in_favour_of=lease_id, now=now)
        record(store, Lease, moves_from, back, by=by.step("stay"))
    return True


def openings(
    store: EventStore,
    grants: Sequence[tuple[LeaseGranted, Meta]],
    *,
    fee_ppm: int,
    now: datetime | None,
) -> list[Steps | None]:
    """Return what opens the lease of each of several grants; None where others have to give way.

    now: None: for each the moment of its grant. Bids and offers are read once for all of them.
    """
    bids = [(Bid, granted.bid_id) for granted, _ in grants]
    offers = [(Offer, share.offer_id) for granted, _ in grants for share in granted.shares]
    known = look_at_all(store, [*bids, *offers])
    found: list[Steps | None] = []
    for granted, by in grants:
        seen = known[Bid, granted.bid_id]
        if granted.cuts or seen.state is None or moves.moving_from(seen.state) is not None:
            found.append(None)
            continue
        at = now or granted.at
        parts = opening(granted, seen.state, fee_ppm, by, at, seen=known)
        found.append([parts, following(granted, seen.state, by)])
    return found


def opening(
    granted: LeaseGranted,
    known: Bid,
    fee_ppm: int,
    by: Meta,
    now: datetime,
    *,
    seen: Mapping[tuple[type[Aggregate], object], Fold] | None = None,
) -> list[Part]:
    """Return what turns a grant into a lease, to be written whole or not at all.

    known: the bid, of which nothing is used that changes. seen: bid and offers as they were just
    read; then the lease is taken for new, as it is unless this was asked before.
    """
    was_read = seen or {}
    taken = [
        Part(
            Offer,
            share.offer_id,
            partial(_supply_stands, share=share, granted=granted),
            by,
            seen=was_read.get((Offer, share.offer_id)),
            holds=True,
        )
        for share in {each.offer_id: each for each in granted.shares}.values()
    ]
    cuts = [
        Part(
            Lease,
            cut.lease_id,
            partial(grant_checks.cut_short, cut=cut, granted=granted, now=now),
            by.step(f"cut:{cut.lease_id}"),
            holds=True,
        )
        for cut in granted.cuts
    ]
    moves_from = moves.moving_from(known)
    if moves_from is not None:
        way = partial(moves.give_way, granted=granted, bid=known, now=now)
        cuts.append(Part(Lease, moves_from, way, by.step("move"), holds=True))
    fill = partial(grant_checks.fill, granted=granted, now=now)
    filled = Part(
        Bid, granted.bid_id, fill, by.step("fill"), seen=was_read.get((Bid, granted.bid_id))
    )
    lease = leasing(granted, known, fee_ppm, by)
    return [
        *taken,
        *cuts,
        filled,
        _covered(granted, known, by),
        lease if seen is None else replace(lease, seen=NONE_YET),
    ]


def following(granted: LeaseGranted, known: Bid, by: Meta) -> list[Part]:
    """Return what a lease that was opened leaves to do: give back what it does not need.

    Nothing where its hold is released: it may be over by the time that this is asked again.
    """
    terms = known.terms
    resize = resizing_hold(
        account_id=terms.account_id,
        hold_id=terms.hold_id,
        money=grant_checks.cost_of(granted),
        by=by.step("hold"),
        now=granted.at,
    )

    def decide(account: Account) -> Sequence[Event]:
        hold = account.holds.get(terms.hold_id)
        return [] if hold is None or hold.released else resize.decide(account)

    return [replace(resize, decide=decide)]


def _finish_sale(store: EventStore, granted: LeaseGranted, cut: Cut, by: Meta) -> None:
    """Give a seller back what the rest would have cost; end its lease if all of it is sold."""
    by = by.step(f"cut:{cut.lease_id}")
    end = partial(grant_checks.end_sold_whole, sold_to=granted.lease_id, now=granted.at)
    record(store, Lease, cut.lease_id, end, by=by.step("end"))
    hold_what_remains(store, lease_id=cut.lease_id, by=by, now=granted.at)


def _supply_stands(offer: Offer | None, *, share: Share, granted: LeaseGranted) -> list[OfferEvent]:
    grant_checks.supply_stands(offer, share, granted)
    return []


def _covered(granted: LeaseGranted, known: Bid, by: Meta) -> Part:
    """Return the account's part. It is not held: of a bid's hold the bid's own stream decides."""
    terms, asked = known.terms, f"cover:{granted.lease_id}"
    cover = partial(grant_checks.cover, granted=granted, hold_id=terms.hold_id, now=granted.at)
    return Part(Account, terms.account_id, cover, by.step(asked))


def leasing(granted: LeaseGranted, known: Bid, fee_ppm: int, by: Meta) -> Part:
    """Return the part that schedules a grant's lease, once."""
    bid = known.terms
    scheduled = LeaseScheduled(
        lease_id=granted.lease_id,
        bid_id=granted.bid_id,
        tenant_id=bid.tenant_id,
        subscriber_id=bid.subscriber_id,
        user_id=bid.user_id,
        account_id=bid.account_id,
        hold_id=bid.hold_id,
        market=granted.market,
        shares=granted.shares,
        gpu_model=granted.gpu_model,
        window=granted.window,
        price=granted.price,
        fee_ppm=fee_ppm,
        service_class=bid.service_class,
        workload=bid.workload,
        cost_centre=bid.cost_centre,
        at=granted.at,
        round_id=granted.round_id,
    )

    def decide(lease: Lease | None) -> list[LeaseEvent]:
        return [scheduled] if lease is None else []

    return Part(Lease, granted.lease_id, decide, by)
