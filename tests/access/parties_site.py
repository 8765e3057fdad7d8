"""The routes of the book of record alone."""

from __future__ import annotations

from django.urls import include, path

from ledger.urls import api_urls

urlpatterns = [path("api/v1/", include(api_urls))]
