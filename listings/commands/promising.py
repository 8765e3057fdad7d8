"""What an owner promises of an offer's service."""

from __future__ import annotations

from datetime import datetime

from ledger.domain.ids import OfferId
from ledger.domain.refusal import Refusal
from ledger.eventstore.port import EventStore, Meta, Position, load, record
from listings.domain.offers import FINAL, Offer, OfferUnknown
from listings.domain.sla import OfferSla, SlaTerms, set_sla
from listings.domain.sla_events import OfferSlaSet


class SlaByDemand(Refusal):
    """An offer whose form the market chooses by demand promises no level of service.

    Each form is an offer of its own; divide the GPU yourself to promise one.
    """


class SlaOfEndedOffer(Refusal):
    """That offer is withdrawn or over: nothing is promised of it any more."""


def set_offer_sla(
    store: EventStore, *, offer_id: OfferId, terms: SlaTerms | None, by: Meta, now: datetime
) -> Position:
    """Promise a level of service to leases granted from now on; None: promise none.

    Raises: OfferUnknown, SlaByDemand, SlaOfEndedOffer, SlaUnreadable.
    """
    offer = load(store, Offer, offer_id)
    if offer is None or by.tenant_id not in (None, offer.published.tenant_id):
        raise OfferUnknown(offer_id=offer_id)
    if offer.state in FINAL:
        raise SlaOfEndedOffer(offer_id=offer_id)
    if offer.published.by_demand is not None and terms is not None:
        raise SlaByDemand(offer_id=offer_id)
    owner_id = offer.published.tenant_id

    def decide(sla: OfferSla | None) -> list[OfferSlaSet]:
        return set_sla(sla, offer_id=offer_id, owner_id=owner_id, terms=terms, now=now)

    return record(store, OfferSla, offer_id, decide, by=by)
