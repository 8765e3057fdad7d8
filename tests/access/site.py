"""A small site for tests of signing in: log-in pages, one page for owners, one for members."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import include, path

from ledger.access.visits import actor_of
from ledger.signin import demo_sign_in, page, switch_tenant
from tests.access.probe import Probe


@page("owner")
def owners(request: HttpRequest) -> HttpResponse:
    return HttpResponse(f"owner at {actor_of(request).title}")


@page()
def members(request: HttpRequest) -> HttpResponse:
    return HttpResponse(f"member at {actor_of(request).title}")


urlpatterns = [
    path("accounts/", include("allauth.urls")),
    path("demo/sign-in", demo_sign_in),
    path("switch-tenant", switch_tenant),
    path("owners", owners),
    path("", members),
    path("api/v1/notes", Probe.as_view()),
]
