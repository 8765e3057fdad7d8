"""What machines that watch a market may see, and strangers may not: figures, and what is wrong.

A load balancer needs to know no more than whether a process is ready; names of followers, lags and
the words of errors are for who runs the market.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import wraps

from django.conf import settings
from django.db import Error
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone

from ledger.access import Actor, actor_of_token
from ledger.access.visits import visitor
from ledger.domain.addresses import read_address
from ledger.domain.refusal import Refusal
from ledger.eventstore.port import StoreError

View = Callable[[HttpRequest], HttpResponse]
WANTED = (
    "Figures are for who runs this market: ask from an address in OFFPEAK_WATCHERS, or with the"
    " token of an operator or auditor of the platform.\n"
)


def for_insiders(view: View) -> View:
    """Answer strangers 403."""

    @wraps(view)
    def guarded(request: HttpRequest) -> HttpResponse:
        if is_insider(request):
            return view(request)
        return HttpResponse(WANTED, status=403, content_type="text/plain; charset=utf-8")

    return guarded


def in_short(view: View) -> View:
    """Answer strangers with the status alone."""

    @wraps(view)
    def shortened(request: HttpRequest) -> HttpResponse:
        answer = view(request)
        if is_insider(request):
            return answer
        status = json.loads(answer.content).get("status", "")
        short = JsonResponse({"status": status}, status=answer.status_code)
        if "Retry-After" in answer.headers:
            short.headers["Retry-After"] = answer.headers["Retry-After"]
        return short

    return shortened


def is_insider(request: HttpRequest) -> bool:
    """Tell if a request comes from where the market is watched, or from who governs it."""
    address = read_address(request.META.get("REMOTE_ADDR") or "")
    if address is not None and any(address in network for network in settings.WATCHERS):
        return True
    actor = visitor(request) or _bearer(request.headers.get("Authorization", ""))
    return actor is not None and actor.sees_all


def _bearer(header: str) -> Actor | None:
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer":
        return None
    try:
        return actor_of_token(token.strip(), now=timezone.now())
    except (Refusal, Error, StoreError):  # also where the database is away: then by address alone
        return None
