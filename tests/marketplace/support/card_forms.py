"""A card that is offered by demand, and the forms it may take."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

import pytest

from ledger.domain.ids import HostId, OfferId
from ledger.domain.money import Money, Rate
from ledger.domain.span import Window
from ledger.eventstore.port import EventStore, Meta, load
from listings import commands
from listings.domain.events import (
    ByDemand,
    Chosen,
    Division,
    Form,
    Gpu,
    OfferPublished,
)
from listings.domain.hosts import Host
from listings.domain.offers import Offer
from listings.domain.terms import OfferTerms
from tests.marketplace.support.market import MARKET, OWNER, Market

HOST = HostId(UUID(int=77))


FIRST, SECOND = OfferId(UUID(int=700)), OfferId(UUID(int=701))


BY_OWNER = Meta(actor="user:ada", tenant_id=OWNER)


WHOLE, QUARTERS = Form(None), Form(Division("mps", 4))


def usd(amount: str) -> Rate:
    return Rate(int(float(amount) * 1_000_000_000), "USD")


def by_demand(*forms: tuple[Division | None, str], seconds: int = 600) -> ByDemand:
    return ByDemand(tuple(Form(way, usd(floor)) for way, floor in forms), seconds)


TWO_WAYS = by_demand((None, "2.00"), (Division("mps", 4), "0.60"))


def list_card(
    market: Market, ways: ByDemand = TWO_WAYS, *, mig: bool = False, offer_id: OfferId = FIRST
) -> None:
    store, now = market.store, market.now
    commands.register_host(
        store, host_id=HOST, tenant_id=OWNER, title="Lab", market=MARKET, region="eu-west",
        by=BY_OWNER, now=now,
    )  # fmt: skip
    card = Gpu("GPU-a", "NVIDIA H100 80GB HBM3", 81_559, "9.0", "580.65.06", mig_enabled=mig)
    commands.report_inventory(store, host_id=HOST, gpus=[card], by=BY_OWNER, now=now)
    terms = OfferTerms(
        gpu_uuids=("GPU-a",),
        windows=(Window(now, now + timedelta(days=3)),),
        floor=usd("1.00"),
        lease_min_seconds=60,
        by_demand=ways,
    )
    commands.publish_offer(
        store, offer_id=offer_id, host_id=HOST, terms=terms, by=BY_OWNER, now=now
    )


@pytest.fixture
def market() -> Market:
    return Market()


def listed(market: Market) -> OfferPublished:
    """Return the one offer that the host has."""
    host = load(market.store, Host, HOST)
    assert host is not None
    (offer,) = host.listed.values()
    published = load(market.store, Offer, offer.offer_id)
    assert published is not None and published.published == offer
    return offer


def reform(
    store: EventStore,
    offer: OfferPublished,
    form: Form,
    *,
    now: datetime,
    offer_id: OfferId = SECOND,
) -> None:
    assert offer.by_demand is not None
    wanted = next((each for each in offer.by_demand.forms if each.division == form.division), form)
    commands.choose_form(
        store,
        offer=offer,
        form=wanted,
        offer_id=offer_id,
        chosen=Chosen(offer.offer_id, Money(2, "USD"), Money(1, "USD"), 1, 1),
        by=Meta(actor="loop:forms"),
        now=now,
    )
