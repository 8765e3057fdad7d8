"""The API of the market and of use together, where the site puts them."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path

from marketplace.urls import api_urls as of_the_market
from metering.urls import api_urls as of_use

urlpatterns: list[URLPattern | URLResolver] = [
    path("api/v1/", include(of_the_market)),
    path("api/v1/", include(of_use)),
]
