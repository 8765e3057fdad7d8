"""Where the API of overflow is, below /api/v1/."""

from __future__ import annotations

from django.urls import URLPattern, path

from bursting.api import BidBurst, BurstInstances, OneBurstInstance, Strays
from bursting.home_api import HomeMoves, HomePolicyOfTenant

api_urls: list[URLPattern] = [
    path("burst/instances", BurstInstances.as_view()),
    path("burst/strays", Strays.as_view()),
    path("burst/home-moves", HomeMoves.as_view()),
    path("burst/home-policy", HomePolicyOfTenant.as_view()),
    path("burst/bids/<uuid:bid_id>", BidBurst.as_view()),
    path("burst/instances/<uuid:instance_id>", OneBurstInstance.as_view()),
]
