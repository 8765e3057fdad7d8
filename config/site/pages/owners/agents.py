"""The agent of a host: a code by which it gets its token, its tokens, what it said of its GPUs."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from config.site.forms.answers import done, meta_of, page
from ledger import commands
from ledger import queries as parties
from ledger.access import Actor
from ledger.access.visits import actor_of, site_address
from ledger.domain.ids import HostId, TenantId, TokenId
from ledger.domain.refusal import Refusal
from ledger.domain.tokens import TokenUnknown
from ledger.eventstore import default_store
from ledger.eventstore.port import Meta, Position
from ledger.models import TokenRow
from listings import queries
from listings.commands.enrolling import make_enrolment_code
from listings.domain import enrolments
from listings.models import HostRow
from metering.queries.usage import measures_of, said_of_gpus

TOKENS_SHOWN_MAX = 50
EVENTS_SHOWN_MAX = 20


@dataclass(frozen=True, slots=True)
class Code:
    """A code for the agent of a host, as it is shown this once."""

    text: str
    expires_at: datetime
    position: Position


@dataclass(frozen=True, slots=True)
class TokenShown:
    """A token of a host's agent. used_at: None: it was never used."""

    row: TokenRow
    state: str
    used_at: datetime | None


def make_code(*, host_id: HostId, by: Meta, now: datetime) -> Code:
    """Make a code for a host's agent.

    Raises: the refusals of `make_enrolment_code`.
    """
    text = enrolments.write_code(secrets.token_bytes(enrolments.ENTROPY_BYTES_MIN))
    made, position = make_enrolment_code(
        default_store(),
        enrolment_id=enrolments.enrolment_of(text, settings.SECRET_KEY.encode()),
        host_id=host_id,
        by=by,
        now=now,
    )
    return Code(text, made.expires_at, position)


@require_http_methods(["GET", "HEAD", "POST"])
def of_host(request: HttpRequest, host_id: UUID) -> HttpResponse:
    """Show a host's tokens and what its agent said; sent, make a code and show it this once."""
    actor = actor_of(request)
    actor.need("owner", "operator")
    host, code, refusal = _own_host(actor, host_id), None, None
    if request.method == "POST":
        try:
            code = make_code(host_id=HostId(host.host_id), by=meta_of(actor), now=timezone.now())
        except Refusal as refused:
            refusal = refused
    context = {
        "host": host,
        "code": code,
        "tokens": _tokens(actor, host),
        "events": said_of_gpus(actor, host.host_id)[:EVENTS_SHOWN_MAX],
        "measures": sorted(measures_of(actor, host.host_id).items()),
        "base_url": site_address(request),
    }
    return page(request, "pages/host_agent.html", context, refusal=refusal)


@require_POST
def revoke(request: HttpRequest, host_id: UUID, token_id: UUID) -> HttpResponse:
    """Stop a token of a host's agent at once."""
    actor = actor_of(request)
    actor.need("owner", "operator")
    host = _own_host(actor, host_id)
    if not parties.tokens_of_host(actor, host.host_id).filter(pk=token_id).exists():
        raise TokenUnknown(token_id=token_id)
    position = commands.revoke_token(
        default_store(),
        token_id=TokenId(token_id),
        tenant_id=TenantId(host.tenant_id),
        user_id=None,
        by=meta_of(actor),
        now=timezone.now(),
    )
    return done(request, f"/owner/hosts/{host_id}/agent", position, "The token no longer works.")


def _own_host(actor: Actor, host_id: UUID) -> HostRow:
    host = queries.host(actor, host_id)
    if host.tenant_id != actor.tenant_id:
        actor.need_platform()
    return host


def _tokens(actor: Actor, host: HostRow) -> list[TokenShown]:
    rows = list(parties.tokens_of_host(actor, host.host_id)[:TOKENS_SHOWN_MAX])
    uses, now = parties.last_uses(row.token_id for row in rows), timezone.now()
    return [TokenShown(row, _state(row, now), uses.get(row.token_id)) for row in rows]


def _state(row: TokenRow, now: datetime) -> str:
    if row.revoked_at is not None:
        return "withdrawn"
    return "expired" if row.expires_at <= now else "active"
