"""Place the bid that follows another, and end a chain of them."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

from ledger.domain.accounts import FundsInsufficient
from ledger.domain.ids import BidId
from ledger.domain.refusal import Refusal
from ledger.eventstore.port import EventStore, Meta, Position, load, record
from marketplace.commands.bids import cancel_bid, place_bid
from marketplace.domain.bids.bid import Bid, BidNotOpen, BidUnknown
from marketplace.domain.facts.events import BidChainEnded, BidPlaced
from marketplace.domain.leases.lease import Lease
from marketplace.domain.leases.renewals import LINKS_MAX, Before, follow, next_id


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
    following = next_id(bid_id)
    if not bid.chain_ended and load(store, Bid, following) is None:
        _place_next(store, bid, by, now, is_last_try=is_last_try)
    if _known(store, bid_id).chain_ended and load(store, Bid, following) is not None:
        _stop(store, following, by.step("stop"), now)


def _place_next(store: EventStore, bid: Bid, by: Meta, now: datetime, *, is_last_try: bool) -> None:
    lease = None if bid.lease_id is None else load(store, Lease, bid.lease_id)
    if bid.state in ("open", "cancelled") or (lease is not None and not lease.over):
        return
    asked = follow(Before(bid, _base(store, bid), lease), now=now)
    if isinstance(asked, str):
        _end(store, bid.terms.bid_id, asked, by.step("end"), now)
        return
    try:
        place_bid(store, terms=asked, by=by.step("next"), now=now)
    except FundsInsufficient as refusal:
        if is_last_try:
            _end(store, bid.terms.bid_id, refusal.code, by.step("end"), now)
    except Refusal as refusal:
        _end(store, bid.terms.bid_id, refusal.code, by.step("end"), now)


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
        if load(store, Bid, next_id(bid_id)) is None:
            break
    return position


def _last(store: EventStore, bid_id: BidId) -> BidId:
    for _ in range(LINKS_MAX):
        following = next_id(bid_id)
        if load(store, Bid, following) is None:
            break
        bid_id = following
    return bid_id


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
