"""How a request proves who asks: a bearer token, or the session of a page with its CSRF token."""

from __future__ import annotations

from django.contrib.auth.models import AnonymousUser
from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication, CSRFCheck
from rest_framework.request import Request

from ledger.access import TENANT_CHOSEN, Actor, actor_of_person, actor_of_token
from ledger.access.proofs import TokenNotKnown
from ledger.access.second_factor import SecondFactorMissing, lacking
from ledger.access.visits import NoMembership
from ledger.domain.ids import UserId
from ledger.domain.refusal import Forbidden, Unauthenticated
from ledger.eventstore import default_store
from ledger.models import Person
from ledger.rest.problems import NotReadYet
from ledger.rest.reading import catch_up

SAFE_METHODS = ("GET", "HEAD")
TOKENS = ("ledger.tokens", "ledger.parties")
CATCH_UP_SECONDS = 1.0
"""Shorter than for somebody whom we know."""


class NotSignedIn(Unauthenticated):
    """Say who you are: send `Authorization: Bearer <token>`.

    Make a token on the settings page.
    """


class SchemeUnknown(Unauthenticated):
    """The Authorization header must read `Bearer <token>`."""


class CsrfTokenMissing(Forbidden):
    """A request made with a session must carry the page's CSRF token.

    Reload the page and try again, or use an API token.
    """


class BearerToken(BaseAuthentication):
    """`Authorization: Bearer offp_…`."""

    def authenticate(self, request: Request) -> tuple[Person | None, Actor] | None:
        """Return the token's actor, None where no header is sent."""
        header = request.headers.get("Authorization")
        if header is None:
            return None
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer":
            raise SchemeUnknown()
        try:
            return None, actor_of_token(token.strip(), now=timezone.now())
        except TokenNotKnown:
            # It may have been made a moment ago: its row follows the answer that gave it away.
            store = default_store()
            has_read = catch_up(TOKENS, store, timeout_seconds=CATCH_UP_SECONDS)
            try:
                return None, actor_of_token(token.strip(), now=timezone.now())
            except TokenNotKnown as unknown:
                if has_read:
                    raise
                raise NotReadYet(after=store.head()) from unknown


class PageSession(BaseAuthentication):
    """The session cookie of a signed-in person."""

    def authenticate(self, request: Request) -> tuple[Person, Actor] | None:
        """Return the actor of the tenant chosen in the session, None where nobody signed in."""
        asked = request._request
        person = getattr(asked, "user", AnonymousUser())
        if not isinstance(person, Person) or not person.is_active:
            return None
        if request.method not in SAFE_METHODS:
            _check_csrf(request)
        actor = actor_of_person(UserId(person.id), tenant_id=asked.session.get(TENANT_CHOSEN))
        if actor is None:
            raise NoMembership()
        if lacking([(actor.user_id, actor.roles)]):
            raise SecondFactorMissing()
        return person, actor


def _check_csrf(request: Request) -> None:
    check = CSRFCheck(lambda _request: None)  # type: ignore[arg-type]  # never called
    check.process_request(request._request)
    if check.process_view(request._request, None, (), {}):  # type: ignore[arg-type]
        raise CsrfTokenMissing()


class BearerTokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """How the schema describes tokens."""

    target_class = BearerToken
    name = "token"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        """Return the scheme."""
        return {"type": "http", "scheme": "bearer", "bearerFormat": "offp_<kind>_<random>_<check>"}


class PageSessionScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """How the schema describes sessions."""

    target_class = PageSession
    name = "session"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        """Return the scheme."""
        return {"type": "apiKey", "in": "cookie", "name": "sessionid"}
