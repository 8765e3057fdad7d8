"""What machines ask of a web process, answered beside its threads: they may all be held up.

A probe of the process must not wait for the database, nor behind whoever waits for it: a process
that cannot work at the moment is not broken, and starting it anew mends nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

UP = b'{"status": "up"}'


class Probes:
    """An ASGI application before another one: answers `/healthz` by itself."""

    def __init__(self, ordinary: App) -> None:
        self._ordinary = ordinary

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer a probe whatever its Host, since it is asked by address; pass on all else."""
        if scope["type"] == "http" and scope["path"] == "/healthz":
            await answer(send, 200, UP, bare=scope["method"] == "HEAD")
            return
        await self._ordinary(scope, receive, send)


async def answer(send: Send, status: int, body: bytes, *, bare: bool = False) -> None:
    """Send a JSON answer; bare: without its body."""
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if bare else body})
