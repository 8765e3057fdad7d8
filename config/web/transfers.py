"""Files come and go beside Django: a blob is streamed between its client and storage.

Before everything that reads requests whole, since a blob is larger than what a request may carry.
Who may send or read what is in the link itself, signed (`marketplace.storage.tickets`), so nothing
is asked of the database. Of a blob there is never more in memory than PIECE_BYTES and what the
connection holds; storage and hashing have threads of their own, and other requests go on meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from config.web.application import App, Message, Receive, Scope, Send
from config.web.connections import abort_of
from config.web.intake import BodyTooSlow, refuse
from ledger.domain.refusal import Refusal, Unknown
from ledger.rest.problems import MethodNotAllowed, TooManyRequests
from marketplace.storage import default_storage
from marketplace.storage.port import Arriving, BlobLengthWrong, Opened, Storage
from marketplace.storage.tickets import PREFIX, ticket_of

AnyT = TypeVar("AnyT")

PIECE_BYTES = 2**20
THREADS = 4
TRANSFERS_MAX = 64
"""So many at once; who comes then is asked to come again."""
IDLE_SECONDS = 60.0
BYTES_PER_SECOND_MIN = 20_000
"""A transfer may last IDLE_SECONDS, and as much longer as it takes at this rate."""


class LengthMissing(Refusal):
    """A blob is sent with its `Content-Length`."""

    status = 411


class BlobUnknown(Unknown):
    """That blob is not in storage any more."""


class Transfers:
    """An ASGI application before another one: takes and gives blobs, passes on all else."""

    def __init__(self, ordinary: App, *, storage: Callable[[], Storage] = default_storage) -> None:
        self._ordinary = ordinary
        self._storage = storage
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="transfers")
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request for a blob."""
        if scope["type"] != "http" or not scope["path"].startswith(PREFIX):
            await self._ordinary(scope, receive, send)
            return
        self._running += 1
        body = _Body(receive)
        try:
            await self._transfer(scope, body.read, send)
        except _Gone:
            pass
        except Exception as refused:  # answered as a problem; a fault is logged there
            await refuse(scope, body.read, send, refused)
        finally:
            self._running -= 1

    async def _transfer(self, scope: Scope, receive: Receive, send: Send) -> None:
        storage, token = self._storage(), scope["path"].removeprefix(PREFIX)
        if self._running > TRANSFERS_MAX:
            raise TooManyRequests(retry_after_seconds=1)
        if scope["method"] == "PUT":
            await self._take(storage, token, scope, receive)
            await _head(send, 204, {})
            await send({"type": "http.response.body", "body": b""})
        elif scope["method"] == "GET":
            await self._give(storage, token, scope, send)
        else:
            raise MethodNotAllowed()

    async def _take(self, storage: Storage, token: str, scope: Scope, receive: Receive) -> None:
        """Stream a body to storage. Nothing is left of one that is cut, wrong or too slow."""
        ticket = ticket_of(token, "put")
        length = dict(scope["headers"]).get(b"content-length")
        if length is None:
            raise LengthMissing()
        if length != str(ticket.size).encode():
            raise BlobLengthWrong(bytes_wanted=ticket.size)
        receiving = await self._in_thread(lambda: storage.receive(ticket.key, ticket.size))
        try:
            async with asyncio.timeout(IDLE_SECONDS + ticket.size / BYTES_PER_SECOND_MIN):
                await self._stream(receiving, receive)
            await self._in_thread(receiving.finish)
        except TimeoutError:
            raise BodyTooSlow() from None
        finally:
            await asyncio.shield(self._in_thread(receiving.end))

    async def _stream(self, receiving: Arriving, receive: Receive) -> None:
        more = True
        while more:
            pieces, held = list[bytes](), 0
            while more and held < PIECE_BYTES:
                message = await receive()
                if message["type"] != "http.request":
                    raise _Gone()
                more = message.get("more_body", False)
                pieces.append(message.get("body", b""))
                held += len(pieces[-1])
            data = b"".join(pieces)
            await self._in_thread(lambda data=data: receiving.write(data))  # type: ignore[misc]  # a default is how a lambda keeps it

    async def _give(self, storage: Storage, token: str, scope: Scope, send: Send) -> None:
        ticket = ticket_of(token, "get")
        blob: Opened | None = await self._in_thread(lambda: storage.open(ticket.key))
        if blob is None:
            raise BlobUnknown()
        try:
            size = blob.size
            headers = {
                "Content-Type": "application/octet-stream",
                "Content-Length": str(size),
                "Content-Disposition": "attachment",
                "Content-Security-Policy": "sandbox",
                "X-Content-Type-Options": "nosniff",
            }
            async with asyncio.timeout(IDLE_SECONDS + size / BYTES_PER_SECOND_MIN):
                await _head(send, 200, headers)
                left = size
                while left > 0:
                    data = await self._in_thread(lambda: blob.read(PIECE_BYTES))
                    left = left - len(data) if data else 0
                    await send({"type": "http.response.body", "body": data, "more_body": left > 0})
        except (TimeoutError, OSError):
            abort_of(scope)()  # it has begun: only an answer that breaks off says that it failed
        finally:
            await asyncio.shield(self._in_thread(blob.close))

    async def _in_thread(self, work: Callable[[], AnyT]) -> AnyT:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


class _Body:
    """What a client sends. After its end there is nothing more, and nothing is waited for."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._ended = False

    async def read(self) -> Message:
        """Return the next message."""
        if self._ended:
            return {"type": "http.request", "body": b"", "more_body": False}
        message = await self._receive()
        self._ended = not message.get("more_body", False)
        return message


class _Gone(Exception):
    """The client has gone: nobody is left to be answered."""


async def _head(send: Send, status: int, about: dict[str, str]) -> None:
    headers = [(name.lower().encode(), value.encode()) for name, value in about.items()]
    start: Message = {
        "type": "http.response.start",
        "status": status,
        "headers": [*headers, (b"cache-control", b"no-store")],
    }
    await send(start)
