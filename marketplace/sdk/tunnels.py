"""Connections into leased work, through the market: one websocket for each.

Frames are `kind | stream | payload`, as `metering/agent/access/frames.py` has them; a client's
stream is 0. Each side sends WINDOW bytes at most before the other has said that it is done with
some, so that nobody on the way has to keep more.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import websockets
from websockets.asyncio.client import ClientConnection, connect

from .client import Client
from .problems import Problem, Unreachable

OPENED, DATA, END, CLOSE, CREDIT = 2, 3, 4, 5, 6
WINDOW = 1 << 20
CHUNK = 64 << 10
FRAME_BYTES_MAX = CHUNK + 5
OPEN_SECONDS = 30.0
REASON_LENGTH_MAX = 200
LOOPBACK = {"127.0.0.1", "::1", "localhost"}
_HEAD = struct.Struct(">BI")
_COUNT = struct.Struct(">I")


class NotConnected(Exception):
    """The work did not take the connection; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A lease to connect into. host: one of its hosts; None: the first."""

    client: Client
    server: str
    id: UUID
    host: UUID | None = None

    def ask(self, **wish: object) -> dict[str, Any]:
        """Return the permit for one connection. Raises: Problem, Unreachable."""
        body = {**wish, **({} if self.host is None else {"host_id": str(self.host)})}
        permit: dict[str, Any] = self.client.ask(f"leases/{self.id}/access", body)
        return permit

    def runs(self) -> bool:
        """Tell if its work runs on any of its hosts. Raises: Problem, Unreachable."""
        told = self.client.get(f"leases/{self.id}/access")
        return any(host["runs"] for host in told["hosts"])

    @asynccontextmanager
    async def connected(self, **wish: object) -> AsyncIterator[Connection]:
        """Give a connection to what is wished for: `what`, and its `port` or `key`.

        Raises: Problem, Unreachable, NotConnected.
        """
        permit = await asyncio.to_thread(lambda: self.ask(**wish))
        parts = urlsplit(self.server)
        url = self.server.rstrip("/").replace("http", "ws", 1) + permit["path"]
        options: dict[str, Any] = {}
        if parts.scheme == "https":
            options["ssl"] = ssl.create_default_context()
        if parts.hostname in LOOPBACK:
            options["proxy"] = None
        try:
            socket = await connect(
                url,
                additional_headers={"Authorization": f"Bearer {permit['token']}"},
                compression=None,
                max_size=FRAME_BYTES_MAX,
                open_timeout=OPEN_SECONDS,
                **options,
            )
        except websockets.InvalidStatus as denied:
            raise _problem(denied) from None
        except (OSError, TimeoutError, websockets.WebSocketException) as lost:
            raise Unreachable(f"{self.server}: {lost}") from lost
        async with socket:
            try:
                async with asyncio.timeout(OPEN_SECONDS):
                    kind, said = _read(await socket.recv())
            except (TimeoutError, websockets.WebSocketException) as lost:
                raise Unreachable(f"{self.server}: {lost}") from lost
            if kind != OPENED:
                raise NotConnected(_reason(said) or "the host did not take it")
            yield Connection(socket, json.loads(said))


class Connection:
    """An open connection. about: what the host told of it; host_key, of a shell."""

    def __init__(self, socket: ClientConnection, about: dict[str, Any]) -> None:
        self.about = about
        self._socket = socket
        self._room = WINDOW
        self._more_room = asyncio.Event()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        """Carry bytes both ways until it is over; return why, empty where both had done."""
        up = asyncio.create_task(self._up(reader))
        down = asyncio.create_task(self._down(writer))
        try:
            await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
            if up.done() and up.exception() is None:
                await asyncio.wait({down})  # this side has said all: the other may go on
            return down.result() if down.done() else ""
        except (OSError, websockets.WebSocketException):
            return "the line to the market is lost"
        finally:
            for task in (up, down):
                task.cancel()
            await asyncio.gather(up, down, return_exceptions=True)
            writer.close()
            with suppress(OSError, websockets.WebSocketException):
                await self._socket.close()

    async def _up(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(CHUNK):
            while self._room < len(data):
                self._more_room.clear()
                await self._more_room.wait()
            self._room -= len(data)
            await self._socket.send(_HEAD.pack(DATA, 0) + data)
        await self._socket.send(_HEAD.pack(END, 0))

    async def _down(self, writer: asyncio.StreamWriter) -> str:
        used = 0
        async for message in self._socket:
            kind, payload = _read(message)
            if kind == DATA:
                writer.write(payload)
                await writer.drain()
                used += len(payload)
                if used >= WINDOW // 4:
                    await self._socket.send(_HEAD.pack(CREDIT, 0) + _COUNT.pack(used))
                    used = 0
            elif kind == CREDIT:
                self._room += _COUNT.unpack(payload)[0]
                self._more_room.set()
            elif kind == END:
                if writer.can_write_eof():
                    writer.write_eof()
            elif kind == CLOSE:
                return _reason(payload)
        return "the line to the market is lost"


def _read(message: str | bytes) -> tuple[int, bytes]:
    if not isinstance(message, bytes) or len(message) < _HEAD.size:
        raise Unreachable("what answers is no market")
    return message[0], message[_HEAD.size :]


def _reason(payload: bytes) -> str:
    """Return a reason without what a terminal would act upon."""
    text = payload.decode(errors="replace")[:REASON_LENGTH_MAX]
    return "".join(each for each in text if each.isprintable())


def _problem(denied: websockets.InvalidStatus) -> Exception:
    answer = denied.response
    try:
        body = json.loads(answer.body or b"")
    except ValueError:
        body = None
    if isinstance(body, dict):
        return Problem(answer.status_code, body)
    return Unreachable(f"the market answers {answer.status_code} to a tunnel: is a proxy between?")
