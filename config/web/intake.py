"""Requests are read whole before anybody works on them, and answers sent after.

A thread works for a request from its last byte in to its last byte out of the application; how
slow a client sends and reads costs no thread, only the memory of what it may send. Whoever sends
a body slowly is asked first who they are: a stranger may send little, and not for long; to the API
a stranger sends nothing at all.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http import HTTPStatus
from importlib import import_module
from typing import Any

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.db import connection
from django.http import parse_cookie
from django.utils import timezone
from rest_framework.renderers import JSONRenderer

from config.web.application import App, Message, Receive, Send
from config.web.connections import abort_of
from ledger.access import actor_of_token
from ledger.domain.refusal import Refusal
from ledger.rest.endpoint import request_id_of
from ledger.rest.problems import TooLarge, answer_problem
from ledger.rest.proving import NotSignedIn, SchemeUnknown

API = "/api/"
BLOBS = "/blobs/"
AT_ONCE_SECONDS = 0.25
"""How long a body may take that is read without asking whose it is: most come with their head."""
STRANGER_SECONDS = 10.0
STRANGER_BYTES_MAX = 65_536
"""More than any form that somebody fills in who has not signed in."""
STRANGERS_MAX = 1_000
"""So many bodies of strangers are waited for at once; the oldest makes room."""
KNOWN_SECONDS = 60.0
SEND_SECONDS = 60.0
SEND_BYTES_PER_SECOND_MIN = 20_000
"""A client may keep us waiting for SEND_SECONDS, and as much longer as it read at this rate."""
PART_BYTES = 65_536
WAITING_BYTES_MAX = 16_000_000
"""Of an answer that is worked on faster than its client reads; then the work waits too."""
REST_SECONDS = 2.0
REST_BYTES_MAX = 16_000_000
"""What is read and thrown away of a body that is refused, so that the client reads the refusal."""
PROVERS = 2


class BodyTooSlow(Refusal):
    """The request's body did not arrive in time.

    Send it again, in one go.
    """

    status = 408


class Intake:
    """An ASGI application before another one: reads bodies, within bounds of size and time."""

    def __init__(self, ordinary: App) -> None:
        self._ordinary = ordinary
        self._provers = ThreadPoolExecutor(PROVERS, thread_name_prefix="provers")
        self._strangers: dict[asyncio.Timeout, None] = {}

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Read the body, then pass the request on."""
        if scope["type"] != "http" or not _has_body(scope):
            await self._ordinary(scope, receive, send)
            return
        try:
            body = await self._read(scope, receive)
        except Exception as refused:  # answered as a problem; a fault is logged there
            await refuse(scope, receive, send, refused)
            return
        if body is not None:
            await self._ordinary(scope, _again(body, receive), send)

    async def _read(self, scope: MutableMapping[str, Any], receive: Receive) -> bytes | None:
        """Return the body; None where the client has gone.

        Raises: TooLarge, BodyTooSlow, or why it is not known who asks.
        """
        most = settings.ENV.request_bytes_max
        told = _length(scope)
        if told > most:
            raise TooLarge()
        body = _Body(receive)
        if _header(scope, b"expect") is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(AT_ONCE_SECONDS):
                    await body.read(STRANGER_BYTES_MAX)
        if not body.ended or len(body.read_already) > STRANGER_BYTES_MAX:
            await self._read_on(scope, body, told, most)
        return None if body.broken_off else bytes(body.read_already)

    async def _read_on(
        self, scope: MutableMapping[str, Any], body: _Body, told: int, most: int
    ) -> None:
        """Read the rest of a body, once it is known how much of it, and for how long."""
        loop = asyncio.get_running_loop()
        if await loop.run_in_executor(self._provers, _is_known, scope):
            await _read_in_time(body, most, asyncio.timeout(KNOWN_SECONDS))
            return
        if max(told, len(body.read_already)) > STRANGER_BYTES_MAX:
            raise TooLarge()
        limit = asyncio.timeout(STRANGER_SECONDS)
        if len(self._strangers) >= STRANGERS_MAX:
            next(iter(self._strangers)).reschedule(0)
        try:
            await _read_in_time(body, STRANGER_BYTES_MAX, limit, among=self._strangers)
        finally:
            self._strangers.pop(limit, None)


class _Body:
    """A request's body as far as it has come."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.read_already = bytearray()
        self.ended = False
        self.broken_off = False

    async def read(self, most: int) -> None:
        """Read until it ends, or is longer than `most`."""
        while not self.ended and len(self.read_already) <= most:
            message = await self._receive()
            self.broken_off = message["type"] != "http.request"
            self.read_already += message.get("body", b"")
            self.ended = self.broken_off or not message.get("more_body", False)


async def _read_in_time(
    body: _Body,
    most: int,
    limit: asyncio.Timeout,
    among: dict[asyncio.Timeout, None] | None = None,
) -> None:
    try:
        async with limit:
            if among is not None:
                among[limit] = None
            await body.read(most)
    except TimeoutError:
        raise BodyTooSlow() from None
    if len(body.read_already) > most:
        raise TooLarge()


def _is_known(scope: MutableMapping[str, Any]) -> bool:
    """Tell if the request names somebody we know. Runs in a thread.

    Raises: for the API, why it is not known who asks.
    """
    try:
        header = _header(scope, b"authorization")
        if header is not None and scope["path"].startswith(API):
            scheme, _, token = header.partition(" ")
            if scheme.lower() != "bearer":
                raise SchemeUnknown()
            actor_of_token(token.strip(), now=timezone.now())
            return True
        if _is_signed_in(_header(scope, b"cookie") or ""):
            return True
    finally:
        connection.close()  # asked rarely: a connection that waits for the next would be one more
    if scope["path"].startswith(API):
        raise NotSignedIn()
    return False


def _is_signed_in(cookie: str) -> bool:
    key = parse_cookie(cookie).get(settings.SESSION_COOKIE_NAME)
    store = import_module(settings.SESSION_ENGINE).SessionStore
    return bool(key) and SESSION_KEY in store(key)


async def refuse(
    scope: MutableMapping[str, Any], receive: Receive, send: Send, refused: Exception
) -> None:
    """Answer, and take the rest of the body as far as that goes, so that the answer is read."""
    path = str(scope["path"])
    request_id = str(request_id_of(_header(scope, b"x-request-id")))
    problem = answer_problem(refused, instance=path, request_id=request_id)
    if path.startswith((API, BLOBS)):
        content, kind = JSONRenderer().render(problem.data), str(problem.content_type)
    else:
        words = problem.data.get("detail") or HTTPStatus(problem.status_code).phrase
        content, kind = f"{words}\n".encode(), "text/plain; charset=utf-8"
    headers = {
        **dict(problem.headers),
        "X-Request-ID": request_id,
        "Content-Type": kind,
        "Content-Length": str(len(content)),
        "Cache-Control": "no-store",
        "Connection": "close",
    }
    sent = [
        (name.lower().encode("latin-1"), str(value).encode("latin-1"))
        for name, value in headers.items()
    ]
    await send({"type": "http.response.start", "status": problem.status_code, "headers": sent})
    await send({"type": "http.response.body", "body": content, "more_body": True})
    with suppress(TimeoutError):
        async with asyncio.timeout(REST_SECONDS):
            left, more = REST_BYTES_MAX, True
            while more and left > 0:
                message = await receive()
                left -= len(message.get("body", b""))
                more = message["type"] == "http.request" and message.get("more_body", False)
    await send({"type": "http.response.body", "body": b""})


def _again(body: bytes, receive: Receive) -> Receive:
    """Return what gives the body at once, and then what else the client says."""
    given = False

    async def give() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return give


def _has_body(scope: MutableMapping[str, Any]) -> bool:
    return _header(scope, b"transfer-encoding") is not None or _length(scope) > 0


def _length(scope: MutableMapping[str, Any]) -> int:
    text = _header(scope, b"content-length") or "0"
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


def _header(scope: MutableMapping[str, Any], name: bytes) -> str | None:
    for each, value in scope["headers"]:
        if each == name:
            return bytes(value).decode("latin-1")
    return None


class Outlet:
    """An ASGI application before one of threads: takes its answers as fast as they are made."""

    def __init__(self, ordinary: App) -> None:
        self._ordinary = ordinary

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Pass the request on; send the answer at the client's pace, but not for ever."""
        if scope["type"] != "http":
            await self._ordinary(scope, receive, send)
            return
        answer = _Answer(send, abort_of(scope))
        sending = asyncio.create_task(answer.send_all())
        try:
            await self._ordinary(scope, receive, answer.take)
            answer.whole()
            await sending
        finally:
            sending.cancel()


class _Answer:
    """What of an answer is not sent yet. abort: ends the connection of a client that reads none."""

    def __init__(self, send: Send, abort: Callable[[], None]) -> None:
        self._send = send
        self._abort = abort
        self._messages: deque[Message | None] = deque()
        self._bytes = 0
        self._more = asyncio.Event()
        self._room = asyncio.Event()
        self._gone = False

    async def take(self, message: Message) -> None:
        """Take a part, at once unless too much waits already. Of one that is given up, nothing."""
        while self._bytes > WAITING_BYTES_MAX and not self._gone:
            self._room.clear()
            await self._room.wait()
        if self._gone:
            return
        self._messages.extend(_in_parts(message))
        self._bytes += len(message.get("body", b""))
        self._more.set()

    def whole(self) -> None:
        """Nothing more comes."""
        self._messages.append(None)
        self._more.set()

    async def send_all(self) -> None:
        """Send part after part, for as long as the client reads at a pace that may be asked for."""
        left = SEND_SECONDS
        while True:
            while not self._messages:
                self._more.clear()
                await self._more.wait()
            message = self._messages.popleft()
            if message is None:
                return
            began = time.monotonic()
            try:
                async with asyncio.timeout(left):
                    await self._send(message)
            except TimeoutError:
                self._gone = True
                self._room.set()
                self._abort()
                return
            length = len(message.get("body", b""))
            left += length / SEND_BYTES_PER_SECOND_MIN - (time.monotonic() - began)
            self._bytes -= length
            self._room.set()


def _in_parts(message: Message) -> list[Message]:
    """Return a message as several that a connection takes one after the other."""
    body, more = message.get("body", b""), message.get("more_body", False)
    if len(body) <= PART_BYTES:
        return [message]
    starts = range(0, len(body), PART_BYTES)
    return [
        {
            "type": message["type"],
            "body": body[start : start + PART_BYTES],
            "more_body": more or start + PART_BYTES < len(body),
        }
        for start in starts
    ]
