"""Word of what ends somebody's right to go on, in every process that serves, as it is recorded.

What is open outlives the request that opened it, so it is looked at again and again. News makes
the next look come at once, and a few more soon after: read models are a moment behind events.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog
from django.db import DatabaseError

from ledger.domain.events import MemberAdmitted, MemberRemoved, SecondFactorRemoved, TokenRevoked
from ledger.eventstore import default_store
from ledger.eventstore.port import CaughtUp, EventStore, Position, StoreError
from ledger.following import names_of
from listings.domain.events import HostRetired
from marketplace.domain.facts.events import LeaseClosed, LeaseEnding

ENDS = names_of(
    MemberAdmitted,  # with other roles than before
    MemberRemoved,
    SecondFactorRemoved,
    TokenRevoked,
    HostRetired,
    LeaseEnding,
    LeaseClosed,
)
AGAIN_SECONDS = (0.1, 0.2, 0.4, 0.8)
"""So long after news, and after one another, it is looked again."""
RETRY_SECONDS = 1.0

log = structlog.get_logger()


class News:
    """One who waits for news. Of one event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()
        self._again: list[float] = []

    def ring(self) -> None:
        """Say that there are some. From any thread."""
        with contextlib.suppress(RuntimeError):  # that loop has ended
            self._loop.call_soon_threadsafe(self._rung.set)

    async def wait(self, seconds: float) -> bool:
        """Wait for so long at most; return whether to look now because of news."""
        soon = bool(self._again)
        try:
            async with asyncio.timeout(min(seconds, self._again.pop(0)) if soon else seconds):
                await self._rung.wait()
        except TimeoutError:
            return soon
        self._rung.clear()
        self._again = list(AGAIN_SECONDS)
        return True


class Endings:
    """Follows the event store while anybody waits for news. For threads."""

    def __init__(self, store: Callable[[], EventStore] = default_store) -> None:
        self._store = store
        self._waiting: set[News] = set()
        self._guard = threading.Lock()
        self._following = False

    @contextmanager
    def heard(self) -> Iterator[News]:
        """Give news to somebody until the end of the block."""
        news = News()
        with self._guard:
            self._waiting.add(news)
            if not self._following:
                self._following = True
                threading.Thread(target=self._follow, name="endings", daemon=True).start()
        try:
            yield news
        finally:
            with self._guard:
                self._waiting.discard(news)

    def _follow(self) -> None:
        stop = threading.Event()
        after: Position | None = None
        while self._is_wanted():
            try:
                store = self._store()
                after = store.head() if after is None else after
                some = False
                for told in store.subscribe(after=after, only=ENDS, stop=stop):
                    if not isinstance(told, CaughtUp):
                        some = True
                        continue
                    after = told.position
                    if some:
                        self._ring()
                        some = False
                    if not self._is_wanted(retire=False):
                        break
            except (StoreError, DatabaseError) as lost:
                log.warning("endings.waiting", error=str(lost).strip())
                time.sleep(RETRY_SECONDS)

    def _is_wanted(self, *, retire: bool = True) -> bool:
        """Tell if anybody waits; where nobody does, the next who comes starts another following."""
        with self._guard:
            if not self._waiting and retire:
                self._following = False
            return bool(self._waiting)

    def _ring(self) -> None:
        with self._guard:
            waiting = list(self._waiting)
        for news in waiting:
            news.ring()


endings = Endings()
"""Of this process."""
