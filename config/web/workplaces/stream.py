"""One connection to a port of leased work, as the web process itself opens it.

It goes the way of every client: by a websocket to the process that has the host's tunnel, with a
permit. So what is allowed, counted and ended for others is so for these.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from contextlib import suppress

import websockets
from websockets.asyncio.client import ClientConnection, connect

from ledger.domain.refusal import Refusal
from metering.agent.access.frames import (
    CHUNK,
    CLIENT_PATH,
    CLOSE,
    CREDIT,
    DATA,
    END,
    FRAME_BYTES_MAX,
    OPENED,
    WINDOW,
    Frame,
    FrameWrong,
    credit,
    frame,
)
from metering.domain.access import HostNotConnected, Permit
from metering.ingest import tunnels

OPEN_SECONDS = 20.0


class PortNotOpen(Refusal):
    """Nothing of that lease listens at that port of 127.0.0.1, or it does not yet.

    `detail` is what its host says.
    """

    status = 502


class NotLetIn(Exception):
    """The tunnel answered this in place of a connection: status and what it says."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(said)
        self.status = status


class WorkStream:
    """Bytes both ways. Of what comes, at most WINDOW waits to be read."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._came = deque[bytes]()
        self._news = asyncio.Event()
        self._room = WINDOW
        self._more_room = asyncio.Event()
        self._used = 0
        self._over = False
        self._writing = asyncio.Lock()
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    async def open(cls, permit: Permit, address: str) -> WorkStream:
        """Connect to what a permit allows, at the process that has the tunnel.

        Raises: NotLetIn, PortNotOpen, HostNotConnected.
        """
        try:
            socket = await connect(
                address.replace("http", "ws", 1) + CLIENT_PATH,
                additional_headers={"Authorization": f"Bearer {tunnels.sign(permit)}"},
                compression=None, proxy=None, max_size=FRAME_BYTES_MAX, open_timeout=OPEN_SECONDS,
                ping_interval=None,
            )  # fmt: skip
        except websockets.InvalidStatus as denied:
            answer = denied.response
            raise NotLetIn(answer.status_code, _detail(answer.body)) from None
        except (OSError, TimeoutError, websockets.WebSocketException):
            raise HostNotConnected(host_id=permit.host_id) from None
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                first = Frame.read(await socket.recv())
        except (TimeoutError, FrameWrong, websockets.WebSocketException):
            await socket.close()
            raise HostNotConnected(host_id=permit.host_id) from None
        if first.kind != OPENED:
            await socket.close()
            raise PortNotOpen(port=permit.port, detail=first.reason)
        return cls(socket)

    async def read(self) -> bytes:
        """Return what came next; empty at its end."""
        while not self._came:
            if self._over:
                return b""
            self._news.clear()
            await self._news.wait()
        data = self._came.popleft()
        self._used += len(data)
        if self._used >= WINDOW // 4:
            count, self._used = self._used, 0
            with suppress(OSError, websockets.WebSocketException):
                await self._socket.send(credit(0, count))
        return data

    async def write(self, data: bytes) -> None:
        """Send bytes, as soon as the other end has room for them. Raises: ConnectionError."""
        async with self._writing:  # what two send is never mixed
            for at in range(0, len(data), CHUNK):
                part = data[at : at + CHUNK]
                while self._room < len(part) and not self._over:
                    self._more_room.clear()
                    await self._more_room.wait()
                if self._over:
                    raise ConnectionError("the work has closed it")
                self._room -= len(part)
                try:
                    await self._socket.send(frame(DATA, 0, part))
                except websockets.WebSocketException:
                    raise ConnectionError("the line is lost") from None

    async def close(self) -> None:
        """End it, whatever is on its way."""
        self._listening.cancel()
        with suppress(OSError, websockets.WebSocketException, TimeoutError):
            async with asyncio.timeout(1.0):
                await self._socket.close()

    async def _listen(self) -> None:
        try:
            async for message in self._socket:
                got = Frame.read(message)
                if got.kind == DATA:
                    self._came.append(got.payload)
                elif got.kind == CREDIT:
                    self._room += got.credited
                    self._more_room.set()
                elif got.kind in (END, CLOSE):
                    break
                self._news.set()
        except (OSError, FrameWrong, websockets.WebSocketException):
            pass
        finally:
            self._over = True
            self._news.set()
            self._more_room.set()


def _detail(body: bytes | None) -> str:
    try:
        said = json.loads(body or b"")
        return str(said.get("detail") or said.get("title") or "")
    except (ValueError, AttributeError):
        return ""
