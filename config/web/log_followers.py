"""Somebody who reads a log of leased work along, and what this process has just taken for them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from uuid import UUID

from django.utils import timezone

from ledger.access.standing import Bearer, who_may_still
from ledger.domain.tokens import Scope
from marketplace.storage.logs import LogKey
from metering.agent import wire

NOTED_SECONDS = 5.0
"""So often it is noted where agents are answered that a log is followed."""
HEARD_SECONDS = 1.0
"""So long after this process took news of a log it is not looked whether another did."""
SCOPE: Scope = "leases:read"
PIECE_BYTES = 64 * 1024
"""Most that is sent at once, and that is kept here for one who is slow."""


@dataclass(eq=False, slots=True)
class Follower:
    """One reader of one log. size: how far the log was when it was last read. reader: who it is.

    What was added is handed over only to who waits at that very place; whoever is behind, and
    whoever may be at the end, looks where the log is.
    """

    key: LogKey
    reader: Bearer
    size: int = 0
    news: asyncio.Event = field(default_factory=asyncio.Event)
    gone: bool = False
    _noted: float = -NOTED_SECONDS
    _heard: float = -HEARD_SECONDS
    _start: int = 0
    _added: bytes = b""

    def hear(self, piece: wire.LogPiece, size: int) -> None:
        """Take a piece that was added to a log of the lease, which is so long now."""
        if (piece.attempt, piece.stream) != (self.key.attempt, self.key.stream):
            return
        self._heard = time.monotonic()
        content = piece.content
        is_all = piece.offset + len(content) == size and not piece.ended
        if is_all and not self.news.is_set():
            self._start, self._added = piece.offset, content
            self.news.set()
            return
        follows = bool(self._added) and self._start + len(self._added) == piece.offset
        if is_all and follows and len(self._added) + len(content) <= PIECE_BYTES:
            self._added += content
        else:
            self.look()

    def end(self) -> None:
        """Have it read no further: its client has gone, or may not read any more."""
        self.gone = True
        self.look()

    def look(self) -> None:
        """Have it look where the log is."""
        self._added = b""
        self.news.set()

    def added_after(self, offset: int) -> bytes:
        """Return, once, what is known to follow an offset; none: look where the log is."""
        start, data = self._start, self._added
        self._added = b""
        return data[offset - start :] if start <= offset else b""

    def is_due(self) -> bool:
        """Tell, once, if it is to be noted now that the log is followed: of a new one at once."""
        now = time.monotonic()
        is_due = now - self._noted >= NOTED_SECONDS
        if is_due:
            self._noted = now
        return is_due

    def has_heard(self) -> bool:
        """Tell if news of its log come to this process."""
        return time.monotonic() - self._heard < HEARD_SECONDS


def reader_of(text: str) -> Bearer:
    """Return who reads, as the endpoint of logs says it."""
    tenant, user, token = (UUID(each) if each else None for each in text.split("/"))
    assert tenant is not None
    return Bearer(tenant, user, token)


def may_read(readers: Collection[Bearer]) -> set[Bearer]:
    """Return those that may read on."""
    return who_may_still(readers, SCOPE, now=timezone.now())
