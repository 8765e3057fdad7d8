"""A websocket of a browser, carried to leased work over a stream of its own.

The browser's end is the server's; to the work a websocket of its own is opened, so that frames of
either are checked before anything of them goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidHandshake
from websockets.frames import Close, Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import OPEN
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from config.web.application import Receive, Scope, Send
from config.web.workplaces.exchange import Header, to_work
from config.web.workplaces.origin import Place
from config.web.workplaces.stream import WorkStream

MESSAGE_BYTES_MAX = 16 << 20
HANDSHAKE_SECONDS = 20.0
NORMAL, GONE, TOO_BIG = 1000, 1001, 1009
OF_THE_HANDSHAKE = (b"host", b"connection", b"upgrade", b"sec-websocket-")


class SocketRefused(Exception):
    """The work takes no websocket there."""


async def carry(
    scope: Scope, receive: Receive, send: Send, stream: WorkStream, place: Place, *, scheme: str
) -> None:
    """Carry messages both ways until either side ends it. Raises: SocketRefused."""
    await receive()  # that it connects
    path = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1")
    query = scope.get("query_string", b"").decode("latin-1")
    target = f"{path}?{query}" if query else path
    protocol = ClientProtocol(
        parse_uri(f"ws://127.0.0.1:{place.port}{target}"),
        subprotocols=[Subprotocol(each) for each in scope.get("subprotocols", [])] or None,
        max_size=MESSAGE_BYTES_MAX,
    )
    await _shake_hands(protocol, stream, to_work(scope["headers"], place, scheme))
    await send({"type": "websocket.accept", "subprotocol": protocol.subprotocol})
    up = asyncio.create_task(_up(protocol, receive, stream))
    down = asyncio.create_task(_down(protocol, send, stream))
    try:
        await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        up.cancel()
        down.cancel()
        await asyncio.gather(up, down, return_exceptions=True)
    code = GONE
    if not down.cancelled() and down.exception() is None:
        code = down.result()
    with suppress(OSError, RuntimeError):  # it may be closed already
        await send({"type": "websocket.close", "code": code if _may_be_said(code) else NORMAL})


async def _shake_hands(
    protocol: ClientProtocol, stream: WorkStream, headers: Iterable[Header]
) -> None:
    request = protocol.connect()
    for name, value in headers:
        if not name.startswith(OF_THE_HANDSHAKE):
            request.headers[name.decode()] = value.decode("latin-1")
    protocol.send_request(request)
    try:
        async with asyncio.timeout(HANDSHAKE_SECONDS):
            await _flush(protocol, stream)
            while protocol.state is not OPEN:
                data = await stream.read()
                if data:
                    protocol.receive_data(data)
                else:
                    protocol.receive_eof()
                if protocol.handshake_exc is not None or not data:
                    raise SocketRefused() from protocol.handshake_exc
    except (TimeoutError, ConnectionError, InvalidHandshake):
        raise SocketRefused() from None


async def _up(protocol: ClientProtocol, receive: Receive, stream: WorkStream) -> None:
    while True:
        message = await receive()
        if message["type"] != "websocket.receive":
            code = message.get("code") or NORMAL
            with suppress(Exception):  # it may have ended there meanwhile
                protocol.send_close(code if _may_be_said(code) else NORMAL)
                await _flush(protocol, stream)
            return
        if message.get("bytes") is not None:
            protocol.send_binary(message["bytes"])
        else:
            protocol.send_text(message["text"].encode())
        await _flush(protocol, stream)


async def _down(protocol: ClientProtocol, send: Send, stream: WorkStream) -> int:
    """Pass on what comes; return the code with which the work ended it."""
    parts, size, kind = list[bytes](), 0, Opcode.BINARY
    while True:
        for event in protocol.events_received():
            if isinstance(event, Response) or not isinstance(event, Frame):
                continue
            if event.opcode is Opcode.CLOSE:
                with suppress(ConnectionError):
                    await _flush(protocol, stream)
                return Close.parse(bytes(event.data)).code
            if event.opcode not in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
                continue
            kind = event.opcode if event.opcode is not Opcode.CONT else kind
            parts.append(bytes(event.data))
            size += len(event.data)
            if size > MESSAGE_BYTES_MAX:
                return TOO_BIG
            if event.fin:
                whole = b"".join(parts)
                parts, size = [], 0
                if kind is Opcode.TEXT:
                    await send({"type": "websocket.send", "text": whole.decode()})
                else:
                    await send({"type": "websocket.send", "bytes": whole})
        await _flush(protocol, stream)  # pongs, for one
        data = await stream.read()
        if not data:
            return GONE
        protocol.receive_data(data)


async def _flush(protocol: ClientProtocol, stream: WorkStream) -> None:
    data = b"".join(protocol.data_to_send())
    if data:
        await stream.write(data)


def _may_be_said(code: int) -> bool:
    """Tell if a code of an end may stand in a frame: some only tell that there was none."""
    return code in (1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011) or 3000 <= code < 5000
