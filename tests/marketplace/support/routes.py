"""The API of the market alone, where the site puts it."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path

from marketplace.urls import api_urls

urlpatterns: list[URLPattern | URLResolver] = [path("api/v1/", include(api_urls))]
