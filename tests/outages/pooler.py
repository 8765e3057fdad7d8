"""A pooler in transaction mode, in little: it lends few connections of a server to many clients."""

from __future__ import annotations

import asyncio
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from config.database.roles import SERVES

STARTUP_CODES = (80877103, 80877104)
"""Requests for encryption, which are declined."""


@dataclass(slots=True)
class Lent:
    """A connection to the server, with what it said when it began."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    greeting: bytes


class Pooler:
    """Listens on loopback; whoever ends a transaction gives the server's connection back."""

    def __init__(self, socket: str, database: str, *, connections: int = 2) -> None:
        self._socket, self._database, self._most = socket, database, connections
        self._started = threading.Event()
        self._writers: list[asyncio.StreamWriter] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    @property
    def url(self) -> str:
        """Return its address."""
        return f"postgresql://{SERVES}@127.0.0.1:{self.port}/{self._database}"

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._listen())
        self._loop.run_forever()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0.05))
        self._server.close()
        for writer in self._writers:
            writer.close()
        self._loop.run_until_complete(asyncio.sleep(0.05))
        self._loop.close()

    async def _listen(self) -> None:
        self._free: asyncio.LifoQueue[Lent] = asyncio.LifoQueue()
        for _ in range(self._most):
            self._free.put_nowait(await self._connect())
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        self._started.set()

    async def _connect(self) -> Lent:
        reader, writer = await asyncio.open_unix_connection(f"{self._socket}/.s.PGSQL.5432")
        self._writers.append(writer)
        about = f"user\0{SERVES}\0database\0{self._database}\0\0".encode()
        writer.write(struct.pack("!II", 8 + len(about), 196608) + about)
        said = b""
        while True:
            kind, message = await _message(reader)
            said += message
            if kind == b"Z":
                return Lent(reader, writer, said)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                [length] = struct.unpack("!I", await reader.readexactly(4))
                [code] = struct.unpack("!I", (await reader.readexactly(length - 4))[:4])
                if code not in STARTUP_CODES:
                    break
                writer.write(b"N")
            lent = await self._free.get()
            self._free.put_nowait(lent)
            writer.write(lent.greeting)
            while True:
                kind, message = await _message(reader)
                if kind == b"X":
                    break
                await self._transaction(message, reader, writer)
        writer.close()

    async def _transaction(
        self, first: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Lend a connection until the server says that no transaction is open."""
        lent = await self._free.get()
        try:
            lent.writer.write(first)
            if first[:1] not in b"QS":
                await _pass_on_until_sync(reader, lent.writer)
            while True:
                kind, message = await _message(lent.reader)
                writer.write(message)
                if kind != b"Z":
                    continue
                if message[-1:] == b"I":
                    return
                kind, message = await _message(reader)
                lent.writer.write(message)
                if kind not in (b"Q", b"S"):
                    await _pass_on_until_sync(reader, lent.writer)
        finally:
            self._free.put_nowait(lent)


async def _pass_on_until_sync(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        kind, message = await _message(reader)
        writer.write(message)
        if kind == b"S":
            return


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readexactly(5)
    [length] = struct.unpack("!I", head[1:])
    return head[:1], head + await reader.readexactly(length - 4)
