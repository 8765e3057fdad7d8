"""Signing in: who a person is, what a page asks of them, and the demo's one-click log-in.

Passwords, one-time codes, TOTP and single sign-on are allauth's; see the settings. A person who
is signed in acts for one tenant at a time, `switch_tenant` says which.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from allauth.account.adapter import DefaultAccountAdapter
from allauth.core.internal import ratelimit
from allauth.mfa.utils import is_mfa_enabled
from django.conf import settings
from django.contrib.auth import login
from django.contrib.auth.hashers import make_password
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST

from ledger.access import TENANT_CHOSEN, Actor, actors_of_person
from ledger.access.visits import actor_of, is_from_this_machine
from ledger.domain.events import Role
from ledger.domain.ids import UserId
from ledger.domain.parties import TenantUnknown
from ledger.domain.refusal import Invalid
from ledger.models import Person

P = ParamSpec("P")
Page = Callable[Concatenate[HttpRequest, P], HttpResponse]

FAILED_ANYWHERE = "100/h/key"
"""Wrong passwords for one account, wherever they come from."""

BACKEND = "allauth.account.auth_backends.AuthenticationBackend"


def page(*roles: Role) -> Callable[[Page[P]], Page[P]]:
    """Open a page only to a signed-in member with one of these roles; none named: any member.

    Who is not signed in is sent to the log-in page, who may not see it gets the page that says
    so: the site's middleware does both.
    """

    def opened(view: Page[P]) -> Page[P]:
        @wraps(view)
        def checked(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
            actor = actor_of(request)
            if roles:
                actor.need(*roles)
            return view(request, *args, **kwargs)

        return checked

    return opened


def person_of(email: str) -> Person:
    """Return the person with this e-mail address; an unknown one becomes a person at once.

    They have no password yet: they set one through the mail, or come by single sign-on.
    Raises: EmailUnreadable.
    """
    try:
        validate_email(email.strip())
    except ValidationError as unreadable:
        raise EmailUnreadable(email=email[:254]) from unreadable
    person, _made = Person.objects.get_or_create(
        email=email.strip().lower(), defaults={"password": make_password(None)}
    )
    return person


class EmailUnreadable(Invalid):
    """That is not an e-mail address."""


class PasswordTooWeak(Invalid):
    """That password is too easy to guess.

    `reasons` tells why.
    """


def set_password(person: Person, password: str) -> None:
    """Give a person a password.

    Raises: PasswordTooWeak.
    """
    try:
        validate_password(password, person)
    except ValidationError as weak:
        raise PasswordTooWeak(reasons=weak.messages) from weak
    person.set_password(password)
    person.save(update_fields=["password"])


class ByInvitation(DefaultAccountAdapter):  # type: ignore[misc]  # allauth has no types
    """Nobody makes an account of their own accord: an operator admits an address first.

    Single sign-on asks the same question, so it lets in who was admitted and nobody else.
    """

    def _get_login_attempts_cache_key(self, request: HttpRequest, **credentials: Any) -> str:
        """Count wrong passwords for an account by who tries: nobody else is kept out of it."""
        account = super()._get_login_attempts_cache_key(request, **credentials)
        return f"{account} from {ratelimit.get_ip(request)}"

    def pre_authenticate(self, request: HttpRequest, **credentials: Any) -> None:
        """Refuse to guess on, also from many addresses, though by then many will have tried."""
        super().pre_authenticate(request, **credentials)
        account = super()._get_login_attempts_cache_key(request, **credentials)
        self._of_account = ratelimit.consume(
            request,
            app="allauth.account",
            action="login_failed_anywhere",
            config={"login_failed_anywhere": FAILED_ANYWHERE},
            key=account,
        )
        if not self._of_account:
            raise self.validation_error("too_many_login_attempts")

    def authenticate(self, request: HttpRequest, **credentials: Any) -> Any:
        """Count only what was wrong."""
        found = super().authenticate(request, **credentials)
        if found is not None and self._of_account:
            self._of_account.rollback()
        return found

    def is_reauthentication_required(self, *, app: str, **about: Any) -> bool:
        """Ask for the password again before what is grave, of whoever has something to answer.

        Who comes by single sign-on only has neither password nor factor, and could never answer.
        """
        person = self.request.user
        can_answer = person.has_usable_password() or is_mfa_enabled(person)
        return can_answer and bool(super().is_reauthentication_required(app=app, **about))

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        """Refuse every sign-up."""
        return False


@require_POST
def switch_tenant(request: HttpRequest) -> HttpResponse:
    """Act for another tenant from now on: form field `tenant_id`.

    Raises: TenantUnknown, also where the person is no member of it.
    """
    wanted = request.POST.get("tenant_id", "")
    mine = [str(actor.tenant_id) for actor in _actors(request)]
    if wanted not in mine:
        raise TenantUnknown()
    request.session[TENANT_CHOSEN] = wanted
    return redirect(_next(request))


@require_POST
def demo_sign_in(request: HttpRequest) -> HttpResponse:
    """Sign in as one of the demo's people without a password: form field `email`.

    There is no such address outside a demo, nor for anybody who is not at the demo's own machine.
    """
    if not settings.ENV.demo or not is_from_this_machine(request):
        raise Http404
    person = Person.objects.filter(
        email=request.POST.get("email", "").lower(), is_active=True, is_demo=True
    ).first()
    if person is None:
        raise Http404
    login(request, person, backend=BACKEND)
    request.session.pop(TENANT_CHOSEN, None)
    return redirect(_next(request))


def demo_people(request: HttpRequest) -> dict[str, Any]:
    """Context processor: `demo_people` on the log-in page of a demo, empty everywhere else."""
    here = settings.ENV.demo and request.path == settings.LOGIN_URL
    if not here or not is_from_this_machine(request):
        return {"demo_people": []}
    people = Person.objects.filter(is_demo=True, is_active=True).order_by("joined_at", "email")
    return {
        "demo_people": [
            {"email": person.email, "title": str(person), "does": _does(person)}
            for person in people
        ]
    }


def _does(person: Person) -> str:
    """Say what a person is, such as `consumer at Ada Labs`."""
    actors = actors_of_person(UserId(person.id))
    return "; ".join(f"{', '.join(sorted(each.roles))} at {each.title}" for each in actors)


def _actors(request: HttpRequest) -> list[Actor]:
    user = request.user
    return actors_of_person(UserId(user.pk)) if isinstance(user, Person) else []


def _next(request: HttpRequest) -> str:
    """Return where the form wants to go, if that is on this site."""
    wanted = request.POST.get("next", "")
    allowed = url_has_allowed_host_and_scheme(
        wanted, {request.get_host()}, require_https=request.is_secure()
    )
    return wanted if allowed else settings.LOGIN_REDIRECT_URL
