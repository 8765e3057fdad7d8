"""Organisations as those see them who look after them: units, people, invitations, accounts.

The platform's operators look after all, the operators of an organisation after their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid5

from django import forms
from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from config.site.forms.answers import done, meta_of, page
from config.site.pages.organisations.forms import (
    AccountForm,
    InviteForm,
    OrganisationForm,
    UnitForm,
    tell,
)
from config.site.parts.paging import part_of
from ledger import commands, inviting, queries
from ledger.access import Actor
from ledger.access.visits import actor_of, site_address
from ledger.api.accounts import FundsByPlatformOnly
from ledger.domain.account_ids import funds_account
from ledger.domain.accounts import PAYING_KINDS
from ledger.domain.ids import AccountId, InvitationId, SubscriberId, TenantId
from ledger.domain.parties import tenant_id_of
from ledger.domain.refusal import Forbidden, Refusal
from ledger.eventstore import default_store
from ledger.models import TenantRow

PATH = "/settings/organisations"


def address_of(tenant: TenantRow) -> str:
    """Return the address of an organisation's page."""
    return f"{PATH}/{tenant.tenant_id}"


@require_http_methods(["GET", "HEAD", "POST"])
def index(request: HttpRequest) -> HttpResponse:
    """List all organisations, and set one up; an organisation's own operator sees theirs."""
    actor = actor_of(request)
    actor.need("operator")
    if not actor.is_platform:
        return HttpResponseRedirect(f"{PATH}/{actor.tenant_id}")
    form = OrganisationForm(request.POST or None, initial={"currency": settings.ENV.currency})
    if request.method == "POST" and form.is_valid():
        data, slug = form.cleaned_data, form.cleaned_data["slug"].strip()
        try:
            position = commands.register_tenant(
                default_store(),
                slug=slug,
                title=data["title"],
                currency=data["currency"].strip(),
                by=meta_of(actor, data["token"]),
                now=timezone.now(),
            )
        except Refusal as refused:
            tell(form, refused)
        else:
            said = "The organisation is set up. Give it a unit, and invite its operator."
            return done(request, f"{PATH}/{tenant_id_of(slug)}", position, said)
    rows = queries.tenants(actor).order_by("title", "tenant_id")
    context = {"form": form, "part": part_of(request, rows, "organisations")}
    return page(request, "pages/organisations.html", context, invalid=bool(form.errors))


@require_http_methods(["GET", "HEAD", "POST"])
def one(request: HttpRequest, tenant_id: UUID) -> HttpResponse:
    """Show one organisation; a form sent here sets up a unit, an invitation or an account."""
    actor = actor_of(request)
    tenant = queries.tenant_run_by(actor, tenant_id)
    units = _units(actor, tenant)
    unpaid = _without_account(actor, tenant, units)
    made = _forms(tenant, units, unpaid, None, None)
    which = request.POST.get("do", "")
    if request.method == "POST" and which in _DOES:
        made = _forms(tenant, units, unpaid, which, request)
        form = made[which]
        if form.is_valid():
            try:
                return _DOES[which](request, actor, tenant, form)
            except Refusal as refused:
                if isinstance(refused, Forbidden):
                    raise
                tell(form, refused)
    context = {
        **_shown(request, actor, tenant, units),
        "opens_accounts": actor.has_platform_money and bool(unpaid),
        **{f"{name}_form": made[name] for name in made},
    }
    invalid = any(form.errors for form in made.values())
    return page(request, "pages/organisation.html", context, invalid=invalid)


def _forms(
    tenant: TenantRow,
    units: dict[UUID | None, str],
    unpaid: dict[UUID | None, str],
    which: str | None,
    request: HttpRequest | None,
) -> dict[str, Any]:
    """Return the forms of an organisation's page; `which` holds what was sent."""

    def sent(name: str) -> Any:
        return request.POST if request is not None and name == which else None

    return {
        "unit": UnitForm(sent("unit"), prefix="unit"),
        "invite": InviteForm(sent("invite"), prefix="invite", units=units),
        "account": AccountForm(
            sent("account"),
            prefix="account",
            # A form that is sent twice finds its unit still, and does nothing more.
            units=units if which == "account" else unpaid,
            currency=tenant.currency,
        ),
    }


def _add_unit(
    request: HttpRequest, actor: Actor, tenant: TenantRow, form: UnitForm
) -> HttpResponse:
    data = form.cleaned_data
    position = commands.add_subscriber(
        default_store(),
        tenant_id=TenantId(tenant.tenant_id),
        subscriber_id=SubscriberId(uuid5(data["token"], "subscriber")),
        title=data["title"],
        cost_centre=data["cost_centre"],
        by=meta_of(actor, data["token"]),
        now=timezone.now(),
    )
    return done(request, address_of(tenant), position, f"{data['title']} is set up.")


def _invite(
    request: HttpRequest, actor: Actor, tenant: TenantRow, form: InviteForm
) -> HttpResponse:
    data = form.cleaned_data
    made = inviting.invite(
        tenant,
        inviting.Asked(
            email=data["email"],
            roles=tuple(data["roles"]),
            subscriber_id=form.subscriber_id(),
            life=form.life(),
            mail=form.is_by_mail(),
        ),
        inviter=actor.need_person(),
        site=site_address(request),
        by=meta_of(actor, data["token"]),
        now=timezone.now(),
    )
    if made.link is None:
        said = f"The invitation is on its way to {data['email']}."
        return done(request, address_of(tenant), made.position, said)
    context = {
        "tenant": tenant,
        "email": data["email"],
        "made": made,
        "can_mail": inviting.can_mail(),
        "back": f"{address_of(tenant)}?after={made.position}",
    }
    return page(request, "pages/invitation_made.html", context)


def _open_account(
    request: HttpRequest, actor: Actor, tenant: TenantRow, form: AccountForm
) -> HttpResponse:
    if not actor.has_platform_money:
        raise FundsByPlatformOnly()
    data = form.cleaned_data
    unit_id = SubscriberId(UUID(data["unit"]))
    overdraft, choices = data["overdraft"], form.fields["unit"]
    assert isinstance(choices, forms.ChoiceField)
    title = dict(queries.subscribers(actor, tenant.tenant_id).values_list("pk", "title"))[unit_id]
    position = commands.open_account(
        default_store(),
        account_id=funds_account(unit_id, tenant.currency),
        tenant_id=TenantId(tenant.tenant_id),
        subscriber_id=unit_id,
        kind=data["kind"],
        title=title,
        currency=tenant.currency,
        overdraft_nanos=None if overdraft is None else overdraft.nanos,
        by=meta_of(actor, data["token"]),
        now=timezone.now(),
    )
    return done(request, address_of(tenant), position, f"The account of {title} is open.")


_DOES: dict[str, Callable[[HttpRequest, Actor, TenantRow, Any], HttpResponse]] = {
    "unit": _add_unit,
    "invite": _invite,
    "account": _open_account,
}


@require_POST
def revoke(request: HttpRequest, tenant_id: UUID, invitation_id: UUID) -> HttpResponse:
    """Take an invitation back."""
    actor = actor_of(request)
    tenant = queries.tenant_run_by(actor, tenant_id)
    position = commands.revoke_invitation(
        default_store(),
        tenant_id=TenantId(tenant.tenant_id),
        invitation_id=InvitationId(invitation_id),
        by=meta_of(actor),
        now=timezone.now(),
    )
    return done(request, address_of(tenant), position, "The link works no more.")


def _units(actor: Actor, tenant: TenantRow) -> dict[UUID | None, str]:
    rows = queries.subscribers(actor, tenant.tenant_id).order_by("title", "subscriber_id")
    return dict(rows.values_list("subscriber_id", "title"))


def _without_account(
    actor: Actor, tenant: TenantRow, units: dict[UUID | None, str]
) -> dict[UUID | None, str]:
    """Return the units that cannot pay for a bid yet."""
    paying = {funds_account(SubscriberId(unit), tenant.currency): unit for unit in units if unit}
    opened = queries.accounts(actor).filter(pk__in=paying).values_list("pk", flat=True)
    have = {paying[AccountId(account)] for account in opened}
    return {unit: title for unit, title in units.items() if unit not in have}


def _shown(
    request: HttpRequest, actor: Actor, tenant: TenantRow, units: dict[UUID | None, str]
) -> dict[str, Any]:
    now = timezone.now()
    tenant_id = tenant.tenant_id
    members = part_of(
        request, queries.members(actor, tenant_id).order_by("admitted_at", "member_id"), "members"
    )
    invitations = part_of(
        request,
        queries.invitations(actor, tenant_id).order_by("-invited_at", "invitation_id"),
        "invitations",
    )
    people = queries.people(
        [*(row.user_id for row in members.rows), *(each.user_id for each in invitations.rows)]
    )
    accounts = queries.accounts(actor).filter(tenant_id=tenant_id).exclude(kind="")
    return {
        "tenant": tenant,
        "actor": actor,
        "units": part_of(
            request, queries.subscribers(actor, tenant_id).order_by("cost_centre"), "units"
        ),
        "members_part": members,
        "members": [
            {"row": row, "person": people.get(row.user_id), "unit": units.get(row.subscriber_id)}
            for row in members.rows
        ],
        "invitations_part": invitations,
        "invitations": [
            {
                "row": row,
                "person": people.get(row.user_id),
                "unit": units.get(row.subscriber_id),
                "state": queries.state_of_invitation(row, now=now),
            }
            for row in invitations.rows
        ],
        "accounts": part_of(request, accounts.order_by("kind", "title", "account_id"), "accounts"),
        "paying": PAYING_KINDS,
        "can_mail": inviting.can_mail(),
    }
