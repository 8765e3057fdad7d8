"""The front of the web process: bids and samples go a short way, everything else through Django.

A bid placed by `POST /api/v1/bids` with a token is the request that somebody waits for, and what
agents send and ask comes most often. Django, sessions and a thread of its own cost them ten
times what they do themselves, so they are read here and handled together with those that come at
the same moment (`marketplace/api/many_bids.py`, `metering/api/many_samples.py`). Whatever
is unusual about a request (a cookie, a key used before, a body that is not right, a token that does
not work) goes the ordinary way, which answers it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from functools import lru_cache
from typing import Any

from django.conf import settings
from django.http.request import split_domain_port, validate_host

from config.web.connections import abort_of
from config.web.csp import HEADER, NOT_KEPT, PERMISSIONS, VARIES, policy_of
from ledger.rest.asked import Answer, Asked
from ledger.rest.endpoint import request_id_of
from ledger.rest.gathering import Gathering
from ledger.rest.problems import answer_problem
from ledger.rest.rendering import PlainJson
from marketplace.api.many_bids import place_together
from metering.agent import wire
from metering.api.many_assignments import tell_all
from metering.api.many_samples import take_all

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

PATH = "/api/v1/bids"
METHODS = {PATH: "POST", wire.SAMPLES_PATH: "POST", wire.ASSIGNMENTS_PATH: "GET"}
"""By which method a path goes a short way."""
JSON = (b"application/json", b"application/json; charset=utf-8")
PLAIN = frozenset(
    b"host user-agent accept accept-encoding accept-language connection keep-alive content-type"
    b" content-length transfer-encoding authorization x-request-id x-forwarded-proto"
    b" x-forwarded-for idempotency-key".split()
)
"""Headers that a plain request may have. One with others goes the ordinary way."""


class Front:
    """An ASGI application before another one."""

    def __init__(self, ordinary: App) -> None:
        self._ordinary = ordinary
        self._ways = {
            PATH: Gathering[Asked, Answer | None](place_together, name="bids"),
            wire.SAMPLES_PATH: Gathering[Asked, Answer | None](take_all, name="samples"),
            wire.ASSIGNMENTS_PATH: Gathering[Asked, Answer | None](tell_all, name="assignments"),
        }

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer a request."""
        headers = _plain(scope)
        if headers is None:
            await self._ordinary(scope, receive, send)
            return
        read, body = await _body(receive, settings.ENV.request_bytes_max)
        answer = None
        if body is not None:
            answer = await self._answer(headers, body, scope)
        if answer is None:
            await self._ordinary(scope, _again(read, receive), send)
            return
        secure = _is_secure(scope, headers)
        about = {**_standing(headers[b"host"].decode("latin-1"), secure), **answer.headers}
        about["Content-Length"] = str(len(answer.content))
        sent = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in about.items()]
        await send({"type": "http.response.start", "status": answer.status, "headers": sent})
        await send({"type": "http.response.body", "body": answer.content})

    async def _answer(
        self, headers: dict[bytes, bytes], body: bytes, scope: MutableMapping[str, Any]
    ) -> Answer | None:
        path = str(scope["path"])
        given = headers.get(b"x-request-id", b"").decode("latin-1")
        token = headers[b"authorization"][len("bearer ") :].decode("latin-1").strip()
        request_id = request_id_of(given)
        key = headers.get(b"idempotency-key")
        named = None if key is None else key.decode("latin-1")
        try:
            asked = Asked(token, body, path, request_id, named)
            return await self._ways[path].ask(
                asked, by=abort_of(scope)
            )  # the same for a connection
        except Exception as failure:
            # It may have been done: so it is not asked for again, as the ordinary way would.
            problem = answer_problem(failure, instance=path, request_id=str(request_id))
            about = {**dict(problem.headers), "X-Request-ID": str(request_id)}
            about["Content-Type"] = str(problem.content_type)
            return Answer(problem.status_code, about, PlainJson().render(problem.data))


def _plain(scope: MutableMapping[str, Any]) -> dict[bytes, bytes] | None:
    """Return the headers of a request that goes a short way and asks for nothing special."""
    if METHODS.get(scope["path"]) != scope["method"] or scope.get("query_string"):
        return None
    headers = dict[bytes, bytes](scope["headers"])
    if len(headers) != len(scope["headers"]) or not headers.keys() <= PLAIN:
        return None
    kind = headers.get(b"content-type", b"").lower()
    fits = (
        headers.get(b"authorization", b"")[:7].lower() == b"bearer "
        and (kind in JSON or (not kind and scope["method"] == "GET"))
        and headers.get(b"accept", b"*/*") in (b"*/*", b"application/json")
        and _is_ours(headers.get(b"host", b"").decode("latin-1"))
    )
    return headers if fits else None


@lru_cache(maxsize=256)
def _is_ours(host: str) -> bool:
    domain, _port = split_domain_port(host)
    return bool(domain) and validate_host(domain, settings.ALLOWED_HOSTS)


async def _body(receive: Receive, most: int) -> tuple[list[Message], bytes | None]:
    """Read a request's body; None for one that is too long or was broken off."""
    read: list[Message] = []
    length = 0
    while True:
        message = await receive()
        read.append(message)
        length += len(message.get("body", b""))
        if message["type"] != "http.request" or length > most:
            return read, None
        if not message.get("more_body", False):
            return read, b"".join(message.get("body", b"") for message in read)


def _again(read: list[Message], receive: Receive) -> Receive:
    """Return what gives again what was read, and then goes on."""
    left = iter(read)

    async def give() -> Message:
        message = next(left, None)
        return await receive() if message is None else message

    return give


def _is_secure(scope: MutableMapping[str, Any], headers: dict[bytes, bytes]) -> bool:
    """Tell if the client came by https, as Django would."""
    told = headers.get(b"x-forwarded-proto")
    if settings.SECURE_PROXY_SSL_HEADER and told is not None:
        return told.decode("latin-1").split(",")[0].strip() == "https"
    return str(scope.get("scheme", "http")) == "https"


@lru_cache(maxsize=256)
def _standing(host: str, secure: bool) -> dict[str, str]:
    """Return the headers that Django's middleware gives every answer."""
    found = {
        HEADER: policy_of(host, secure=secure),
        "Permissions-Policy": PERMISSIONS,
        "Cache-Control": NOT_KEPT,
        "Vary": ", ".join(VARIES),
        "X-Frame-Options": settings.X_FRAME_OPTIONS,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": settings.SECURE_REFERRER_POLICY,
        "Cross-Origin-Opener-Policy": settings.SECURE_CROSS_ORIGIN_OPENER_POLICY,
    }
    if secure and settings.SECURE_HSTS_SECONDS:
        found["Strict-Transport-Security"] = (
            f"max-age={settings.SECURE_HSTS_SECONDS}; includeSubDomains"
        )
    return found
