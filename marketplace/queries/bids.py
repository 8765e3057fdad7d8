"""What can be asked about bids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast
from uuid import UUID

from django.db.models import QuerySet

from ledger.access import Actor, visible
from ledger.domain.ids import BidId, SubscriberId
from ledger.domain.parties import SubscriberUnknown
from ledger.domain.refusal import Forbidden, Invalid
from ledger.queries.parties import subscribers
from marketplace.domain.bids.bid import BidAction, BidState, BidUnknown, offered
from marketplace.models.bids import BidRow


class UnitMissing(Invalid):
    """Say for which business unit you bid: you are a member of none in particular.

    Name it in `subscriber_id`.
    """


class NotYourUnit(Forbidden):
    """You bid for your own business unit; only an operator bids for another."""


class BidNotYours(Forbidden):
    """Only the organisation that placed a bid may change it."""


@dataclass(frozen=True, slots=True)
class Unit:
    """The business unit that a bid is for."""

    subscriber_id: SubscriberId
    cost_centre: str


def bids(actor: Actor, *, states: Sequence[str] = ()) -> QuerySet[BidRow]:
    """Return the bids that `actor` may see, newest first."""
    rows = visible(actor, BidRow).order_by("-placed_at", "bid_id")
    return rows.filter(state__in=states) if states else rows


def actions_of(actor: Actor, row: BidRow) -> tuple[BidAction, ...]:
    """Return what `actor` may do with a bid, by the rule of the commands.

    Only its own organisation may, in a role and with a token that may write.
    """
    if row.tenant_id != actor.tenant_id or not actor.may("bids:write"):
        return ()
    return offered(cast(BidState, row.state))


def chain(actor: Actor, bid_id: UUID) -> QuerySet[BidRow]:
    """Return the bids that follow one another, of which this is one, first to last.

    Raises: BidUnknown, also for one that the actor may not see.
    """
    row = bid(actor, bid_id)
    rows = visible(actor, BidRow)
    if row.chain_id is None:
        return rows.filter(bid_id=bid_id)
    return rows.filter(chain_id=row.chain_id).order_by("chain_number", "bid_id")


def bid(actor: Actor, bid_id: UUID) -> BidRow:
    """Return one bid.

    Raises: BidUnknown, also for one that the actor may not see.
    """
    row = visible(actor, BidRow).filter(bid_id=bid_id).first()
    if row is None:
        raise BidUnknown(bid_id=bid_id)
    return row


def own_bid(actor: Actor, bid_id: UUID) -> BidRow:
    """Return one bid of the actor's own organisation, to change it.

    Raises: BidUnknown, BidNotYours: the platform may look, but not touch.
    """
    row = bid(actor, bid_id)
    if row.tenant_id != actor.tenant_id:
        raise BidNotYours(bid_id=bid_id)
    return row


def unit_of(actor: Actor, subscriber_id: UUID | None) -> Unit:
    """Return the business unit that the actor bids for: its own, or the one it names.

    Raises: UnitMissing, NotYourUnit, SubscriberUnknown.
    """
    asked = subscriber_id or actor.subscriber_id
    if asked is None:
        raise UnitMissing()
    if actor.subscriber_id not in (None, asked) and "operator" not in actor.roles:
        raise NotYourUnit(subscriber_id=asked)
    found = subscribers(actor).filter(subscriber_id=asked)
    for known, cost_centre in found.values_list("subscriber_id", "cost_centre"):
        return Unit(SubscriberId(known), cost_centre)
    raise SubscriberUnknown(subscriber_id=asked)


def bids_known(bid_ids: Iterable[BidId]) -> set[BidId]:
    """Return those of `bid_ids` that are bids."""
    rows = BidRow.objects.filter(bid_id__in=list(bid_ids))
    return {BidId(key) for key in rows.values_list("bid_id", flat=True)}
