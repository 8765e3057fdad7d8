"""The front of all work: whatever is asked below its domain is answered here, and nowhere else.

Before everything else of the web process, by the request's Host: so no page of work is ever under
the market's own address, and nothing of the market is under the work's.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs

import structlog
from django.conf import settings
from django.db import close_old_connections

from config.web.application import App, Message, Receive, Scope, Send
from config.web.workplaces.exchange import COOKIE, AnswerUnreadable, Header, cookie_of, exchange
from config.web.workplaces.origin import Place, comes_from_itself, is_below, place_of
from config.web.workplaces.sockets import SocketRefused, carry
from config.web.workplaces.stream import NotLetIn, WorkStream
from ledger.domain.refusal import Forbidden, Refusal, Unknown
from ledger.rest.problems import answer_problem
from metering.domain.access import Permit
from metering.domain.work_names import ENTER, OURS
from metering.ingest import tunnels
from metering.ingest.handing_over import (
    Session,
    SessionOver,
    begin_session,
    session_of,
    taken_over,
)
from metering.ingest.tunnels import Holder

LOOKED_SECONDS = 5.0
LOOKED_MAX = 1_000

log = structlog.get_logger()


class NoSuchPlace(Unknown):
    """Nothing is at this address. A port of a lease is opened from the lease's page."""


class FromElsewhere(Forbidden):
    """Another origin has no business here: what changes anything comes from its own pages."""


class Workplaces:
    """An ASGI application before another one."""

    def __init__(self, ordinary: App) -> None:
        self._ordinary = ordinary
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="workplaces")
        self._looked: dict[Permit, tuple[float, str]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer what is asked of work; pass on all else."""
        domain = settings.ENV.work_domain
        kind = scope["type"]
        if not domain or kind not in ("http", "websocket"):
            await self._ordinary(scope, receive, send)
            return
        if not is_below(scope["headers"], domain):
            await self._ordinary(scope, receive, send)
            return
        started = False

        async def tell(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._answer(scope, receive, tell)
        except (Refusal, NotLetIn, AnswerUnreadable, SocketRefused, ConnectionError) as refused:
            if not started:
                await _refuse(kind, send, refused)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers, is_socket = scope["headers"], scope["type"] == "websocket"
        place = place_of(headers, settings.ENV.work_domain)
        if place is None:
            raise NoSuchPlace()
        scheme = "https" if settings.SECURE else "http"
        method = scope.get("method", "GET")
        if scope["path"].startswith(OURS):
            await self._enter(scope, send, place)
            return
        own = f"{scheme}://{place.netloc}"
        if not comes_from_itself(headers, own, method=method, socket=is_socket):
            raise FromElsewhere()
        session = _session(headers, place)
        address = await self._look(session.permit)
        stream = await WorkStream.open(session.permit, address)
        try:
            if is_socket:
                await carry(scope, receive, send, stream, place, scheme=scheme)
            else:
                renewed = [_cookie(session.permit)] if session.is_old else []
                await exchange(scope, receive, send, stream, place, scheme=scheme, more=renewed)
        finally:
            await stream.close()

    async def _enter(self, scope: Scope, send: Send, place: Place) -> None:
        """Change a hand-over for a cookie, and go on without it in the address."""
        if scope["type"] != "http" or scope["path"] != ENTER or scope["method"] != "GET":
            raise NoSuchPlace()
        said = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        [text] = said.get("token", [""])[:1]
        permit = await self._in_thread(lambda: taken_over(text))
        if (permit.lease_id, permit.port) != (place.lease_id, place.port):
            raise SessionOver()
        log.info("work.entered", lease=str(permit.lease_id), port=permit.port)
        headers = [
            (b"location", b"/"),
            _cookie(permit),
            (b"cache-control", b"no-store"),
            (b"referrer-policy", b"no-referrer"),
            (b"content-length", b"0"),
        ]
        await send({"type": "http.response.start", "status": 303, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    async def _look(self, permit: Permit) -> str:
        """Return where the tunnel is, where the permit may be used. Known for a few seconds."""
        now = time.monotonic()
        looked, address = self._looked.get(permit, (0.0, ""))
        if address and now - looked < LOOKED_SECONDS:
            return address
        self._looked.pop(permit, None)
        holder: Holder = await self._in_thread(lambda: tunnels.check_now(permit))
        while len(self._looked) >= LOOKED_MAX:
            with suppress(StopIteration):
                self._looked.pop(next(iter(self._looked)))
        self._looked[permit] = now, holder.address
        return holder.address

    async def _in_thread(self, work: Any) -> Any:
        def alone() -> Any:
            close_old_connections()
            try:
                return work()
            finally:
                close_old_connections()

        return await asyncio.get_running_loop().run_in_executor(self._threads, alone)


def _session(headers: list[Header], place: Place) -> Session:
    """Return whose session a request is of. Raises: SessionOver."""
    session = session_of(cookie_of(headers), idle_seconds=settings.ENV.access_idle_seconds)
    permit = session.permit
    if (permit.lease_id, permit.port) != (place.lease_id, place.port):
        raise SessionOver()  # a page of another work can set cookies here, but not this one's
    return session


def _cookie(permit: Permit) -> Header:
    name, secure = (f"__Host-{COOKIE}", "; Secure") if settings.SECURE else (COOKIE, "")
    text = f"{name}={begin_session(permit)}; Path=/; HttpOnly; SameSite=Lax{secure}"
    return b"set-cookie", text.encode()


async def _refuse(kind: str, send: Send, refused: Exception) -> None:
    if kind == "websocket":
        with suppress(OSError, RuntimeError):
            await send({"type": "websocket.close", "code": 1008})
        return
    if isinstance(refused, NotLetIn):
        status, words = refused.status, str(refused)
    elif isinstance(refused, Refusal):
        problem = answer_problem(refused, instance="", request_id="")
        status, words = problem.status_code, str(problem.data.get("detail") or "")
    else:
        status, words = 502, "What listens at that port of the work gave no answer in HTTP."
    body = f"{words}\n".encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
        (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
