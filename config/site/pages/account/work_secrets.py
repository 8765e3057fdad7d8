"""The secrets of an organisation: names and uses, new values, and their end. No value is shown."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from config.site.forms.answers import done, meta_of, page
from config.site.parts.paging import part_of
from ledger.access.visits import actor_of
from ledger.domain.refusal import Refusal
from ledger.eventstore import default_store
from ledger.queries import people
from ledger.vault import default_vault
from marketplace import secrets
from marketplace.queries import secrets as queries

WHERE = "/settings/secrets"


class Unseen(forms.Textarea):
    """A text that is never sent back, not even to who sent it."""

    def format_value(self, value: object) -> str:
        """Return nothing, whatever was sent."""
        return ""


class SecretForm(forms.Form):
    """A secret and its new value, which is never sent back."""

    name = forms.CharField(label="Name", max_length=64)
    value = forms.CharField(
        label="Value",
        strip=False,
        widget=Unseen(attrs={"rows": 3, "autocomplete": "off", "spellcheck": "false"}),
    )


@sensitive_post_parameters("value")
@require_http_methods(["GET", "HEAD", "POST"])
def index(request: HttpRequest) -> HttpResponse:
    """Show what secrets there are; sent, set one."""
    actor = actor_of(request)
    actor.need_scope("secrets:read")
    if request.method != "POST":
        return _show(request)
    actor.need_scope("secrets:write")
    form = SecretForm(request.POST)
    if not form.is_valid():
        return _show(request, form=form)
    name = form.cleaned_data["name"]
    try:
        version, position = secrets.set_secret(
            default_store(),
            default_vault(),
            actor.tenant_id,
            name,
            # A browser ends the lines of a form in its own way; a key in a file has other ends.
            form.cleaned_data["value"].replace("\r\n", "\n"),
            user_id=actor.user_id,
            by=meta_of(actor),
            now=timezone.now(),
        )
    except Refusal as refusal:
        return _show(request, form=form, refusal=refusal)
    return done(request, WHERE, position, f"{name} is set, version {version}.")


@require_POST
def remove(request: HttpRequest) -> HttpResponse:
    """Remove a secret with its value."""
    actor = actor_of(request)
    actor.need_scope("secrets:write")
    name = request.POST.get("name", "")
    try:
        position = secrets.remove_secret(
            default_store(),
            actor.tenant_id,
            name,
            user_id=actor.user_id,
            by=meta_of(actor),
            now=timezone.now(),
        )
    except Refusal as refusal:
        return _show(request, refusal=refusal)
    return done(request, WHERE, position, f"{name} is removed.")


def _show(
    request: HttpRequest, *, form: SecretForm | None = None, refusal: Refusal | None = None
) -> HttpResponse:
    actor = actor_of(request)
    used = queries.uses(actor)
    part = part_of(request, queries.secrets(actor), "page")
    known = people([row.user_id for row in part.rows if row.user_id is not None])
    context: dict[str, Any] = {
        "secrets": [
            {"row": row, "used_by": used[row.name], "by": known.get(row.user_id, "")}
            for row in part.rows
        ],
        "part": part,
        "form": form or SecretForm(),
        "may_write": actor.may("secrets:write"),
    }
    invalid = form is not None and bool(form.errors)
    return page(request, "pages/secrets.html", context, refusal=refusal, invalid=invalid)
