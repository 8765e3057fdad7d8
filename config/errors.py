"""What Django itself refuses: as a problem under /api/, as a page elsewhere."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.views import defaults

from ledger.domain.refusal import Refusal
from ledger.rest.problems import MEDIA_TYPE, Unexpected, problem_of

API_PREFIX = "/api/"


class RequestMalformed(Refusal):
    """The request cannot be understood: its address, a header or its size is not acceptable."""

    status = 400


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer an address that no route has."""
    if request.path.startswith(API_PREFIX):
        return _problem(request, Http404())
    return defaults.page_not_found(request, exception)


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer what a page's rules forbid."""
    if request.path.startswith(API_PREFIX):
        return _problem(request, PermissionDenied())
    return defaults.permission_denied(request, exception)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer what looks like an attack, or is too large to be read."""
    if request.path.startswith(API_PREFIX):
        return _problem(request, RequestMalformed())
    return defaults.bad_request(request, exception)


def server_error(request: HttpRequest) -> HttpResponse:
    """Answer a failure of ours; Django has logged it."""
    if request.path.startswith(API_PREFIX):
        return _problem(request, Unexpected())
    return defaults.server_error(request)


def _problem(request: HttpRequest, failure: Exception) -> HttpResponse:
    problem: dict[str, Any] = dict(
        problem_of(failure, instance=request.path, request_id=str(uuid4()))
    )
    return JsonResponse(problem, status=problem["status"], content_type=MEDIA_TYPE)
