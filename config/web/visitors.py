"""What every page needs to know of its visitor: who acts, for which organisation, in which zone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from http import HTTPStatus

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from config.site.parts.zone import zone_of
from config.web.asking import elsewhere, to_log_in
from config.web.errors import show
from config.wiring import projections
from ledger.access import TENANT_CHOSEN, Actor, actors_of_person
from ledger.access.second_factor import SecondFactorMissing, lacking
from ledger.domain.ids import UserId
from ledger.domain.refusal import Refusal, Unauthenticated
from ledger.eventstore import default_store
from ledger.following import wait_until_read
from ledger.rest.problems import NotReadYet
from ledger.rest.reading import PositionUnreadable, position_of

API = "/api/"
SET_UP = "/accounts/2fa/totp/activate/"
WITHOUT_FACTOR = ("/accounts/", "/docs/")
"""What those may see who have no second factor yet, though their role needs one."""
READ_OWN_WRITES_SECONDS = 3.0
"""How long a page that follows a form waits for the read models to show what the form did."""


LOOK_AGAIN_SECONDS = 2
MAYBE_UNREAD = (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND)


class Visitors:
    """Middleware: put the actor on the request, and turn refusals into pages.

    The API brings its own answer to both questions.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response
        self._read_models = [projection.name for projection in projections()]

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Answer with the visitor's zone active."""
        if request.path.startswith((API, settings.STATIC_URL)):
            return self.get_response(request)
        # What somebody has just written may have made them a member.
        is_behind = not _shows_own_write(request, self._read_models)
        request.is_behind = is_behind  # type: ignore[attr-defined]
        request.read_models = self._read_models  # type: ignore[attr-defined]
        # Read by ledger.access.visits and by config.site.shell.
        request.actor, request.actors = seat(request)  # type: ignore[attr-defined]
        if self._is_kept_out(request):
            messages.warning(request, SecondFactorMissing.message())
            return elsewhere(request, SET_UP)
        with timezone.override(zone_of(request)):
            answer = self.get_response(request)
            return _not_read_yet(request) if is_behind and _lacks(request, answer) else answer

    def _is_kept_out(self, request: HttpRequest) -> bool:
        """Tell if somebody needs a second factor for whatever they may do here, and has none."""
        actor: Actor | None = request.actor  # type: ignore[attr-defined]
        if actor is None or request.path.startswith(WITHOUT_FACTOR):
            return False
        return bool(lacking([(actor.user_id, actor.roles)]))

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Show a refusal that a page did not show in place itself."""
        if not isinstance(exception, Refusal) or request.path.startswith(API):
            return None
        if isinstance(exception, Unauthenticated) and not request.user.is_authenticated:
            return to_log_in(request)
        return show(request, exception)


def seat(request: HttpRequest) -> tuple[Actor | None, list[Actor]]:
    """Return who acts, and as whom the visitor could act."""
    actors = _actors(request)
    return _acting(request, actors), actors


def _actors(request: HttpRequest) -> list[Actor]:
    user = request.user
    return actors_of_person(UserId(user.pk)) if user.is_authenticated else []


def _acting(request: HttpRequest, actors: list[Actor]) -> Actor | None:
    """Return the membership chosen in this session, or the person's first."""
    chosen = request.session.get(TENANT_CHOSEN)
    for actor in actors:
        if str(actor.tenant_id) == chosen:
            return actor
    return actors[0] if actors else None


def _lacks(request: HttpRequest, answer: HttpResponse) -> bool:
    """Tell if a page may be refused only because the rows do not hold its visitor's own write.

    What is not read yet is not missing, and who was just admitted is no stranger.
    """
    return request.method in ("GET", "HEAD") and answer.status_code in MAYBE_UNREAD


def _not_read_yet(request: HttpRequest) -> HttpResponse:
    """Say that what was just done comes, and look again by itself."""
    request.is_behind = False  # type: ignore[attr-defined]  # the whole page says it
    answer = show(request, NotReadYet())
    answer["Refresh"] = str(LOOK_AGAIN_SECONDS)
    return answer


def _shows_own_write(request: HttpRequest, read_models: Sequence[str]) -> bool:
    """Wait until the rows hold what the visitor just did; tell if they do.

    Nobody is waited for who has done nothing: a guest, or whoever names what nobody has written,
    would hold up a thread that others need.
    """
    after = request.GET.get("after")
    if after is None or not request.user.is_authenticated:
        return True
    try:
        position = position_of(after, default_store())
    except PositionUnreadable:
        return True
    return wait_until_read(read_models, position, timeout_seconds=READ_OWN_WRITES_SECONDS)
