"""Logs of leased work come and go beside Django: agents send them, people read them live.

Whoever follows a log costs a coroutine and no thread. That somebody may read it is asked once, of
the endpoint behind this (`marketplace.api.logs`), by a HEAD with the same headers. What this
process takes it hands to those who are at that place in the log; everybody else, and whoever is
slow, reads the bytes from where they are, so that nothing is queued. That another process took
something is found by a look at the files every LOOK_SECONDS. Who may not read any more is ended.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TypeVar
from urllib.parse import parse_qs
from uuid import UUID

from django.db import InterfaceError, OperationalError, close_old_connections
from django.utils import timezone

from config.web.application import App, Message, Receive, Scope, Send
from config.web.connections import abort_of
from config.web.endings import Endings, endings
from config.web.intake import BodyTooSlow, refuse
from config.web.log_events import end_of, frames_of
from config.web.log_followers import PIECE_BYTES, Follower, may_read, reader_of
from ledger.access import actor_of_token
from ledger.access.standing import Bearer
from ledger.domain.ids import HostId
from ledger.domain.refusal import Refusal
from ledger.eventstore import default_store
from ledger.rest.problems import TooLarge, TooManyRequests
from marketplace.api.logs import plain
from marketplace.logs import Figures, Reader, default_logs
from marketplace.storage import default_storage
from marketplace.storage.logs import LogKey, OpenLogs
from marketplace.storage.port import Storage
from metering.agent import later, wire
from metering.api.agent import GRANTS, MessageUnreadable
from metering.ingest.contacts import note_beyond
from metering.ingest.logs import take_logs, with_refused

AnyT = TypeVar("AnyT")

LOG = re.compile(r"/api/v1/leases/([0-9a-fA-F-]{36})/logs/(stdout|stderr)")
TAKEN = wire.LOGS_PATH
SCOPE = "agent"
THREADS = 4
FOLLOWERS_MAX = 1_000
FOLLOWERS_OF_A_LEASE_MAX = 64
LOOK_SECONDS = 0.1
IDLE_SECONDS = 5.0
"""So often a follower that hears nothing looks if the lease is over, and says that it lives."""
FOLLOWED_SECONDS_MAX = 900.0
"""Then it ends, and whoever goes on proves again who they are."""
SEND_SECONDS = 60.0
BODY_SECONDS = 30.0
BODY_BYTES_MAX = 1_000_000
KNOWN_SECONDS = 10.0
"""So long a token is taken without another look."""
KNOWN_MAX = 10_000
NOT_ASKED = (b"accept", b"accept-encoding", b"last-event-id", b"range", b"content-length")
OFFPEAK = b"offpeak-log-"
READER = OFFPEAK + b"reader"


class WorkLogs:
    """An ASGI application before another one: takes and gives logs, passes on all else."""

    def __init__(
        self,
        ordinary: App,
        *,
        logs: Callable[[], OpenLogs] = default_logs,
        storage: Callable[[], Storage] = default_storage,
        may_read: Callable[[Collection[Bearer]], set[Bearer]] = may_read,
        endings: Endings = endings,
    ) -> None:
        self._ordinary = ordinary
        self._may_read, self._endings = may_read, endings
        self._logs, self._storage = logs, storage
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="work-logs")
        self._followers: dict[UUID, set[Follower]] = {}
        self._known: dict[bytes, tuple[HostId, float]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._ordinary(scope, receive, send)
        elif scope["method"] == "POST" and scope["path"] == TAKEN:
            await self._take(scope, receive, send)
        elif scope["method"] == "GET" and (found := LOG.fullmatch(scope["path"])):
            await self._give(scope, receive, send, found[1], found[2])
        else:
            await self._ordinary(scope, receive, send)

    # --- what agents send ------------------------------------------------------------------------

    async def _take(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take logs of a host whose token is good; anything unusual goes the ordinary way."""
        host_id = await self._host_of(scope)
        if host_id is None:
            await self._ordinary(scope, receive, send)
            return
        try:
            body = await _body(receive)
            if body is None:
                return
            batch, taken, beyond = await self.in_thread(lambda: self._add(host_id, body))
        except Exception as refused:  # answered as a problem; a fault is logged there
            await refuse(scope, receive, send, refused)
            return
        for piece, said in zip(batch.pieces, taken.pieces, strict=True):
            if said.outcome == "taken":
                for follower in self._followers.get(piece.lease_id, ()):
                    if follower.key.host_id == host_id:
                        follower.hear(piece, said.size)
        content = wire.dump(with_refused(taken, beyond).to_json())
        await _head(send, 200, {"Content-Type": "application/json", "Content-Length": len(content)})
        await send({"type": "http.response.body", "body": content})

    def _add(
        self, host_id: HostId, body: bytes
    ) -> tuple[wire.LogBatch, wire.LogsTaken, tuple[later.Beyond, ...]]:
        try:
            batch, beyond = later.read(wire.LogBatch, wire.parse(body))
        except wire.WireError as error:
            raise MessageUnreadable(place=error.place, reason=error.reason) from error
        now = timezone.now()
        if beyond:
            note_beyond(beyond, host_id=host_id, now=now)
        logs = self._logs()
        taken = take_logs(default_store(), GRANTS, logs, batch, host_id=host_id, now=now)
        return batch, taken, beyond

    async def _host_of(self, scope: Scope) -> HostId | None:
        """Return whose token it is; None where that is not clear."""
        header = dict(scope["headers"]).get(b"authorization", b"")
        if header[:7].lower() != b"bearer ":
            return None
        token = header[7:].strip()
        name = sha256(token).digest()
        known = self._known.get(name)
        if known is not None and time.monotonic() < known[1]:
            return known[0]
        host_id = await self.in_thread(lambda: _host_of(token.decode("latin-1")))
        if host_id is not None:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known[name] = host_id, time.monotonic() + KNOWN_SECONDS
        return host_id

    # --- what people read ------------------------------------------------------------------------

    async def _give(
        self, scope: Scope, receive: Receive, send: Send, lease: str, stream: str
    ) -> None:
        answer = await self._ask(scope)
        if answer.status != 200 or OFFPEAK + b"host" not in answer.headers:
            await answer.pass_on(send)
            return
        host, attempt = answer.headers[OFFPEAK + b"host"], answer.headers[OFFPEAK + b"attempt"]
        key = LogKey(UUID(lease), UUID(host.decode()), int(attempt), stream)
        query = parse_qs(scope["query_string"].decode("latin-1"))
        headers = dict(scope["headers"])
        offset = int(query.get("offset", ["0"])[0])
        reader = Reader(self._storage(), self._logs(), key)
        who = reader_of(answer.take_out(READER))
        if b"text/event-stream" not in headers.get(b"accept", b""):
            await self._give_all(scope, send, answer, reader, offset)
            return
        seen = headers.get(b"last-event-id", b"")
        if seen.isdigit() and len(seen) <= 16:
            offset = int(seen)
        following = _Following(self, scope, send, reader, offset)
        follow = query.get("follow", ["true"]) == ["true"]
        try:
            with self._following(key, who, receive) as follower:
                await following.run(follower, follow=follow, resumed=bool(seen))
        except TooManyRequests as refused:
            await refuse(scope, _nothing, send, refused)

    async def _ask(self, scope: Scope) -> _Told:
        """Ask the endpoint behind this whether this log may be read, and how far it is."""
        headers = [pair for pair in scope["headers"] if pair[0] not in NOT_ASKED]
        told = _Told()
        asked = {**scope, "method": "HEAD", "headers": [*headers, (b"accept", b"*/*")]}
        await self._ordinary(asked, _nothing, told.take)
        return told

    async def _give_all(
        self, scope: Scope, send: Send, answer: _Told, reader: Reader, offset: int
    ) -> None:
        """Send what is there now."""
        end = int(answer.headers[OFFPEAK + b"size"])
        head = [pair for pair in answer.head if pair[0].lower() != b"content-length"]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        pieces = plain(reader, offset, end)
        try:
            while (data := await self.in_thread(lambda: next(pieces, None))) is not None:
                async with asyncio.timeout(SEND_SECONDS):
                    await send({"type": "http.response.body", "body": data, "more_body": True})
        except (TimeoutError, Refusal):
            abort_of(scope)()  # it has begun: only an answer that breaks off says that it failed
            return
        await send({"type": "http.response.body", "body": b""})

    @contextmanager
    def _following(self, key: LogKey, who: Bearer, receive: Receive) -> Iterator[Follower]:
        """Count somebody as a follower, and hear of news for them.

        Raises: TooManyRequests.
        """
        others = self._followers.setdefault(key.lease_id, set())
        everybody = sum(map(len, self._followers.values()))
        if everybody >= FOLLOWERS_MAX or len(others) >= FOLLOWERS_OF_A_LEASE_MAX:
            raise TooManyRequests(retry_after_seconds=5)
        follower = Follower(key, who)
        others.add(follower)
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch())
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        leaving = asyncio.create_task(_leave(follower, receive))
        try:
            yield follower
        finally:
            leaving.cancel()
            others.discard(follower)
            if not others:
                self._followers.pop(key.lease_id, None)

    async def _watch(self) -> None:
        """End who may not read any more: at news, and every IDLE_SECONDS; while there are any."""
        with self._endings.heard() as news:
            while self._followers:
                await news.wait(IDLE_SECONDS)
                followers = [each for some in self._followers.values() for each in some]
                readers = {each.reader for each in followers}
                with suppress(OperationalError, InterfaceError):  # away: asked again next time
                    may = await self.in_thread(lambda r=readers: self._may_read(r))  # type: ignore[misc]  # a default is how a lambda keeps it
                    for follower in followers:
                        if follower.reader not in may:
                            follower.end()

    async def _look(self) -> None:
        """Wake whoever follows a log that another process has added to; while there are any."""
        while self._followers:
            followers = [each for some in self._followers.values() for each in some]
            due = {each.key.lease_id for each in followers if each.is_due()}
            grown = await self.in_thread(lambda f=followers, d=due: self._grown(f, d))  # type: ignore[misc]  # a default is how a lambda keeps it
            for follower in grown:
                follower.look()
            await asyncio.sleep(LOOK_SECONDS)

    def _grown(self, followers: list[Follower], due: set[UUID]) -> list[Follower]:
        logs = self._logs()
        for lease_id in due:
            logs.follow(lease_id)
        quiet = [each for each in followers if not each.has_heard()]
        sizes = {key: logs.size(key) for key in {each.key for each in quiet}}
        return [each for each in quiet if (sizes[each.key] or 0) > each.size]

    async def in_thread(self, work: Callable[[], AnyT]) -> AnyT:
        """Do what asks a disk or the database."""

        def working() -> AnyT:
            try:
                return work()
            finally:
                close_old_connections()

        return await asyncio.get_running_loop().run_in_executor(self._threads, working)


class _Following:
    """One answer of events."""

    def __init__(
        self, server: WorkLogs, scope: Scope, send: Send, reader: Reader, offset: int
    ) -> None:
        self._server, self._scope, self._send = server, scope, send
        self._reader, self._offset = reader, offset

    async def run(self, follower: Follower, *, follow: bool, resumed: bool) -> None:
        """Send what there is, and what comes, until the log ends or the reader goes.

        resumed: the reader was here before; then a log without more is answered 204, by which
        browsers stop to ask again.
        """
        until = time.monotonic() + FOLLOWED_SECONDS_MAX
        begun = False
        try:
            while not follower.gone and time.monotonic() < until:
                follower.news.clear()
                if begun and (data := follower.added_after(self._offset)):
                    follower.size = self._offset + len(data)
                    frames, self._offset = frames_of(self._offset, self._offset, data, whole=False)
                    await self._say(frames)
                    await self._wait(follower)
                    continue
                start, data, figures = await self._server.in_thread(self._read)
                over = figures is not None and (figures.ended or not follow)
                if resumed and not begun and over and not data:
                    await _head(self._send, 204, {})
                    break
                if not begun:
                    begun = True
                    await self._begin()
                whole = figures is not None and figures.ended
                frames, self._offset = frames_of(self._offset, start, data, whole=whole)
                if frames:
                    await self._say(frames)
                if figures is not None and over:
                    await self._say(end_of(figures, self._offset))
                    break
                if figures is not None:
                    follower.size = start + len(data)
                    await self._wait(follower)
            await self._send({"type": "http.response.body", "body": b""})
        except (_TooSlow, Refusal):
            abort_of(self._scope)()  # whoever still reads comes again: the storage is away

    async def _wait(self, follower: Follower) -> None:
        """Wait for news; say now and then that there are none."""
        try:
            async with asyncio.timeout(IDLE_SECONDS):
                await follower.news.wait()
        except TimeoutError:
            await self._say(b": still here\n\n")

    def _read(self) -> tuple[int, bytes, Figures | None]:
        """Read on; with figures where that was all there is now."""
        start, data = self._reader.read(self._offset, PIECE_BYTES)
        if len(data) == PIECE_BYTES:
            return start, data, None
        figures = self._reader.figures(now=timezone.now())
        has_more = figures.ended and start + len(data) < figures.size
        return start, data, None if has_more else figures

    async def _begin(self) -> None:
        headers: dict[str, object] = {
            "Content-Type": "text/event-stream; charset=utf-8",
            "X-Accel-Buffering": "no",
            "X-Content-Type-Options": "nosniff",
        }
        await _head(self._send, 200, headers)
        await self._say(b"retry: 1000\n\n")

    async def _say(self, body: bytes) -> None:
        """Send; a client that does not read is waited for, but not for ever."""
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await self._send({"type": "http.response.body", "body": body, "more_body": True})
        except TimeoutError:
            raise _TooSlow() from None


class _TooSlow(Exception):
    """A reader takes nothing."""


@dataclass(slots=True)
class _Told:
    """What the application behind this answered."""

    status: int = 500
    head: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytearray = field(default_factory=bytearray)

    @property
    def headers(self) -> dict[bytes, bytes]:
        """Return the headers by name."""
        return {name.lower(): value for name, value in self.head}

    def take_out(self, name: bytes) -> str:
        """Return a header's text; whoever asked does not get it."""
        text = self.headers[name].decode()
        self.head = [pair for pair in self.head if pair[0].lower() != name]
        return text

    async def take(self, message: Message) -> None:
        """Keep a part of the answer."""
        if message["type"] == "http.response.start":
            self.status, self.head = message["status"], list(message["headers"])
        else:
            self.body += message.get("body", b"")

    async def pass_on(self, send: Send) -> None:
        """Give the answer to whoever asked."""
        head = [pair for pair in self.head if pair[0].lower() != b"content-length"]
        head.append((b"content-length", str(len(self.body)).encode()))
        await send({"type": "http.response.start", "status": self.status, "headers": head})
        await send({"type": "http.response.body", "body": bytes(self.body)})


async def _leave(follower: Follower, receive: Receive) -> None:
    """Wake a follower for the last time when its client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
    follower.end()


async def _nothing() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


def _host_of(token: str) -> HostId | None:
    with suppress(Refusal):
        actor = actor_of_token(token, now=timezone.now())
        if actor.may(SCOPE):
            return actor.host_id
    return None


async def _body(receive: Receive) -> bytes | None:
    """Read a body whole; None where its client has gone.

    Raises: BodyTooSlow, TooLarge.
    """
    body, more = bytearray(), True
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while more:
                message = await receive()
                if message["type"] != "http.request":
                    return None
                body += message.get("body", b"")
                more = message.get("more_body", False)
                if len(body) > BODY_BYTES_MAX:
                    raise TooLarge()
    except TimeoutError:
        raise BodyTooSlow() from None
    return bytes(body)


async def _head(send: Send, status: int, about: dict[str, object]) -> None:
    headers = [(name.lower().encode(), str(value).encode()) for name, value in about.items()]
    headers.append((b"cache-control", b"no-store"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
