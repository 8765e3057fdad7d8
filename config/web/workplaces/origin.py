"""Which port of which lease a request is for, and whether the browser may send it.

All work has origins below one domain. To a browser they are of one site, so a page of one work
could send requests with the cookie of another: only what comes from the origin itself is let
through, and what a person follows as a link.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from django.http.request import split_domain_port

from metering.domain.work_names import read_name

Headers = Iterable[tuple[bytes, bytes]]

SAFE = ("GET", "HEAD")


@dataclass(frozen=True, slots=True)
class Place:
    """A port of a lease, and the host name with port by which the browser knows it."""

    lease_id: UUID
    port: int
    netloc: str


def header_of(headers: Headers, name: bytes) -> str:
    """Return a header's text; empty where there is none, or more than one."""
    found = [value for key, value in headers if key.lower() == name]
    return found[0].decode("latin-1") if len(found) == 1 else ""


def is_below(headers: Headers, domain: str) -> bool:
    """Tell if a request is for a name below the domain of work."""
    return _host(headers).endswith(f".{domain}")


def place_of(headers: Headers, domain: str) -> Place | None:
    """Return what a request below the domain is for; None where that is no port of a lease."""
    found = read_name(_host(headers), domain)
    return None if found is None else Place(*found, header_of(headers, b"host").lower())


def comes_from_itself(headers: Headers, own: str, *, method: str, socket: bool) -> bool:
    """Tell if a request was sent by a page of the same origin, or by a person.

    own: the origin, as a browser writes it. A websocket always says where it comes from.
    """
    headers = list(headers)
    if any(key.lower() == b"origin" for key, _ in headers):
        return header_of(headers, b"origin") == own
    if socket:
        return False
    site = header_of(headers, b"sec-fetch-site")
    if site in ("same-origin", "none"):
        return True
    if site == "":
        return method in SAFE  # an older browser, which names the origin of all that changes
    followed = header_of(headers, b"sec-fetch-mode") == "navigate"
    alone = header_of(headers, b"sec-fetch-dest") == "document"
    return method in SAFE and followed and alone


def _host(headers: Headers) -> str:
    domain, _port = split_domain_port(header_of(headers, b"host").lower())
    return domain
