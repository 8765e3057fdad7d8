"""Before everything else of a web process: what machines ask of it, its clock, and its figures.

A probe must not wait for the database, nor behind whoever waits for it: a process that cannot work
at the moment is not broken, and starting it anew mends nothing. So `/healthz` is answered by the
event loop, and `/readyz` by a thread that does nothing else.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from uuid import uuid4

from django.conf import settings
from django.db import DatabaseError, connections
from django.template.loader import render_to_string

from config.operations.health import readiness
from config.operations.measuring import ANSWERS, RUNNING, SECONDS, kind_of
from config.processes.clock import COMPARED_EVERY_SECONDS, ClockUnsure, clock
from config.web.application import App, Message, Receive, Scope, Send
from ledger.rest.problems import MEDIA_TYPE, problem_of

Readiness = Callable[[], tuple[int, dict[str, object]]]

JSON = "application/json"
UP = {"status": "up"}
SILENT = {"status": "not ready", "checks": {"database": "does not answer"}}
READY_SECONDS_MAX = 5.0
READY_KEPT_SECONDS = 1.0
"""However many ask, the database is asked once a second."""
ANYWAY = ("/healthz", "/readyz", "/metrics")
"""What is answered whatever the clock says."""
RETRY_SECONDS = 30


class Probes:
    """An ASGI application before another one."""

    def __init__(self, ordinary: App, *, ready: Readiness = readiness) -> None:
        self._ordinary = ordinary
        self._ready = Ready(ready)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a probe whatever its Host, since it is asked by address; pass on all else."""
        if scope["type"] != "http":
            await self._ordinary(scope, receive, send)
            return
        kind, began, status = kind_of(scope["path"]), time.monotonic(), 500

        async def tell(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        RUNNING.labels(kind).inc()
        try:
            await self._answer(scope, receive, tell)
        finally:
            RUNNING.labels(kind).dec()
            SECONDS.labels(kind).observe(time.monotonic() - began)
            ANSWERS.labels(kind, f"{status // 100}xx").inc()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, bare = scope["path"], scope["method"] == "HEAD"
        if path == "/healthz":
            await answer(send, 200, json.dumps(UP), bare=bare)
        elif path == "/readyz":
            status, told = await self._ready.ask()
            await answer(send, status, json.dumps(told), bare=bare)
        elif not path.startswith((*ANYWAY, settings.STATIC_URL)) and (doubt := clock.doubt()):
            await _refuse(send, path, ClockUnsure(doubt=doubt, retry_after_seconds=RETRY_SECONDS))
        else:
            await self._ordinary(scope, receive, send)


async def _refuse(send: Send, path: str, unsure: ClockUnsure) -> None:
    """Say that nothing is decided at the moment, as a problem or as a page."""
    if path.startswith("/api/"):
        problem = problem_of(unsure, instance=path, request_id=str(uuid4()))
        text, kind = json.dumps(problem), MEDIA_TYPE
    else:
        about = {"refusal": unsure, "heading": "Not available at the moment"}
        text, kind = render_to_string("shell/refusal_alone.html", about), "text/html; charset=utf-8"
    await answer(send, unsure.status, text, kind=kind, wait=RETRY_SECONDS)


async def answer(
    send: Send, status: int, text: str, *, kind: str = JSON, bare: bool = False, wait: int = 0
) -> None:
    """Send an answer; bare: without its body."""
    body = text.encode()
    about = {"Content-Type": kind, "Content-Length": str(len(body)), "Cache-Control": "no-store"}
    if wait:
        about["Retry-After"] = str(wait)
    headers = [(name.lower().encode(), value.encode()) for name, value in about.items()]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if bare else body})


class Ready:
    """Asks in a thread of its own, for everybody who asks at that moment, and not without end."""

    def __init__(self, ready: Readiness) -> None:
        self._ready = ready
        self._thread = ThreadPoolExecutor(1, "readyz")
        self._asking: asyncio.Future[tuple[int, dict[str, object]]] | None = None
        self._asked_at = -READY_KEPT_SECONDS

    async def ask(self) -> tuple[int, dict[str, object]]:
        """Return whether this process can work, as it was at most a second ago."""
        asking, now = self._asking, time.monotonic()
        if asking is None or (asking.done() and now - self._asked_at > READY_KEPT_SECONDS):
            loop = asyncio.get_running_loop()
            asking = self._asking = loop.run_in_executor(self._thread, self._ask)
            self._asked_at = now
        try:
            return await asyncio.wait_for(asyncio.shield(asking), READY_SECONDS_MAX)
        except TimeoutError:
            return 503, dict(SILENT)

    def _ask(self) -> tuple[int, dict[str, object]]:
        try:
            return self._ready()
        finally:
            connections.close_all()


def watch_clock() -> None:
    """Hold this process's clock against the database's, now and then, in a thread of its own."""

    def watch() -> None:
        pause = threading.Event()
        while True:
            with suppress(DatabaseError):
                clock.compare()
            connections.close_all()
            pause.wait(COMPARED_EVERY_SECONDS)

    threading.Thread(target=watch, name="clock", daemon=True).start()
