"""The tunnel of a host: one websocket that its agent opens outwards, and the streams in it.

In a thread of its own, so that nothing here holds up the end of a lease or a measurement. Needs
the package `websockets` (the extra `access`).
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from uuid import UUID

import websockets
from websockets.asyncio.client import ClientConnection, connect

from ..runtimes.inside import NoWayIn
from .doors import CountIn, Door, Doors, Enter, Kind
from .frames import (
    CHUNK,
    CLOSE,
    CREDIT,
    DATA,
    END,
    FRAME_BYTES_MAX,
    HELLO,
    OPEN,
    OPENED,
    WINDOW,
    Frame,
    FrameWrong,
    closing,
    credit,
    frame,
    spoken,
)
from .line import Line

Allowed = Literal["ports", "shell"]

STREAMS_MAX = 256
PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.5, 30.0
REFUSED_PAUSE_SECONDS = 60.0
OPEN_SECONDS = 15.0

log = logging.getLogger(__name__)


class Tunnel:
    """Keeps a tunnel open until it is stopped. allowed: by the host's owner."""

    def __init__(
        self, line: Line, allowed: Allowed, *, enter: Enter, count_in: CountIn, secret: Path
    ) -> None:
        self._line = line
        self._allowed: Allowed = allowed
        self._enter = enter
        self._count_in = count_in
        self._secret = secret
        self._thread = threading.Thread(target=self._run, name="tunnel", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._begun = threading.Event()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End it, and all that goes through it."""
        self._begun.wait(5)
        if self._loop is not None and self._task is not None:
            with suppress(RuntimeError):  # it has ended by itself
                self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(10)

    def _run(self) -> None:
        with suppress(asyncio.CancelledError):
            asyncio.run(self._keep())

    async def _keep(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        self._begun.set()
        pause, told = PAUSE_SECONDS_MIN, ""
        doors = Doors(self._enter, self._count_in, secret=self._secret)
        try:
            while True:
                began = self._loop.time()
                try:
                    await self._once(doors)
                    trouble = "it was closed"
                except websockets.InvalidStatus as denied:
                    trouble = f"the server answered {denied.response.status_code}"
                    pause = REFUSED_PAUSE_SECONDS
                except (OSError, TimeoutError, websockets.WebSocketException, FrameWrong) as lost:
                    trouble = str(lost) or type(lost).__name__
                if self._loop.time() - began > PAUSE_SECONDS_MAX:
                    pause, told = PAUSE_SECONDS_MIN, ""
                if trouble != told:
                    log.warning("the tunnel: %s", trouble)
                told = trouble
                await asyncio.sleep(pause * (0.5 + random.random() / 2))
                pause = min(PAUSE_SECONDS_MAX, pause * 2)
        finally:
            doors.close()

    async def _once(self, doors: Doors) -> None:
        async with connect(
            self._line.url,
            additional_headers=self._line.headers(),
            compression=None,
            max_size=FRAME_BYTES_MAX,
            open_timeout=OPEN_SECONDS,
            **self._line.options(),
        ) as ws:
            await ws.send(spoken(HELLO, 0, {"allowed": self._allowed}))
            log.info("the tunnel is open: leases may be reached (%s)", self._allowed)
            await _Streams(ws, doors, self._allowed).serve()


class _Streams:
    """The streams of one connection."""

    def __init__(self, ws: ClientConnection, doors: Doors, allowed: Allowed) -> None:
        self._ws = ws
        self._doors = doors
        self._allowed = allowed
        self._streams: dict[int, _Stream] = {}
        self._tasks = set[asyncio.Task[None]]()

    async def serve(self) -> None:
        """Serve until the connection is lost. Raises: FrameWrong."""
        try:
            async for message in self._ws:
                got = Frame.read(message)
                if got.kind == OPEN:
                    await self._begin(got)
                elif (stream := self._streams.get(got.stream)) is not None:
                    stream.take(got)
        finally:
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _begin(self, got: Frame) -> None:
        number = got.stream
        try:
            wish = _Wish.read(got)
        except (FrameWrong, KeyError, TypeError, ValueError):
            await self._ws.send(closing(number, "the market asked what this agent does not know"))
            return
        if wish.what == "shell" and self._allowed != "shell":
            await self._ws.send(closing(number, "the owner of this host allows no shells"))
            return
        if len(self._streams) >= STREAMS_MAX or number in self._streams:
            await self._ws.send(closing(number, "too many connections into this host"))
            return
        stream = self._streams[number] = _Stream(self._ws, number)
        task = asyncio.create_task(self._run(stream, wish))
        stream.task = task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, stream: _Stream, wish: _Wish) -> None:
        reason = ""
        try:
            door = await self._doors.through(wish.lease_id, wish.what)
            try:
                sock = await door.connect(wish.what, wish.port, wish.key)
                with sock:
                    told = {"host_key": door.host_key}
                    await self._ws.send(spoken(OPENED, stream.number, told))
                    reason = await stream.carry(sock, door)
            finally:
                self._doors.leave(wish.lease_id, wish.what, door)
        except NoWayIn as refused:
            reason = str(refused)
        except asyncio.CancelledError:
            if not stream.is_ended:
                raise
            return
        except FrameWrong as wrong:
            reason = str(wrong)
        finally:
            self._streams.pop(stream.number, None)
        with suppress(websockets.WebSocketException):
            await self._ws.send(closing(stream.number, reason))


@dataclass(frozen=True, slots=True)
class _Wish:
    lease_id: UUID
    what: Kind
    port: int
    key: str

    @classmethod
    def read(cls, got: Frame) -> _Wish:
        """Read what an OPEN names. Raises: FrameWrong, KeyError, TypeError, ValueError."""
        said = got.said
        what, port, key = said["what"], said["port"], said["key"]
        if what not in ("shell", "port") or type(port) is not int or type(key) is not str:
            raise FrameWrong("no wish")
        if what == "port" and not 1 <= port <= 65_535:
            raise FrameWrong("no port")
        return cls(UUID(said["lease"]), what, port, key)


class _Stream:
    """One connection, from the side of the work. room: bytes that may be sent before credit."""

    def __init__(self, ws: ClientConnection, number: int) -> None:
        self.number = number
        self.task: asyncio.Task[None] | None = None
        self.is_ended = False
        self._ws = ws
        self._room = WINDOW
        self._more_room = asyncio.Event()
        self._inbox = asyncio.Queue[bytes | None]()
        self._held = 0

    def take(self, got: Frame) -> None:
        """Take a frame from the relay; never waits."""
        if got.kind == DATA:
            self._held += len(got.payload)
            if self._held > WINDOW:
                self._end()
            self._inbox.put_nowait(got.payload)
        elif got.kind == CREDIT:
            self._room += got.credited
            self._more_room.set()
        elif got.kind == END:
            self._inbox.put_nowait(None)
        elif got.kind == CLOSE:
            self._end()

    def _end(self) -> None:
        self.is_ended = True
        if self.task is not None:
            self.task.cancel()

    async def carry(self, sock: socket.socket, door: Door) -> str:
        """Carry bytes both ways until both are done, or the work is gone; return why it ended."""
        ways = [asyncio.create_task(self._up(sock)), asyncio.create_task(self._down(sock))]
        gone = asyncio.create_task(door.ended.wait())
        try:
            waiting = {*ways}
            while waiting and not gone.done():
                done, _ = await asyncio.wait({*waiting, gone}, return_when=asyncio.FIRST_COMPLETED)
                if any(each in waiting and each.exception() is not None for each in done):
                    return ""
                waiting -= done
            return "" if not waiting else "the work of this lease has ended"
        finally:
            for each in (*ways, gone):
                each.cancel()
            await asyncio.gather(*ways, gone, return_exceptions=True)

    async def _up(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while data := await loop.sock_recv(sock, CHUNK):
            while self._room < len(data):
                self._more_room.clear()
                await self._more_room.wait()
            self._room -= len(data)
            await self._ws.send(frame(DATA, self.number, data))
        await self._ws.send(frame(END, self.number))

    async def _down(self, sock: socket.socket) -> None:
        loop, used = asyncio.get_running_loop(), 0
        while (data := await self._inbox.get()) is not None:
            await loop.sock_sendall(sock, data)
            self._held -= len(data)
            used += len(data)
            if used >= WINDOW // 4:
                await self._ws.send(credit(self.number, used))
                used = 0
        with suppress(OSError):
            sock.shutdown(socket.SHUT_WR)
