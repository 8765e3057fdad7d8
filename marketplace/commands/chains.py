"""Place the bid that follows another, and end a chain of them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial

from ledger.domain.accounts import FundsInsufficient
from ledger.domain.ids import BidId
from ledger.domain.refusal import Refusal
from ledger.eventstore.port import EventStore, Meta, Position, load, record
from marketplace.commands.bids import cancel_bid, place_bid
from marketplace.commands.leases import decide_on
from marketplace.commands.volumes import release_volume
from marketplace.domain.bids.bid import Bid, BidNotOpen, BidTerms, BidUnknown, place
from marketplace.domain.bids.money_waits import is_too_late, wait_for_money
from marketplace.domain.facts.close_reasons import NOT_NEEDED
from marketplace.domain.facts.events import BidChainEnded, BidEvent, BidPlaced
from marketplace.domain.leases import moves
from marketplace.domain.leases.lease import Lease
from marketplace.domain.leases.renewals import (
    LINKS_MAX,
    NO_MONEY,
    STAYED,
    Before,
    follow,
    next_id,
)
from marketplace.domain.spending.budget import BudgetUsedUp
from marketplace.domain.volumes.terms import volume_id_of


def continue_bid(
    store: EventStore, *, bid_id: BidId, by: Meta, now: datetime, is_last_try: bool
) -> None:
    """Place what follows a bid that expired, or whose lease is over; or note why nothing does.

    Once, however often it is called. Where the chain is ended at this moment, whoever comes second
    sees the other: either nothing is placed, or what was placed is withdrawn again.

    is_last_try: whether it is over if the account does not cover the next hold now.
    """
    bid = _known(store, bid_id)
    if bid.terms.repeat_until is None and not bid.terms.resume:
        return
    if _stays(store, bid, by, now) or _has_moved(store, bid, by, now):
        return
    following = next_id(bid_id)
    if not bid.chain_ended and load(store, Bid, following) is None:
        _place_next(store, bid, by, now, is_last_try=is_last_try)
    if _known(store, bid_id).chain_ended and load(store, Bid, following) is not None:
        _stop(store, following, by.step("stop"), now)


def _place_next(store: EventStore, bid: Bid, by: Meta, now: datetime, *, is_last_try: bool) -> None:
    lease = None if bid.lease_id is None else load(store, Lease, bid.lease_id)
    if bid.state in ("open", "cancelled") or (lease is not None and not lease.over):
        return
    asked = follow(_before(store, bid, lease), now=now)
    if isinstance(asked, str):
        _end(store, bid.terms.bid_id, asked, by.step("end"), now)
        return
    try:
        place_bid(store, terms=asked, by=by.step("next"), now=now)
    except (FundsInsufficient, BudgetUsedUp) as short:
        if is_last_try:
            refused = short if isinstance(short, BudgetUsedUp) else None
            _wait_for_money(store, bid.terms.bid_id, asked, by.step("wait"), now, refused)
    except Refusal as refusal:
        _end(store, bid.terms.bid_id, refusal.code, by.step("end"), now)


def _wait_for_money(
    store: EventStore,
    bid_id: BidId,
    asked: BidTerms,
    by: Meta,
    now: datetime,
    refused: BudgetUsedUp | None,
) -> None:
    """Note what waits for money, or for a budget's room, or that it would be too late."""
    following = place(asked, now=now)
    if is_too_late(following, now=now):
        _end(store, bid_id, NO_MONEY, by.step("too-late"), now)
        return

    def decide(bid: Bid | None) -> Sequence[BidEvent]:
        if bid is None:
            raise BidUnknown(bid_id=bid_id)
        return wait_for_money(bid, following, now=now, refused=refused)

    record(store, Bid, bid_id, decide, by=by)


def go_on_with_money(store: EventStore, *, bid_id: BidId, by: Meta, now: datetime) -> bool:
    """Place what waits behind a bid for money, if there is some; or end the wait, in its time.

    Once, however often it is called; tell if this ended the wait.
    """
    awaits = _known(store, bid_id).awaits
    if awaits is None or load(store, Bid, next_id(bid_id)) is not None:
        return False
    if now > awaits.until:
        _end(store, bid_id, NO_MONEY, by.step("over"), now)
        return True
    continue_bid(store, bid_id=bid_id, by=by, now=now, is_last_try=True)
    return _known(store, bid_id).chain_ended != "" or load(store, Bid, next_id(bid_id)) is not None


def before_move(store: EventStore, lease: Lease) -> Before:
    """Return the bid of a lease that runs, for `renewals.moving`. Raises: BidUnknown."""
    bid = _known(store, lease.terms.bid_id)
    return _before(store, bid, lease)


def _before(store: EventStore, bid: Bid, lease: Lease | None) -> Before:
    """Return how a bid ended. Its bidder said by when and for how much, wherever it moved."""
    said = bid
    while said.terms.continues is not None and said.terms.continues.moves:
        said = _known(store, said.terms.continues.bid_id)
    return Before(bid, _base(store, bid), lease, deadline=said.deadline, limit=said.limit)


def _stays(store: EventStore, bid: Bid, by: Meta, now: datetime) -> bool:
    """Tell if work that was to move to this bid's lease stays where it is, since that fell away.

    It is one decision, of the lease there: one that ends by now goes on in this bid's chain, one
    that does not is told that it keeps its GPUs.
    """
    moves_from = moves.moving_from(bid)
    if moves_from is None or bid.state == "open":
        return False
    lease = None if bid.lease_id is None else load(store, Lease, bid.lease_id)
    if lease is not None:
        if not lease.over or lease.started:
            return False
        back = partial(moves.stay, in_favour_of=lease.terms.lease_id, now=now)
        record(store, Lease, moves_from, back, by=by.step("stay"))
        first = load(store, Lease, moves_from)
        assert first is not None
        moved = first.rights.moved
        if moved is not None and moved.bid_id == bid.terms.bid_id:
            # It ends already, or has. Where it goes on elsewhere, this bid's chain is where.
            return not moves.goes_on_elsewhere(first)
    for each in bid.terms.workload.volumes:
        if each.writable:
            volume_id = volume_id_of(bid.terms.tenant_id, each.name)
            give_back = by.step(f"release:{each.name}")
            release_volume(
                store, volume_id=volume_id, bid_id=bid.terms.bid_id, by=give_back, now=now
            )
    _end(store, bid.terms.bid_id, STAYED, by.step("end"), now)
    return True


def _has_moved(store: EventStore, bid: Bid, by: Meta, now: datetime) -> bool:
    """Tell if the work of a lease that is over goes on in the lease that it moves to.

    Where it does not, as it was done before, that one is not needed, and ends.
    """
    lease = None if bid.lease_id is None else load(store, Lease, bid.lease_id)
    if lease is None or not lease.over or lease.rights.moved is None:
        return False
    moved = lease.rights.moved
    if moves.goes_on_elsewhere(lease):
        continue_bid(store, bid_id=moved.bid_id, by=by.step("moved"), now=now, is_last_try=False)
        return True
    _end(store, moved.bid_id, STAYED, by.step("not-moved"), now)
    decide_on(
        store,
        moved.in_favour_of,
        lambda lease: lease.abandon(now=now, reason=NOT_NEEDED),
        by.step("not-needed"),
    )
    return False


def _base(store: EventStore, bid: Bid) -> BidPlaced:
    """Return the last bid of the chain, up to this one, that asked for all its time."""
    while bid.terms.continues is not None and bid.terms.continues.resumes:
        bid = _known(store, bid.terms.continues.bid_id)
    return bid.wanted


def end_chain(store: EventStore, *, bid_id: BidId, by: Meta, now: datetime) -> Position:
    """Let nothing follow a bid: the last of its chain is withdrawn if it waits, its lease goes on.

    bid_id: any bid of the chain.

    Raises: BidUnknown, BidStandsAlone.
    """
    position = Position(0)
    for number in range(LINKS_MAX):
        bid_id = _last(store, bid_id)
        position = _stop(store, bid_id, by.step(f"end-{number}"), now)
        # One that was being placed at this moment is withdrawn by whoever placed it, or here.
        if _following(store, bid_id) is None:
            break
    return position


def _last(store: EventStore, bid_id: BidId) -> BidId:
    for _ in range(LINKS_MAX):
        following = _following(store, bid_id)
        if following is None:
            break
        bid_id = following
    return bid_id


def _following(store: EventStore, bid_id: BidId) -> BidId | None:
    """Return the bid after one: the next, or the one whose lease its work moves to."""
    following = next_id(bid_id)
    if load(store, Bid, following) is not None:
        return following
    bid = load(store, Bid, bid_id)
    lease = None if bid is None or bid.lease_id is None else load(store, Lease, bid.lease_id)
    if lease is None or lease.rights.moved is None:
        return None
    gone = lease.over and not moves.goes_on_elsewhere(lease)
    return None if gone else lease.rights.moved.bid_id


def _stop(store: EventStore, bid_id: BidId, by: Meta, now: datetime) -> Position:
    position = _end(store, bid_id, "consumer", by, now)
    if _known(store, bid_id).state == "open":
        # Granted at this very moment, it cannot be withdrawn: it runs, and nothing follows it.
        with suppress(BidNotOpen):
            position = cancel_bid(store, bid_id=bid_id, by=by.step("withdraw"), now=now)
    return position


def _end(store: EventStore, bid_id: BidId, because: str, by: Meta, now: datetime) -> Position:
    def decide(bid: Bid | None) -> list[BidChainEnded]:
        if bid is None:
            raise BidUnknown(bid_id=bid_id)
        return bid.end_chain(because=because, now=now)

    return record(store, Bid, bid_id, decide, by=by)


def _known(store: EventStore, bid_id: BidId) -> Bid:
    bid = load(store, Bid, bid_id)
    if bid is None:
        raise BidUnknown(bid_id=bid_id)
    return bid
