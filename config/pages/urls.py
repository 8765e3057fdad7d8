"""Every page of the site, in the order of its navigation."""

from __future__ import annotations

from django.urls import URLPattern, path

from config.pages import leases, offers

page_urls: list[URLPattern] = [
    path("offers", offers.index),
    path("offers/new", offers.new),
    path("offers/preview", offers.preview),
    path("offers/<uuid:offer_id>", offers.page_of_offer),
    path("leases", leases.index),
    path("leases/<uuid:lease_id>", leases.one),
    path("leases/<uuid:lease_id>/state", leases.state),
    path("leases/<uuid:lease_id>/end", leases.end),
    path("leases/<uuid:lease_id>/extend", leases.extend),
    path("leases/<uuid:lease_id>/reclaim", leases.reclaim),
]
