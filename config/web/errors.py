"""What goes wrong, as people and programs meet it: a problem under /api/, a page of ours elsewhere.

A part of a page gets a line of text and no page: htmx would put the whole page into the part.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from django.conf import settings
from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.http.request import UnreadablePostError
from django.template.loader import render_to_string

from config.web.asking import asks_for_part, page_asked_from, path_here
from config.web.csp import HEADER, policy_of
from ledger.domain.refusal import Forbidden, Refusal, Unknown
from ledger.rest.problems import (
    MEDIA_TYPE,
    RETRY_AFTER_SECONDS,
    StoreBusy,
    TooLarge,
    Unexpected,
    problem_of,
)

API_PREFIX = "/api/"
FIELDS_KEPT_MAX = 200
SECRET_WORDS = ("password", "secret", "token", "code")
"""A field with one of these in its name is not written into a page to be sent again."""
NO_SECRETS = frozenset({"token"})
"""The field that makes a form that is sent twice do its work once."""
RETRY = {"Retry-After": str(RETRY_AFTER_SECONDS)}


class RequestMalformed(Refusal):
    """The request cannot be understood: its address, a header or its size is not acceptable."""

    status = 400


class NameUnknown(Refusal):
    """This site does not go by the name that the request was sent to.

    An operator can add the name: OFFPEAK_BASE_URL, or OFFPEAK_ALLOWED_HOSTS for more than one.
    """

    status = 400


class PageUnknown(Unknown):
    """There is no page at this address.

    It may have been mistyped, or what it showed is not there any more.
    """


class PageForbidden(Forbidden):
    """You may not open this page.

    Another role of your organisation may; the settings page says which ones you have.
    """


class TooManyTries(Refusal):
    """Too many tries in a short time.

    Wait a few minutes, then try once more.
    """

    status = 429


class MethodNotTaken(Refusal):
    """This address does something when a form is sent to it; there is nothing to look at.

    Go back to the page that the form is on.
    """

    status = 405


class FormOutdated(Forbidden):
    """Nothing was done: the form was made before you last signed in or out in this browser.

    This protects you from forms that other sites send in your name.
    """


class FormForeign(Forbidden):
    """Nothing was done: the form was not sent from a page of this site, or without cookies.

    Allow cookies for this site, open its page again, and send the form from there.
    """


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer an address that no route has."""
    if request.path.startswith(API_PREFIX):
        return _problem(request, Http404())
    return show(request, exception if isinstance(exception, Refusal) else PageUnknown())


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer what a page's rules forbid."""
    if request.path.startswith(API_PREFIX):
        return _problem(request, PermissionDenied())
    return show(request, PageForbidden())


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer what looks like an attack, or is too large to be read."""
    failure = TooLarge() if isinstance(exception, RequestDataTooBig) else RequestMalformed()
    if request.path.startswith(API_PREFIX):
        return _problem(request, failure)
    return show(request, failure, alone=True)


def server_error(request: HttpRequest) -> HttpResponse:
    """Answer a failure of ours, which Django has logged; the store's absence is told as such."""
    failure = sys.exc_info()[1]
    if not isinstance(failure, Exception):
        failure = Unexpected()
    if request.path.startswith(API_PREFIX):
        return _problem(request, failure)
    told = problem_of(failure, instance=request.path, request_id="")
    refusal: Refusal = Unexpected()
    if isinstance(failure, UnreadablePostError):
        refusal = RequestMalformed()
    elif told["status"] == HTTPStatus.SERVICE_UNAVAILABLE:
        refusal = StoreBusy()
    # Alone: what failed may be what the frame of a page asks for.
    return show(request, refusal, alone=True)


def too_many_tries(request: HttpRequest) -> HttpResponse:
    """Answer where the log-in's own limits are passed: allauth looks for `handler429`."""
    return show(request, TooManyTries())


def unknown_name(request: HttpRequest) -> HttpResponse:
    """Answer a request that was sent to a name which is not ours."""
    refusal = NameUnknown()
    answer = (
        _problem(request, refusal)
        if request.path.startswith(API_PREFIX)
        else show(request, refusal, alone=True)
    )
    # The policy of the ordinary way asks for the name.
    answer[HEADER] = policy_of("localhost", secure=request.is_secure())
    return answer


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Answer a form whose token is not the session's: CSRF_FAILURE_VIEW.

    A form of our own page that is older than the last log-in can be sent again from here, by a
    second click of the person who now sees as whom: nothing that was typed is lost.
    """
    if not _is_from_here(request):
        return show(request, FormForeign())
    signs_in = request.path == settings.LOGIN_URL
    if signs_in and request.user.is_authenticated:
        # A second tab did it already: go where this one wanted to.
        return HttpResponseRedirect(path_here(request, request.POST.get("next", "")))
    again = () if asks_for_part(request) else _fields_to_keep(request)
    back = settings.LOGIN_URL if signs_in else page_asked_from(request)
    return show(request, FormOutdated(), again=again, action=request.get_full_path(), back=back)


def pages_for_bare_answers(
    get_response: Callable[[HttpRequest], HttpResponse],
) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware: give a page to what Django and its decorators answer without a body, as 405."""

    def answer(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        bare = response.status_code == HTTPStatus.METHOD_NOT_ALLOWED and not response.content
        if not bare or request.path.startswith(API_PREFIX):
            return response
        page = show(request, MethodNotTaken())
        page["Allow"] = response["Allow"]
        return page

    return answer


def show(
    request: HttpRequest,
    refusal: Refusal,
    *,
    alone: bool = False,
    again: Sequence[tuple[str, str]] = (),
    action: str = "",
    back: str = "",
) -> HttpResponse:
    """Say no as a page, or as a line of text where a part of a page asked.

    alone: without the frame, whose navigation needs the session and the database.
    again, action: the fields of a form that may be sent once more, and where to.
    back: the page to go back to, beside the market's.
    """
    status = refusal.status
    headers = RETRY if status == HTTPStatus.SERVICE_UNAVAILABLE else {}
    context = {
        "refusal": refusal,
        "heading": _heading(status),
        "again": again,
        "action": action,
        "back": back,
    }
    if asks_for_part(request):
        text = render_to_string("shell/refusal_part.html", context)
    elif alone or not hasattr(request, "actor"):
        text = render_to_string("shell/refusal_alone.html", context)
    else:
        text = render_to_string("shell/refusal.html", context, request)
    return HttpResponse(text, status=status, headers=headers)


def _heading(status: int) -> str:
    match status:
        case HTTPStatus.NOT_FOUND:
            return "Not found"
        case HTTPStatus.FORBIDDEN:
            return "Not allowed"
        case HTTPStatus.SERVICE_UNAVAILABLE:
            return "Not available at the moment"
        case HTTPStatus.INTERNAL_SERVER_ERROR:
            return "Something went wrong"
        case _:
            return "That did not work"


def _is_from_here(request: HttpRequest) -> bool:
    """Tell if a page of this site sent the form, by what the browser says of its origin."""
    origin = urlsplit(request.META.get("HTTP_ORIGIN", ""))
    if not origin.netloc or settings.CSRF_COOKIE_NAME not in request.COOKIES:
        return False
    return origin.netloc in {request.get_host(), urlsplit(settings.ENV.base_url).netloc}


def _fields_to_keep(request: HttpRequest) -> Sequence[tuple[str, str]]:
    """Return the fields of a form that may be shown to be sent again; none where one may not."""
    fields = [
        (name, value)
        for name, values in request.POST.lists()
        for value in values
        if name != "csrfmiddlewaretoken"
    ]
    names = {name.lower() for name, _ in fields} - NO_SECRETS
    secret = any(word in name for name in names for word in SECRET_WORDS)
    return () if secret or len(fields) > FIELDS_KEPT_MAX or request.FILES else fields


def _problem(request: HttpRequest, failure: Exception) -> HttpResponse:
    problem: dict[str, Any] = dict(
        problem_of(failure, instance=request.path, request_id=str(uuid4()))
    )
    headers = RETRY if problem["status"] == HTTPStatus.SERVICE_UNAVAILABLE else {}
    status = problem["status"]
    return JsonResponse(problem, status=status, content_type=MEDIA_TYPE, headers=headers)
