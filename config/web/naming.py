"""By which name a request reaches the site, and under which address others find it."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

import structlog
from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.http import HttpRequest, HttpResponse
from django.http.request import split_domain_port

from config.address import is_loopback
from config.web.errors import unknown_name

PROBED = frozenset({"/healthz", "/readyz", "/metrics"})
"""What machines ask by whatever address they have: a load balancer by that of one process."""
TOLD_MAX = 20

log = structlog.get_logger()


def by_our_name(
    get_response: Callable[[HttpRequest], HttpResponse],
) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware: refuse names that are not ours, and take the base URL for what a proxy hides.

    It comes first, since everything behind it may ask for the host and the scheme: a proxy that
    is given nothing but our address sends neither. The base URL says what they were.
    """
    told: set[str] = set()

    def answer(request: HttpRequest) -> HttpResponse:
        if request.path in PROBED:
            request.META["HTTP_HOST"] = "localhost"  # no link and no cookie follows from it
            return get_response(request)
        _fill_in(request)
        try:
            request.get_host()
        except DisallowedHost:
            # A name once and not each request: a stranger does not decide how much is logged.
            name = request.META.get("HTTP_HOST", "")[:100]
            if len(told) < TOLD_MAX and name not in told:
                told.add(name)
                log.warning("host.unknown", host=name)
            return unknown_name(request)
        return get_response(request)

    return answer


def _fill_in(request: HttpRequest) -> None:
    """Put host and scheme of the base URL where the request comes from a proxy or says neither.

    Who comes to this machine's own name by a form of a page there (a tunnel) keeps that name, or
    the check of the form's origin would refuse it.
    """
    base = urlsplit(settings.ENV.base_url)
    if not base.netloc:
        return
    name, _port = split_domain_port(request.META.get("HTTP_HOST", ""))
    if is_loopback(name):
        here = urlsplit(request.META.get("HTTP_ORIGIN", "")).netloc
        if here and here == request.META.get("HTTP_HOST"):
            return
        request.META["HTTP_HOST"] = base.netloc
    elif name != split_domain_port(base.netloc)[0]:
        return
    if "HTTP_X_FORWARDED_PROTO" not in request.META:
        request.META["HTTP_X_FORWARDED_PROTO"] = base.scheme
