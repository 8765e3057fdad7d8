"""Files of kept folders for a browser: one file as it is, or a whole folder as an archive.

A page checks who asks and sends the browser on to a link that is good for a minute; this serves
such links, beside Django, since a folder may be larger than any answer that waits as a whole. What
a tenant's work wrote is only ever saved, never shown: as a page of ours it could act as whoever
looks at it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any
from urllib.parse import quote
from uuid import UUID

from config.web.application import App, Message, Receive, Scope, Send
from config.web.connections import abort_of
from config.web.intake import refuse
from ledger.domain.refusal import Refusal
from ledger.rest.problems import MethodNotAllowed, TooManyRequests
from marketplace.storage import default_storage
from marketplace.storage.contents import Pieces, file_at, manifest_at, size_of
from marketplace.storage.download_links import PREFIX, Wanted, wanted_by

THREADS = 4
DOWNLOADS_MAX, DOWNLOADS_OF_ONE_MAX = 16, 6
"""At once in a process, and of one organisation: each holds one blob in memory."""
PIECE_BYTES = 2**18
PIECE_SECONDS = 60.0
"""How long a client may take for a piece."""


class TooManyDownloads(TooManyRequests):
    """So many downloads are under way already: try again when one of them is done."""


class Downloads:
    """An ASGI application before another one: gives files of folders, passes on all else."""

    def __init__(self, ordinary: App, *, storage: Callable[[], Any] = default_storage) -> None:
        self._ordinary = ordinary
        self._storage = storage
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="downloads")
        self._running = Counter[str]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request for a file."""
        if scope["type"] != "http" or not scope["path"].startswith(PREFIX):
            await self._ordinary(scope, receive, send)
            return
        try:
            if scope["method"] != "GET":
                raise MethodNotAllowed()
            wanted = wanted_by(scope["path"].removeprefix(PREFIX))
            self._check_counts(wanted)
            self._running[wanted.tenant_id] += 1
            try:
                await self._give(wanted, scope, send)
            finally:
                self._running[wanted.tenant_id] -= 1
                self._running += Counter()  # forgets those without any
        except Refusal as refused:
            await refuse(scope, receive, send, refused)

    def _check_counts(self, wanted: Wanted) -> None:
        of_one = self._running[wanted.tenant_id]
        if of_one >= DOWNLOADS_OF_ONE_MAX or self._running.total() >= DOWNLOADS_MAX:
            raise TooManyDownloads(retry_after_seconds=5)

    async def _give(self, wanted: Wanted, scope: Scope, send: Send) -> None:
        size, pieces = await self._in_thread(lambda: _found(self._storage(), wanted))
        # The first piece before the head: what is lost is said as such, and not as a cut.
        first = await self._in_thread(lambda: next(pieces, None))
        try:
            await _within(send(_head(wanted, size)))
            piece = first
            while piece is not None:
                for at in range(0, len(piece), PIECE_BYTES):
                    body = piece[at : at + PIECE_BYTES]
                    await _within(
                        send({"type": "http.response.body", "body": body, "more_body": True})
                    )
                piece = await self._in_thread(lambda: next(pieces, None))
            await send({"type": "http.response.body", "body": b""})
        except (TimeoutError, OSError, Refusal):
            abort_of(scope)()  # it has begun: only an answer that breaks off says that it failed

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


async def _within(sending: Any) -> None:
    async with asyncio.timeout(PIECE_SECONDS):
        await sending


def _found(storage: Any, wanted: Wanted) -> tuple[int | None, Iterator[bytes]]:
    tenant_id = UUID(wanted.tenant_id)
    manifest = manifest_at(storage, tenant_id, wanted.manifest)
    pieces = Pieces(storage, tenant_id, manifest)
    if not wanted.path:
        return None, pieces.as_zip(datetime.fromisoformat(wanted.kept_at))
    file = file_at(manifest, wanted.path)
    return size_of(file), pieces.of_file(file)


def _head(wanted: Wanted, size: int | None) -> Message:
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "._- ") else "_" for c in wanted.name)
    named = f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(wanted.name, safe='')}"
    about = {
        "content-type": "application/octet-stream" if wanted.path else "application/zip",
        "content-disposition": named,
        "content-security-policy": "sandbox; default-src 'none'",
        "cross-origin-resource-policy": "same-origin",
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-store",
    }
    if size is not None:
        about["content-length"] = str(size)
    headers = [(name.encode(), value.encode("latin-1")) for name, value in about.items()]
    return {"type": "http.response.start", "status": 200, "headers": headers}
