"""A person's own settings: which organisation to act for, and tokens for programs and agents."""

from __future__ import annotations

import secrets
from datetime import timedelta
from typing import Any
from uuid import UUID

from django import forms
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from config.site.forms.answers import done, meta_of, page
from config.site.forms.fields import TokenField
from config.site.pages.owners.agent_tokens import issue_agent_token
from config.site.parts.paging import part_of
from ledger import commands, queries
from ledger.access import Actor
from ledger.access.visits import actor_of, site_address
from ledger.domain import tokens
from ledger.domain.ids import TokenId, UserId
from ledger.domain.refusal import Refusal
from ledger.eventstore import default_store
from ledger.eventstore.port import Position
from ledger.funding import setup
from listings.models import HostRow
from listings.queries import hosts

DAYS = (("7", "7 days"), ("30", "30 days"), ("90", "90 days"), ("365", "a year"))
SHOWN_MAX = 100


class TokenForm(forms.Form):
    """A token for the visitor's own programs."""

    token = TokenField()
    title = forms.CharField(label="What for", max_length=tokens.TITLE_LENGTH_MAX)
    days = forms.ChoiceField(label="Works for", choices=DAYS, initial="90")
    scopes = forms.MultipleChoiceField(label="May", widget=forms.CheckboxSelectMultiple())

    def __init__(self, *args: Any, actor: Actor, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        scopes = self.fields["scopes"]
        assert isinstance(scopes, forms.MultipleChoiceField)
        scopes.choices = [
            (each, each) for each in tokens.SCOPES if each != "agent" and actor.may(each)
        ]


class HostTokenForm(forms.Form):
    """A token for the agent of one host."""

    token = TokenField()
    host = forms.ChoiceField(label="Host")

    def __init__(self, *args: Any, actor: Actor, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        host = self.fields["host"]
        assert isinstance(host, forms.ChoiceField)
        host.choices = [(str(row.host_id), row.title) for row in _own_hosts(actor)]


@require_http_methods(["GET", "HEAD", "POST"])
def index(request: HttpRequest) -> HttpResponse:
    """Show the settings; a form sent here makes a token, whose text is shown this once."""
    actor = actor_of(request)
    form, host_form = TokenForm(actor=actor), HostTokenForm(actor=actor)
    refusal: Refusal | None = None
    if request.method == "POST":
        sent: TokenForm | HostTokenForm
        if "host" in request.POST:
            sent = host_form = HostTokenForm(request.POST, actor=actor)
        else:
            sent = form = TokenForm(request.POST, actor=actor)
        if sent.is_valid():
            try:
                text, position = _issue(actor, sent)
                context = _context(
                    request, actor, TokenForm(actor=actor), HostTokenForm(actor=actor)
                )
                return page(
                    request, "pages/token_made.html", context | {"text": text, "position": position}
                )
            except Refusal as refused:
                refusal = refused
    context = _context(request, actor, form, host_form)
    invalid = bool(form.errors or host_form.errors)
    return page(request, "pages/settings.html", context, refusal=refusal, invalid=invalid)


def _issue(actor: Actor, form: TokenForm | HostTokenForm) -> tuple[str, Position]:
    data, now = form.cleaned_data, timezone.now()
    token_id = TokenId(data["token"])
    if isinstance(form, HostTokenForm):
        actor.need("owner", "operator")
        return issue_agent_token(
            actor,
            token_id=token_id,
            host_id=UUID(data["host"]),
            host=dict(form.fields["host"].choices)[data["host"]],  # type: ignore[attr-defined]  # a ChoiceField
            by=meta_of(actor, data["token"]),
            now=now,
        )
    text = tokens.write("user", secrets.token_bytes(tokens.ENTROPY_BYTES_MIN))
    position = commands.issue_token(
        default_store(),
        token_id=token_id,
        tenant_id=actor.tenant_id,
        user_id=actor.need_person(),
        written=tokens.read(text),
        title=data["title"],
        scopes=data["scopes"],
        expires_at=now + timedelta(days=int(data["days"])),
        by=meta_of(actor, data["token"]),
        now=now,
    )
    return text, position


@require_POST
def revoke(request: HttpRequest, token_id: UUID) -> HttpResponse:
    """Stop a token."""
    actor = actor_of(request)
    queries.token(actor, token_id)
    whose: UserId | None = None if "operator" in actor.roles else actor.user_id
    position = commands.revoke_token(
        default_store(),
        token_id=TokenId(token_id),
        tenant_id=actor.tenant_id,
        user_id=whose,
        by=meta_of(actor),
        now=timezone.now(),
    )
    return done(request, "/settings", position, "The token no longer works.")


def _context(
    request: HttpRequest, actor: Actor, form: TokenForm, host_form: HostTokenForm
) -> dict[str, Any]:
    part = part_of(request, queries.tokens(actor).order_by("-issued_at", "token_id"), "tokens")
    uses = queries.last_uses(row.token_id for row in part.rows)
    now = timezone.now()
    return {
        "actor": actor,
        "sees_secrets": actor.may("secrets:read"),
        "sees_leases": actor.may("leases:read"),
        "payments": setup.words() if actor.may("billing:read") else "",
        "form": form,
        "host_form": host_form,
        "has_hosts": bool(host_form.fields["host"].choices),  # type: ignore[attr-defined]  # a ChoiceField
        "tokens": [
            {
                "row": row,
                "used_at": uses.get(row.token_id),
                "state": _state(row.revoked_at, row.expires_at, now),
            }
            for row in part.rows
        ],
        "part": part,
        "roles": sorted(actor.roles),
        "base_url": site_address(request),
    }


def _own_hosts(actor: Actor) -> list[HostRow]:
    """Return the hosts of the visitor's own organisation: the platform sees others' as well."""
    return list(hosts(actor).filter(tenant_id=actor.tenant_id)[:SHOWN_MAX])


def _state(revoked_at: Any, expires_at: Any, now: Any) -> str:
    if revoked_at is not None:
        return "withdrawn"
    return "expired" if expires_at <= now else "active"
