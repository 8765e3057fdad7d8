"""A past round cleared again under other rules: what it would have granted, and to whose gain.

The book is that of its position in the log; the code is the one that clears, with the steps that
the round took.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_args
from uuid import UUID

from ledger.domain.ids import BidId, OfferId
from ledger.domain.money import MILLIS_PER_HOUR
from ledger.domain.refusal import Invalid, Refusal
from ledger.eventstore.port import EventStore
from marketplace.domain.clearing.fills import PRICE_RULES, PriceRule, Rules
from marketplace.domain.decisions.decide import RoundUnsound
from marketplace.domain.facts.events import LeaseGranted
from marketplace.domain.facts.instants import from_above
from marketplace.replay.round import LogTooLong, book_at, cleared_again


class RulesUnreadable(Invalid):
    """Rules are a price rule (market, floor, midpoint or limit) and preemption (yes or no)."""


class RoundOutOfReach(Refusal):
    """That round cannot be cleared again here: it lies too far back, or breaks off."""


@dataclass(frozen=True, slots=True)
class Came:
    """What a round came to. Money over the GPU-time of its grants, own use apart.

    welfare: limits less floors; bidders: limits less prices; owners: prices less floors.
    interrupted: leases cut for others. price_nanos: mean per GPU-hour; None: nothing was paid.
    """

    grants: int
    gpus: int
    gpu_millis: int
    price_nanos: int | None
    welfare_nanos: int
    bidders_nanos: int
    owners_nanos: int
    interrupted: int


@dataclass(frozen=True, slots=True)
class Otherwise:
    """A round as it was recorded and under other rules; new, lost: bids granted in one only."""

    recorded: Came
    otherwise: Came
    new: int
    lost: int


def read_rules(price: str, preemption: str) -> Rules:
    """Return the rules that an address names.

    Raises: RulesUnreadable.
    """
    known: list[PriceRule] = [rule for rule in get_args(PriceRule) if rule == price]
    if not known or preemption not in ("yes", "no"):
        raise RulesUnreadable(price=price[:40], preemption=preemption[:40], known=list(PRICE_RULES))
    return Rules(known[0], preemption=preemption == "yes")


def clear_otherwise(store: EventStore, *, market: str, round_id: UUID, rules: Rules) -> Otherwise:
    """Clear a round again under other rules; nothing is written.

    Raises: RoundUnknown, RoundOutOfReach.
    """
    try:
        found = book_at(store, market, round_id)
    except LogTooLong:
        raise RoundOutOfReach(round_id=round_id) from None
    floors = {offer_id: listed.floor for offer_id, listed in found.looked_at.offers.items()}
    limits = {bid_id: bid.limit for bid_id, bid in found.looked_at.bids.items()}
    try:
        again = cleared_again(found, from_above(found.cleared.at), rules)
    except RoundUnsound:
        raise RoundOutOfReach(round_id=round_id) from None
    granted = [event for event in again if isinstance(event, LeaseGranted)]
    before = {each.bid_id for each in found.granted}
    after = {each.bid_id for each in granted}
    return Otherwise(
        recorded=_came(found.granted, floors, limits),
        otherwise=_came(granted, floors, limits),
        new=len(after - before),
        lost=len(before - after),
    )


def _came(
    granted: Sequence[LeaseGranted], floors: Mapping[OfferId, int], limits: Mapping[BidId, int]
) -> Came:
    gpus = paid_millis = gpu_millis = paid = floor = limit = 0
    for grant in granted:
        count = sum(len(share.gpu_uuids) for share in grant.shares)
        millis = count * grant.window.millis
        gpus, gpu_millis = gpus + count, gpu_millis + millis
        if grant.own:
            continue
        price = grant.price.nanos_per_gpu_hour
        paid_millis += millis
        paid += price * millis
        limit += limits.get(grant.bid_id, price) * millis
        floor += grant.window.millis * sum(
            floors.get(share.offer_id, price) * len(share.gpu_uuids) for share in grant.shares
        )
    return Came(
        grants=len(granted),
        gpus=gpus,
        gpu_millis=gpu_millis,
        price_nanos=paid // paid_millis if paid_millis else None,
        welfare_nanos=(limit - floor) // MILLIS_PER_HOUR,
        bidders_nanos=(limit - paid) // MILLIS_PER_HOUR,
        owners_nanos=(paid - floor) // MILLIS_PER_HOUR,
        interrupted=sum(len(grant.cuts) for grant in granted),
    )
