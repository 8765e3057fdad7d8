"""Sockets of tunnels: those that agents open outwards, and those of clients that come in to them.

An ASGI application of its own and no Channels consumer: a consumer puts each message through a
layer of dispatch, and its sockets through the check of a page's origin, while these carry a
hundred megabytes a second for programs that prove themselves by a token and no cookie.

Which process has a host's tunnel is in a row. A client comes to any process; that one passes its
bytes on to the one that has it, over a websocket like the client's own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar
from uuid import uuid4

import structlog
import websockets
from django.conf import settings
from django.db import close_old_connections
from django.utils import timezone
from rest_framework.renderers import JSONRenderer
from websockets.asyncio.client import ClientConnection, connect

from config.address import address_on_this_machine
from config.web.application import App, Message, Receive, Scope, Send
from config.web.endings import endings
from config.web.relay import Host, Relay, Stream
from ledger.domain.refusal import Refusal, Unauthenticated
from ledger.rest.endpoint import request_id_of
from ledger.rest.problems import answer_problem
from metering.agent.access.frames import (
    AGENT_PATH,
    CLIENT_PATH,
    FRAME_BYTES_MAX,
    HELLO,
    OPENED,
    Frame,
    FrameWrong,
)
from metering.domain.access import FromPage, HostNotConnected, Permit, read_allowed
from metering.ingest import tunnels
from metering.ingest.tunnels import Agent, Holder

AnyT = TypeVar("AnyT")

LOOK_SECONDS = 5.0
"""So often it is looked who may go on, where no news say sooner that somebody may not."""
OPEN_SECONDS = 20.0
HELLO_SECONDS = 10.0
HOPPED = b"offpeak-hop"
HOST_KEY_LENGTH_MAX = 500
NORMAL, BAD_FRAME, BARRED = 1000, 1002, 4401

log = structlog.get_logger()


class TokenMissing(Unauthenticated):
    """A tunnel is opened with a token: `Authorization: Bearer …`."""


class _Gone(Exception):
    """The other end of a socket has gone."""


class Tunnels:
    """An ASGI application before another one: takes sockets of tunnels, passes on all others."""

    def __init__(self, ordinary: App) -> None:
        self._ordinary = ordinary
        self._relay = Relay(clock=time.monotonic)
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="tunnels")
        self._holder = Holder(uuid4(), _address())
        self._counted: dict[Any, dict[str, int]] = {}
        self._watch: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a socket."""
        serve = {AGENT_PATH: self._agent, CLIENT_PATH: self._client}.get(scope["path"])
        if serve is None:
            await self._ordinary(scope, receive, send)
            return
        await receive()  # that it connects
        socket = _Socket(scope, receive, send)
        try:
            await serve(socket)
        except _Gone:
            pass
        except FrameWrong:
            await socket.close(BAD_FRAME)
        except (Refusal, OSError) as refused:
            await socket.deny(refused)
        except Exception as failure:  # logged: one tunnel ends, the others stay
            log.exception("tunnel.failed", path=scope["path"])
            await socket.deny(failure)

    # --- agents --------------------------------------------------------------------------------

    async def _agent(self, socket: _Socket) -> None:
        agent = await self._in_thread(lambda: tunnels.agent_of(socket.bearer()))
        await socket.accept()
        async with asyncio.timeout(HELLO_SECONDS):
            hello = await socket.frame()
        if hello.kind != HELLO:
            raise FrameWrong("a hello comes first")
        allowed = read_allowed(hello.said.get("allowed"))
        host = Host(agent, allowed, socket.send_bytes, socket.close_soon)
        await self._in_thread(
            lambda: tunnels.note_opened(agent, self._holder, allowed, now=timezone.now())
        )
        self._relay.add(host)
        self._watch_over()
        log.info("tunnel.opened", host=str(agent.host_id), allowed=allowed)
        try:
            while True:
                got = await socket.frame()
                if got.kind == OPENED:
                    await self._note_key(host, got)
                self._relay.take(host, got)
        finally:
            if self._relay.remove(host):
                await asyncio.shield(
                    self._in_thread(lambda: tunnels.note_ended(agent.host_id, self._holder))
                )
            log.info("tunnel.ended", host=str(agent.host_id))

    async def _note_key(self, host: Host, got: Frame) -> None:
        key, stream = got.said.get("host_key", ""), host.streams.get(got.stream)
        if not isinstance(key, str) or len(key) > HOST_KEY_LENGTH_MAX:
            raise FrameWrong("no key of a host")
        if stream is None or not key:
            return
        lease_id, host_id, now = stream.permit.lease_id, host.agent.host_id, timezone.now()
        await self._in_thread(lambda: tunnels.note_host_key(lease_id, host_id, key, now=now))

    # --- clients -------------------------------------------------------------------------------

    async def _client(self, socket: _Socket) -> None:
        permit = tunnels.read_permit(socket.bearer())
        holder = await self._in_thread(lambda: tunnels.check_now(permit))
        if permit.host_id not in self._relay.hosts:
            if holder.process == self._holder.process or socket.header(HOPPED):
                raise HostNotConnected(host_id=permit.host_id)
            await self._pass_on(socket, holder)
            return
        stream = await self._relay.open(permit, socket.send_bytes)
        log.info("access.opened", **_about(permit))
        reason = "it left"
        delivery = asyncio.create_task(stream.deliver())
        try:
            await socket.accept()
            taking = asyncio.create_task(self._take(socket, stream))
            await asyncio.wait({taking, delivery}, return_when=asyncio.FIRST_COMPLETED)
            if delivery.done() and not taking.done():
                reason = delivery.result()
                await socket.close(NORMAL)
            taking.cancel()
            with suppress(asyncio.CancelledError, _Gone):
                await taking
        finally:
            stream.end(reason, tell_agent=True)
            delivery.cancel()
            log.info("access.ended", reason=reason, **_about(permit))

    async def _take(self, socket: _Socket, stream: Stream) -> None:
        while True:
            await self._relay.take_from_client(stream, await socket.frame())

    async def _pass_on(self, socket: _Socket, holder: Holder) -> None:
        """Serve a client whose host's tunnel ends in another process of ours."""
        headers = {"Authorization": f"Bearer {socket.bearer()}", HOPPED.decode(): "1"}
        url = holder.address.replace("http", "ws", 1) + CLIENT_PATH
        try:
            there = await connect(
                url, additional_headers=headers, compression=None, proxy=None,
                max_size=FRAME_BYTES_MAX, open_timeout=OPEN_SECONDS,
            )  # fmt: skip
        except websockets.InvalidStatus as denied:
            answer = denied.response
            await socket.answer(answer.status_code, answer.body or b"")
            return
        except (OSError, TimeoutError, websockets.WebSocketException):
            raise HostNotConnected() from None
        async with there:
            await socket.accept()
            ways = [_there(socket, there), _back(socket, there)]
            tasks = [asyncio.create_task(each) for each in ways]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await socket.close(NORMAL)

    # --- who may go on -------------------------------------------------------------------------

    def _watch_over(self) -> None:
        if self._watch is None or self._watch.done():
            self._watch = asyncio.get_running_loop().create_task(self._look_on())

    async def _look_on(self) -> None:
        """While there are tunnels: end what is idle, and what may not go on."""
        looked = time.monotonic()
        idle = settings.ENV.access_idle_seconds
        with endings.heard() as news:
            while self._relay.hosts:
                told = await news.wait(min(1.0, idle / 2))
                self._relay.end_idle(idle)
                if told or time.monotonic() - looked >= LOOK_SECONDS:
                    try:
                        await self._look()
                    except Exception as failure:  # such as an outage: who watches must go on
                        log.warning("tunnels.not_looked", error=str(failure).strip())
                    looked = time.monotonic()

    async def _look(self) -> None:
        permits = {each.permit for each in self._relay.streams()}
        agents = {host.agent for host in self._relay.hosts.values()}
        counts = self._relay.counts()
        changed = [host for host in counts if counts[host] != self._counted.get(host, {})]

        def look() -> tuple[dict[Permit, Refusal], set[Agent]]:
            if changed:
                tunnels.note_connections(self._holder, counts, changed)
            refusals = tunnels.refusals_of(permits) if permits else {}
            return refusals, tunnels.agents_barred(agents)

        refusals, barred = await self._in_thread(look)
        self._counted = counts
        self._relay.end_refused(refusals)
        for host in list(self._relay.hosts.values()):
            if host.agent in barred:
                host.close()

    async def _in_thread(self, work: Callable[[], AnyT]) -> AnyT:
        """Ask the database, beside the loop."""

        def alone() -> AnyT:
            close_old_connections()
            try:
                return work()
            finally:
                close_old_connections()

        return await asyncio.get_running_loop().run_in_executor(self._threads, alone)


class _Socket:
    """One websocket as uvicorn gives it."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._accepted = self._closed = False
        self._closing: asyncio.Task[None] | None = None

    def header(self, name: bytes) -> str:
        """Return a header's text, empty where there is none."""
        found = dict[bytes, bytes](self._scope["headers"]).get(name, b"")
        return found.decode("latin-1")

    def bearer(self) -> str:
        """Return the token it comes with. Raises: TokenMissing, FromPage."""
        if self.header(b"origin"):
            raise FromPage()
        kind, _, token = self.header(b"authorization").partition(" ")
        if kind.lower() != "bearer" or not token.strip():
            raise TokenMissing()
        return token.strip()

    async def accept(self) -> None:
        """Let it in."""
        self._accepted = True
        await self._send({"type": "websocket.accept"})

    async def message(self) -> bytes:
        """Return the next message; of one that is text, nothing. Raises: _Gone."""
        got: Message = await self._receive()
        if got["type"] != "websocket.receive":
            self._closed = True
            raise _Gone()
        return got.get("bytes") or b""

    async def frame(self) -> Frame:
        """Return the next frame. Raises: _Gone, FrameWrong."""
        return Frame.read(await self.message())

    async def send_bytes(self, message: bytes) -> None:
        """Send a message; waits while the other end takes nothing. Raises: _Gone."""
        if self._closed:
            raise _Gone()
        try:
            await self._send({"type": "websocket.send", "bytes": message})
        except (OSError, RuntimeError):  # uvicorn's words for an end that has gone
            self._closed = True
            raise _Gone() from None

    async def close(self, code: int) -> None:
        """Close it, if it is still open."""
        if self._closed or not self._accepted:
            return
        self._closed = True
        with suppress(OSError, RuntimeError):
            await self._send({"type": "websocket.close", "code": code})

    def close_soon(self) -> None:
        """Close it without waiting."""
        self._closing = asyncio.get_running_loop().create_task(self.close(BARRED))

    async def deny(self, failure: Exception) -> None:
        """Say why it is not let in, as a problem; one that was in is closed."""
        if self._accepted:
            await self.close(1011)
            return
        request_id = str(request_id_of(self.header(b"x-request-id")))
        problem = answer_problem(failure, instance=self._scope["path"], request_id=request_id)
        await self.answer(problem.status_code, JSONRenderer().render(problem.data))

    async def answer(self, status: int, content: bytes) -> None:
        """Answer in HTTP, in place of letting it in."""
        self._closed = True
        headers = [
            (b"content-type", b"application/problem+json"),
            (b"content-length", str(len(content)).encode()),
        ]
        start = {"type": "websocket.http.response.start", "status": status, "headers": headers}
        with suppress(OSError, RuntimeError):
            await self._send(start)
            await self._send({"type": "websocket.http.response.body", "body": content})


async def _there(socket: _Socket, there: ClientConnection) -> None:
    while True:
        await there.send(await socket.message())


async def _back(socket: _Socket, there: ClientConnection) -> None:
    async for message in there:
        await socket.send_bytes(message if isinstance(message, bytes) else b"")


def _about(permit: Permit) -> dict[str, object]:
    """Return what a log says of a connection."""
    return {
        "lease": str(permit.lease_id),
        "host": str(permit.host_id),
        "person": str(permit.user_id),
        "what": permit.what,
        "port": permit.port,
    }


def _address() -> str:
    env = settings.ENV
    return env.access_address or address_on_this_machine(env.host, env.port)
