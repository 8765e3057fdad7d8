"""What publishing an offer would be refused for, without publishing it. Free of Django."""

from __future__ import annotations

from datetime import datetime

from ledger.domain.ids import HostId, OfferId, TenantId
from ledger.eventstore.port import EventStore, load
from listings.domain.hosts import Host, HostUnknown
from listings.domain.offers import Offer
from listings.domain.permits import ListingPermits, need_permits
from listings.domain.terms import OfferTerms


def check_offer(
    store: EventStore,
    *,
    offer_id: OfferId,
    host_id: HostId,
    terms: OfferTerms,
    tenant_id: TenantId,
    now: datetime,
) -> None:
    """Refuse what `publish_offer` would refuse at this moment; write nothing.

    Raises: what `publish_offer` raises.
    """
    host, earlier = load(store, Host, host_id), load(store, Offer, offer_id)
    if host is None or host.registered.tenant_id != tenant_id:
        raise HostUnknown(host_id=str(host_id))
    if earlier is not None:
        earlier.repeat(terms, host=host.registered)
        return
    for each in host.list_gpus(offer_id, terms, now=now):
        permits = load(store, ListingPermits, each.offer.market)
        need_permits(permits, each.offer.tenant_id, host.models_of(each.offer))
