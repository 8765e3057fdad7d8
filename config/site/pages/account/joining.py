"""Joining by an invitation's link: a person of their own, or the log-in that they have already."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django import forms
from django.conf import settings
from django.contrib.auth import login
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_safe

from config.site.forms.answers import done, page
from ledger import inviting, queries
from ledger.access import TENANT_CHOSEN
from ledger.domain.ids import TenantId
from ledger.domain.invitations import (
    InvitationExpired,
    InvitationForAnother,
    InvitationTakenBack,
    InvitationUnknown,
    InvitationUsed,
)
from ledger.eventstore.port import Position
from ledger.models import InvitationRow, Person, TenantRow
from ledger.signin import BACKEND, PasswordTooWeak

PASSWORD_LENGTH_MAX = 4_096
OPENED = "invitation"
"""Key of the session under which the invitation is kept whose link was opened."""


class JoinForm(forms.Form):
    """What a new person says of themselves."""

    title = forms.CharField(label="Your name", max_length=120)
    password = forms.CharField(
        label="Password",
        max_length=PASSWORD_LENGTH_MAX,
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )
    again = forms.CharField(
        label="Password again",
        max_length=PASSWORD_LENGTH_MAX,
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )

    def clean(self) -> dict[str, Any]:
        """Compare the two."""
        data = super().clean() or {}
        if data.get("password") and data.get("again") and data["password"] != data["again"]:
            self.add_error("again", "The two passwords differ.")
        return data


@never_cache
@require_safe
def open_link(request: HttpRequest, secret: str) -> HttpResponse:
    """Remember which link was opened, and go where its secret stands in no address any more."""
    invitation, _ = inviting.invitation_at(secret)
    _need_open(invitation)
    request.session[OPENED] = str(invitation.invitation_id)
    return HttpResponseRedirect(inviting.PATH)


@sensitive_post_parameters()
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def join(request: HttpRequest) -> HttpResponse:
    """Show what the link that was opened invites to; sent, let the person in."""
    invitation, tenant = _opened(request)
    _need_open(invitation)
    person = inviting.invited_person(invitation)
    user = request.user
    if isinstance(user, Person):
        if user.pk != person.pk:
            raise InvitationForAnother()
        if request.method == "POST":
            return _welcome(request, tenant, inviting.join_as(user, invitation, now=timezone.now()))
        return _show(request, invitation, tenant, person, form=None)
    if inviting.must_sign_in(person, TenantId(tenant.tenant_id)):
        if request.method == "POST":
            raise inviting.SignInToAccept()
        return _show(request, invitation, tenant, person, form=None)
    form = JoinForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        data = form.cleaned_data
        try:
            person, position = inviting.join_with_password(
                invitation, title=data["title"], password=data["password"], now=timezone.now()
            )
        except PasswordTooWeak as weak:
            reasons = weak.details["reasons"]
            assert isinstance(reasons, list)
            form.add_error("password", reasons)
        else:
            login(request, person, backend=BACKEND)
            return _welcome(request, tenant, position)
    return _show(request, invitation, tenant, person, form=form)


def _opened(request: HttpRequest) -> tuple[InvitationRow, TenantRow]:
    """Return the invitation whose link this visitor opened. Raises: InvitationUnknown."""
    opened = request.session.get(OPENED)
    if not isinstance(opened, str):
        raise InvitationUnknown()
    return queries.invitation_of_link(invitation_id=UUID(opened))


def _need_open(invitation: InvitationRow) -> None:
    """Say at once, before anything is typed, that a link lets nobody in any more."""
    match queries.state_of_invitation(invitation, now=timezone.now()):
        case "accepted":
            raise InvitationUsed()
        case "revoked":
            raise InvitationTakenBack()
        case "expired":
            raise InvitationExpired(expires_at=invitation.expires_at)


def _show(
    request: HttpRequest,
    invitation: InvitationRow,
    tenant: TenantRow,
    person: Person,
    *,
    form: JoinForm | None,
) -> HttpResponse:
    back = urlencode({"next": request.path})
    context = {
        "invitation": invitation,
        "tenant": tenant,
        "person": person,
        "form": form,
        "is_signed_in": request.user.is_authenticated,
        "sign_in": f"{settings.LOGIN_URL}?{back}",
        "single_signon": bool(settings.ENV.oidc_issuer_url),
    }
    invalid = form is not None and bool(form.errors)
    return page(request, "pages/join.html", context, invalid=invalid)


def _welcome(request: HttpRequest, tenant: TenantRow, position: Position) -> HttpResponse:
    request.session.pop(OPENED, None)
    request.session[TENANT_CHOSEN] = str(tenant.tenant_id)
    return done(request, "/", position, f"Welcome to {tenant.title}.")
