"""Every answer that is not a success, as RFC 9457 `application/problem+json`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Any, TypedDict
from uuid import UUID

import structlog
from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.http import Http404
from rest_framework import exceptions
from rest_framework.response import Response

from ledger.domain.refusal import Refusal
from ledger.eventstore.port import EventTooLarge, StoreError, StreamMoved
from ledger.outages import Cause, outage_of
from ledger.rest.fields import MomentField

TYPE_PREFIX = "/docs/problems#"
"""Where each code is explained; relative to the site."""

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_SECONDS = 1

log = structlog.get_logger()


class FieldProblem(TypedDict):
    """What is wrong with one field. pointer: RFC 6901, into the body."""

    pointer: str
    code: str
    detail: str


class Problem(TypedDict, total=False):
    """A problem as sent."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    errors: list[FieldProblem]
    details: dict[str, Any]
    advice: str
    request_id: str


class NotReadYet(Refusal):
    """What you just did is recorded, and cannot be shown yet.

    Nothing is lost: ask again in a moment.
    """

    status = 503


class StoreBusy(Refusal):
    """The book of record cannot be read or written at the moment; `cause` says why.

    Repeat the request with the same Idempotency-Key: it will not be done twice.
    """

    status = 503


WAITS: Mapping[Cause, int] = {"slow": 2, "busy": 1, "hung": 5, "away": 5, "connections": 5}
"""Seconds after which a repeat may go well; what only an operator mends takes longer."""
WAIT_FOR_OPERATOR = 30


class ChangedMeanwhile(Refusal):
    """Others changed the same thing too often while this was being decided.

    Repeat the request.
    """


class TooLarge(Refusal):
    """That is more than one request may carry.

    Send it in several parts.
    """

    status = 413


class TooManyRequests(Refusal):
    """Too many requests: the limit is per token and minute.

    Wait for `retry_after_seconds`, or spread requests more evenly.
    """

    status = 429


class Unexpected(Refusal):
    """Something went wrong on our side; it has been noted.

    Quote the request_id when you report it.
    """

    status = 500


class NotFound(Refusal):
    """There is nothing at this address."""

    status = 404


class BodyInvalid(Refusal):
    """Some fields of the request cannot be accepted.

    `errors` says of each which, by its pointer, and why.
    """

    status = 422


class MethodNotAllowed(Refusal):
    """This address does not take that method.

    The header `Allow` lists those that it takes.
    """

    status = 405


class NotAcceptable(Refusal):
    """The answer cannot be had in the form that `Accept` asks for.

    Ask for application/json, or leave `Accept` out.
    """

    status = 406


class UnsupportedMediaType(Refusal):
    """A body is sent as application/json.

    Say so in `Content-Type`.
    """

    status = 415


def problem_of(failure: Exception, *, instance: str, request_id: str) -> Problem:
    """Say what went wrong in the one shape; an unknown failure says nothing about our inside."""
    problem = _about(failure)
    problem["type"] = TYPE_PREFIX + problem["code"]
    problem["instance"] = instance
    problem["request_id"] = request_id
    return problem


def answer_problem(failure: Exception, *, instance: str, request_id: str) -> Response:
    """Turn whatever a handler raised into its response."""
    problem = problem_of(failure, instance=instance, request_id=request_id)
    if problem["code"] == "store-busy":
        log.warning(
            "request.store-busy", request_id=request_id, path=instance, **problem["details"]
        )
    if problem["code"] == "unexpected":
        log.error("request.failed", request_id=request_id, path=instance, exc_info=failure)
    headers = {}
    if problem["status"] == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="offpeak"'
    wait = problem.get("details", {}).get("retry_after_seconds")
    if problem["status"] in (429, 503) or wait is not None:
        headers["Retry-After"] = str(wait or RETRY_AFTER_SECONDS)
    allow = getattr(failure, "allow", None)
    if allow:
        headers["Allow"] = ", ".join(allow)
    return Response(
        problem,
        status=problem["status"],
        headers=headers,
        content_type=MEDIA_TYPE,
    )


def _about(failure: Exception) -> Problem:
    match failure:
        case Refusal():
            return _of_refusal(failure)
        case EventTooLarge() | RequestDataTooBig():
            return _of_refusal(TooLarge())
        case StreamMoved():
            return _of_refusal(ChangedMeanwhile(retry_after_seconds=RETRY_AFTER_SECONDS))
        case Http404():
            return _plain(404, "not-found", NotFound.message())
        case PermissionDenied():
            return _plain(403, "forbidden", "You may not do that.")
        case exceptions.ValidationError():
            return _of_fields(failure)
        case exceptions.APIException():
            return _of_framework(failure)
        case _:
            return _of_refusal(outage_problem(failure) or Unexpected())


def outage_problem(failure: BaseException | None) -> StoreBusy | None:
    """Return what to say of a failure that only tells that the store cannot do it now.

    None for every other: a fault of ours, or a rule.
    """
    outage = outage_of(failure)
    if outage is None and not isinstance(failure, StoreError):
        return None
    cause: Cause = "away" if outage is None else outage.cause
    wait = WAITS.get(cause, WAIT_FOR_OPERATOR)
    return StoreBusy(cause=cause, retry_after_seconds=wait)


def _of_refusal(refusal: Refusal) -> Problem:
    problem = _plain(refusal.status, refusal.code, refusal.message())
    problem["details"] = {name: plain(value) for name, value in refusal.details.items()}
    problem["advice"] = refusal.advice()
    return problem


def _of_framework(failure: exceptions.APIException) -> Problem:
    detail = failure.detail
    text = str(detail) if isinstance(detail, str) else str(failure.default_detail)
    codes = failure.get_codes()
    code = codes if isinstance(codes, str) else failure.default_code
    return _plain(failure.status_code, code.replace("_", "-"), text)


def _of_fields(failure: exceptions.ValidationError) -> Problem:
    errors = list(field_problems(failure.get_full_details(), ""))
    problem = _plain(422, "body-invalid", BodyInvalid.message())
    problem["errors"] = errors
    return problem


def field_problems(details: Any, pointer: str) -> Iterator[FieldProblem]:
    """Yield what a ValidationError says of each field, by its place in the body."""
    if isinstance(details, Mapping) and isinstance(details.get("message"), str):
        code = str(details["code"]).replace("_", "-")
        yield {"pointer": pointer, "code": code, "detail": str(details["message"])}
    elif isinstance(details, Mapping):
        for name, inner in details.items():
            step = "" if name == "non_field_errors" else "/" + _escaped(str(name))
            yield from field_problems(inner, pointer + step)
    elif isinstance(details, Sequence):
        # A list of messages about one field, or one entry for each item of a list.
        items = not all(isinstance(each.get("message"), str) for each in details)
        for index, inner in enumerate(details):
            yield from field_problems(inner, f"{pointer}/{index}" if items else pointer)


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _plain(status: int, code: str, detail: str) -> Problem:
    return {
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "code": code,
    }


def plain(value: object) -> Any:
    """Turn a figure of a refusal into what JSON can say."""
    match value:
        case None | bool() | int() | str():
            return value
        case datetime():
            return MomentField().to_representation(value)
        case UUID():
            return str(value)
        case Mapping():
            return {str(name): plain(each) for name, each in value.items()}
        case Sequence() | set() | frozenset():
            return [plain(each) for each in value]
        case _:
            return str(value)
