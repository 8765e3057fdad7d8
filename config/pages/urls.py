"""Every page of the site, in the order of its navigation."""

from __future__ import annotations

from django.urls import URLPattern, path

from config.pages import (
    advice,
    bids,
    burst,
    fairness,
    finance,
    lab,
    leases,
    market,
    offers,
    ops,
    owner,
    rounds,
    settings,
)
from ledger.signin import demo_sign_in, switch_tenant

page_urls: list[URLPattern] = [
    path("", market.index),
    path("market/figures", market.figures),
    path("offers", offers.index),
    path("offers/new", offers.new),
    path("offers/preview", offers.preview),
    path("offers/<uuid:offer_id>", offers.page_of_offer),
    path("offers/<uuid:offer_id>/explain", advice.for_offer),
    path("bids", bids.index),
    path("bids/new", bids.new),
    path("bids/estimate", bids.estimate),
    path("bids/<uuid:bid_id>", bids.one),
    path("bids/<uuid:bid_id>/state", bids.state),
    path("bids/<uuid:bid_id>/advice", advice.for_bid),
    path("bids/<uuid:bid_id>/cancel", bids.cancel),
    path("bids/<uuid:bid_id>/end-chain", bids.end_chain),
    path("leases", leases.index),
    path("leases/<uuid:lease_id>", leases.one),
    path("leases/<uuid:lease_id>/state", leases.state),
    path("leases/<uuid:lease_id>/end", leases.end),
    path("leases/<uuid:lease_id>/extend", leases.extend),
    path("leases/<uuid:lease_id>/reclaim", leases.reclaim),
    path("leases/<uuid:lease_id>/sell", leases.sell),
    path("leases/<uuid:lease_id>/take", leases.take),
    path("rounds", rounds.index),
    path("rounds/<uuid:round_id>", rounds.one),
    path("fairness", fairness.index),
    path("owner", owner.index),
    path("owner/hosts/<uuid:host_id>/reclaim", owner.reclaim),
    path("finance", finance.index),
    path("finance/accounts/<uuid:account_id>", finance.statement),
    path("finance/export/<str:name>", finance.export),
    path("lab", lab.index),
    path("ops", ops.index),
    path("ops/burst", burst.index),
    path("settings", settings.index),
    path("settings/organisation", switch_tenant),
    path("settings/tokens/<uuid:token_id>/revoke", settings.revoke),
    path("demo/sign-in", demo_sign_in),
]
