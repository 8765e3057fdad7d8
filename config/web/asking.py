"""What asks for an answer: a page that is opened, or a part of one that is open; and which."""

from __future__ import annotations

from urllib.parse import urlencode, urlsplit

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

HOME = "/"
SHOWN = frozenset({"", "document", "iframe", "frame", "embed", "object"})
"""Destinations of a request that become a page; older browsers do not say."""
ADDRESS_CHARS_MAX = 2_000


def asks_for_part(request: HttpRequest) -> bool:
    """Tell if a page's script asks, and would put the answer into the page or read it."""
    if request.headers.get("HX-Request") == "true":
        return request.headers.get("HX-Boosted") != "true"
    return request.headers.get("Sec-Fetch-Dest", "") not in SHOWN


def page_asked_from(request: HttpRequest) -> str:
    """Return the path of the page that somebody is on; `/` where it is none of ours.

    It is what the request asks for only where that is a page of its own: a part's address is bare,
    and that of a form shows nothing.
    """
    if asks_for_part(request):
        told = request.headers.get("HX-Current-URL") or request.headers.get("Referer", "")
        return path_here(request, told)
    if request.method in ("GET", "HEAD"):
        return request.get_full_path()
    return path_here(request, request.headers.get("Referer", ""))


def to_log_in(request: HttpRequest) -> HttpResponse:
    """Send somebody to the log-in page, and from there back to the page that they are on."""
    address = f"{settings.LOGIN_URL}?{urlencode({'next': page_asked_from(request)})}"
    return elsewhere(request, address)


def elsewhere(request: HttpRequest, address: str) -> HttpResponse:
    """Send somebody who may not see what they ask for to another page."""
    if not asks_for_part(request):
        return HttpResponseRedirect(address)
    # A redirect would be followed by the script, and that page be put into the part.
    return HttpResponse(status=401, headers={"HX-Redirect": address})


def path_here(request: HttpRequest, address: str) -> str:
    """Return path and query of an address of this site, whole or from `/` on; `/` for others."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return HOME
    ours = {request.get_host(), urlsplit(settings.ENV.base_url).netloc}
    if (parts.netloc and parts.netloc not in ours) or len(address) > ADDRESS_CHARS_MAX:
        return HOME
    path = parts.path if parts.path.startswith("/") and not parts.path.startswith("//") else HOME
    if path.startswith((settings.LOGIN_URL, "/api/")) or "\\" in path:
        return HOME
    return f"{path}?{parts.query}" if parts.query else path
