"""What every page that sends a form has in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render

from ledger.access import Actor
from ledger.domain.refusal import Refusal
from ledger.eventstore.port import Meta, Position

UNPROCESSABLE = 422


def done(request: HttpRequest, url: str, position: Position, said: str = "") -> HttpResponse:
    """Go to `url` and show it as of `position`: what was just done is on it."""
    if said:
        messages.success(request, said)
    joined = "&" if "?" in url else "?"
    return HttpResponseRedirect(f"{url}{joined}{urlencode({'after': position})}")


def page(
    request: HttpRequest,
    template: str,
    context: Mapping[str, Any],
    *,
    refusal: Refusal | None = None,
    invalid: bool = False,
) -> HttpResponse:
    """Render a page; with a refusal or an invalid form it is 422 and says why in place."""
    status = UNPROCESSABLE if refusal or invalid else 200
    return render(request, template, {**context, "refusal": refusal}, status=status)


def meta_of(actor: Actor, token: UUID | None = None) -> Meta:
    """Return the Meta of a form. token: made with the form, so that sending it twice is once."""
    return actor.meta(command_id=token)
