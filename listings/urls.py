"""Where the API of supply is, below /api/v1/."""

from __future__ import annotations

from django.urls import URLPattern, path

from listings.api.hosts import (
    AgentTokens,
    DrainHost,
    EnrolmentCodes,
    Hosts,
    OneHost,
    PauseHost,
    ReleaseHost,
    ResumeHost,
    RetireHost,
)
from listings.api.maintenance import Maintenances, OneMaintenance
from listings.api.market import Listings, SupplyNow
from listings.api.offers import (
    Offers,
    OfferWindows,
    OneOffer,
    PauseOffer,
    PreviewOffers,
    ResumeOffer,
    WithdrawOffer,
)
from listings.api.promising import PromiseOfOffer

api_urls: list[URLPattern] = [
    path("hosts", Hosts.as_view()),
    path("hosts/<uuid:host_id>", OneHost.as_view()),
    path("hosts/<uuid:host_id>/retire", RetireHost.as_view()),
    path("hosts/<uuid:host_id>/enrolment-codes", EnrolmentCodes.as_view()),
    path("hosts/<uuid:host_id>/pause", PauseHost.as_view()),
    path("hosts/<uuid:host_id>/drain", DrainHost.as_view()),
    path("hosts/<uuid:host_id>/release", ReleaseHost.as_view()),
    path("hosts/<uuid:host_id>/resume", ResumeHost.as_view()),
    path("hosts/<uuid:host_id>/maintenance", Maintenances.as_view()),
    path("hosts/<uuid:host_id>/maintenance/<uuid:maintenance_id>", OneMaintenance.as_view()),
    path("hosts/<uuid:host_id>/tokens", AgentTokens.as_view()),
    path("offers", Offers.as_view()),
    path("offers/preview", PreviewOffers.as_view()),
    path("offers/<uuid:offer_id>", OneOffer.as_view()),
    path("offers/<uuid:offer_id>/sla", PromiseOfOffer.as_view()),
    path("offers/<uuid:offer_id>/windows", OfferWindows.as_view()),
    path("offers/<uuid:offer_id>/pause", PauseOffer.as_view()),
    path("offers/<uuid:offer_id>/resume", ResumeOffer.as_view()),
    path("offers/<uuid:offer_id>/withdraw", WithdrawOffer.as_view()),
    path("listings", Listings.as_view()),
    path("supply", SupplyNow.as_view()),
]
