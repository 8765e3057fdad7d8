"""In which zone a visitor reads times."""

from __future__ import annotations

from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.http import HttpRequest

ZONE_COOKIE = "zone"


def zone_of(request: HttpRequest) -> ZoneInfo:
    """Return the zone of the visitor's browser, or UTC where it did not say."""
    try:
        return ZoneInfo(request.COOKIES.get(ZONE_COOKIE, "UTC"))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return ZoneInfo("UTC")
