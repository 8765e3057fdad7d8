"""What the frame around every page shows: the places to go, who is signed in, the theme."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from django.http import HttpRequest

from ledger.access import Actor
from ledger.access.visits import visitor
from ledger.domain.events import Role
from ledger.queries import unread_count

THEMES = ("light", "dark")


@dataclass(frozen=True, slots=True)
class Place:
    """One entry of the main navigation. `roles` empty: everybody sees it.

    platform: only who governs the whole platform sees it.
    """

    name: str
    href: str
    icon: str
    roles: frozenset[Role] = frozenset()
    is_platform: bool = False
    platform: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """Places that belong together, under a small heading."""

    name: str
    places: tuple[Place, ...]


_OWNER: frozenset[Role] = frozenset({"owner", "operator"})
_FINANCE: frozenset[Role] = frozenset({"finance", "auditor", "operator"})
_OPERATOR: frozenset[Role] = frozenset({"operator"})
_BIDDER: frozenset[Role] = frozenset({"consumer", "operator"})
_CONSUMER: frozenset[Role] = frozenset({"consumer", "owner", "operator"})

NAVIGATION = (
    Group(
        "Trade",
        (
            Place("Market", "/", "market"),
            Place("Offers", "/offers", "offers", _OWNER),
            Place("Bids", "/bids", "bids", _CONSUMER),
            Place("Leases", "/leases", "leases", _CONSUMER),
            Place("Volumes", "/volumes", "volumes", _BIDDER),
            Place("Rounds", "/rounds", "rounds"),
            Place("Fair shares", "/fairness", "fairness"),
        ),
    ),
    Group(
        "Business",
        (
            Place("Owner", "/owner", "owner", _OWNER),
            Place("Invoices", "/invoices", "copy", _FINANCE),
            Place("Payouts", "/payouts", "out", _OWNER | _FINANCE),
            Place("Spend", "/spend", "spend"),
            Place("Budgets", "/budgets", "warn"),
            Place("Wallet", "/wallet", "wallet", _FINANCE),
            Place("Finance", "/finance", "finance", _FINANCE),
            Place("Disputes", "/finance/disputes", "info", _CONSUMER | _FINANCE),
        ),
    ),
    Group(
        "Run",
        (
            Place("Organisations", "/settings/organisations", "people", _OPERATOR),
            Place("Ops", "/ops", "ops", platform=True),
            Place("Burst", "/ops/burst", "burst", _OPERATOR | _FINANCE),
            Place("Lab", "/lab", "lab", platform=True),
        ),
    ),
    Group("", (Place("Settings", "/settings", "settings"), Place("Docs", "/docs/", "docs"))),
)


def navigation_for(
    roles: frozenset[Role], path: str, *, governs: bool = False
) -> list[dict[str, Any]]:
    """Return the groups that `roles` may see; the place that `path` lies in is `current`.

    governs: the visitor governs the whole platform.
    """
    places = [place for group in NAVIGATION for place in group.places]
    inside = [place for place in places if _covers(place.href, path)]
    current = max(inside, key=lambda place: len(place.href), default=None)
    groups = []
    for group in NAVIGATION:
        seen = [
            {"place": place, "current": place is current}
            for place in group.places
            if (governs or not place.platform) and (not place.roles or place.roles & roles)
        ]
        if seen:
            groups.append({"name": group.name, "places": seen})
    return groups


def _covers(href: str, path: str) -> bool:
    return path == href or (href != "/" and path.startswith(href.rstrip("/") + "/"))


def shell(request: HttpRequest) -> dict[str, Any]:
    """Context processor: `shell.navigation`, `shell.theme`, `shell.person`, `shell.actors`."""
    theme = request.COOKIES.get("theme", "")
    actor = visitor(request)
    user = getattr(request, "user", None)
    return {
        "shell": {
            "navigation": navigation_for(
                actor.roles if actor else frozenset(),
                request.path,
                governs=actor is not None and actor.sees_all,
            ),
            "theme": theme if theme in THEMES else "",
            "person": str(user) if user is not None and user.is_authenticated else "",
            "actor": actor,
            "actors": getattr(request, "actors", []),
            "unread": partial(_unread, actor),
            "is_behind": getattr(request, "is_behind", False),
        }
    }


def _unread(actor: Actor | None) -> int:
    """Return how many notices the visitor has not read, for the bell in the frame."""
    if actor is None or actor.user_id is None:
        return 0
    return unread_count(actor)
