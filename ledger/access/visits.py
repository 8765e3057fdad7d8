"""Who is at a page. The site's middleware puts the actor on the request; pages ask here for it."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest
from django.http.request import split_domain_port

from ledger.access.actors import Actor
from ledger.domain.addresses import is_loopback
from ledger.domain.refusal import Forbidden, Unauthenticated


class SignInNeeded(Unauthenticated):
    """This page needs somebody to be signed in."""


class NoMembership(Forbidden):
    """You are signed in, but no organisation has admitted you yet.

    Ask an operator of your organisation to admit you.
    """


def visitor(request: HttpRequest) -> Actor | None:
    """Return who is at the page, or None for a guest or somebody without a membership."""
    actor = getattr(request, "actor", None)
    assert actor is None or isinstance(actor, Actor)
    return actor


def site_address(request: HttpRequest) -> str:
    """Return the address that people and agents reach the site by, without a slash at its end."""
    return settings.ENV.base_url or f"{request.scheme}://{request.get_host()}"


def is_from_this_machine(request: HttpRequest) -> bool:
    """Tell if a page is asked for on the very machine that serves it, and by its own name.

    A proxy that says for whom it asks is believed where it says that somebody else does.
    """
    peer = request.META.get("REMOTE_ADDR") or ""
    hops = [peer, *request.headers.get("X-Forwarded-For", "").split(",")]
    told = all(is_loopback(hop.strip()) for hop in hops if hop.strip())
    name, _port = split_domain_port(request.get_host())
    return bool(peer) and told and is_loopback(name)


def actor_of(request: HttpRequest) -> Actor:
    """Return who is at the page.

    Raises: SignInNeeded, NoMembership.
    """
    actor = visitor(request)
    if actor is not None:
        return actor
    if request.user.is_authenticated:
        raise NoMembership()
    raise SignInNeeded()
