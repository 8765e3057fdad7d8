"""What happens on the market, sent to every open page as it happens.

One thread a process follows the event store, renders what is new once, and hands the same text to
every socket of the process through bounded queues (32 microseconds of CPU a message where
rendering for each socket takes 417). A page that cannot keep up loses the oldest, never the
newest. With REDIS_URL one process follows for all, and the text travels through channels-redis.

A page says up to where it shows the market (`?after=`), since it is rendered before its socket
opens and may be without one for a while; what it missed is the first that it is told.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, ClassVar
from urllib.parse import parse_qs

import structlog
from asgiref.sync import async_to_sync
from channels.db import database_sync_to_async
from channels.layers import get_channel_layer
from django.conf import settings
from django.db import DatabaseError
from django.template.loader import render_to_string

from config.processes.loops import NotNow
from config.site.live.attendance import Attended
from config.site.live.redis_away import is_redis_away
from config.site.live.tape import KINDS, known_now, latest, line_of, line_of_row
from ledger.eventstore import default_store
from ledger.eventstore.port import CaughtUp, EventStore, Position, Recorded, StoreError
from ledger.following import names_of, wait_until_read
from ledger.rest.reading import PositionUnreadable, position_of

GROUP = "market"
QUEUE_MAX = 64
LINES_MAX = 40
RETRY_SECONDS = 1.0
PLACED_SECONDS_MAX = 3.0
"""How long a socket waits for the following to begin; a store that is away is not waited for."""
SHOWN_SECONDS_MAX = 2.0
"""How long the rows are waited for before pages are told: they ask at once for what changed. Rows
that are further behind hold up no news; pages that show more than the tape also ask by the clock.
"""
MISSED_MAX = 500
"""So many events are looked through for what a page missed; after more, its tape is made anew."""
ON_TAPE = names_of(*KINDS)

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Fragment:
    """What pages swap in for all that happened up to `position`."""

    text: str
    position: Position


def render_fragment(recorded: Iterable[Recorded]) -> str:
    """Return what pages swap in for these events, newest first; empty for nothing to show."""
    lines = (
        (each.position, line)
        for each in reversed(list(recorded))
        if (line := line_of(each.event, known_now)) is not None
    )
    told = list(islice(lines, LINES_MAX))  # of a bulk, nobody looks up what is not shown
    if not told:
        return ""
    shown = [{"position": position, "line": line} for position, line in told]
    trades = [line for _, line in reversed(told) if line.is_trade]
    return render_to_string("live/fragment.html", {"lines": shown, "trades": trades})


def missed(store: EventStore, after: Position) -> Fragment:
    """Return what happened after a position and until now; its text is empty for nothing."""
    page = store.read_all(after=after, limit=MISSED_MAX, only=ON_TAPE)
    if page.caught_up:
        return Fragment(render_fragment(page.events), page.next_position)
    rows = latest(LINES_MAX)
    lines = [{"position": row.position, "line": line_of_row(row)} for row in rows]
    text = render_to_string("live/fragment.html", {"lines": lines, "anew": True})
    return Fragment(text, Position(rows[0].position) if rows else after)


class Hub:
    """The sockets of this process that want to hear of the market.

    rows: the read models that pages show; they are told of nothing that those do not hold.
    """

    def __init__(self, rows: Sequence[str] = ()) -> None:
        self._rows = rows
        self._queues: dict[asyncio.Queue[Fragment], asyncio.AbstractEventLoop] = {}
        self._guard = threading.Lock()
        self._tail: threading.Thread | None = None
        self._placed = threading.Event()

    async def join(self) -> asyncio.Queue[Fragment]:
        """Return a new queue; whatever happens once this has returned is put on it.

        The first one starts the following, and waits until that has taken its place in the store:
        a tail that looks for the head later would miss what happened in between.
        """
        queue: asyncio.Queue[Fragment] = asyncio.Queue(QUEUE_MAX)
        with self._guard:
            self._queues[queue] = asyncio.get_running_loop()
            if self._tail is None or not self._tail.is_alive():
                self._placed = threading.Event()
                self._tail = threading.Thread(
                    target=self._follow, args=(self._placed,), name="tail", daemon=True
                )
                self._tail.start()
            placed = self._placed
        await asyncio.to_thread(placed.wait, PLACED_SECONDS_MAX)
        return queue

    def leave(self, queue: asyncio.Queue[Fragment]) -> None:
        """Forget a queue. With the last one the following ends too."""
        with self._guard:
            self._queues.pop(queue, None)

    def publish(self, fragment: Fragment) -> None:
        """Put a fragment on every queue. From any thread."""
        with self._guard:
            queues = list(self._queues.items())
        for queue, loop in queues:
            with contextlib.suppress(RuntimeError):  # that loop has ended, and its socket with it
                loop.call_soon_threadsafe(_put, queue, fragment)

    def _follow(self, placed: threading.Event) -> None:
        stop = threading.Event()
        after: Position | None = None
        while True:
            try:
                store = default_store()
                if after is None:
                    after = store.head()
                    placed.set()
                waiting: list[Recorded] = []
                for told in store.subscribe(after=after, only=ON_TAPE, stop=stop):
                    if not isinstance(told, CaughtUp):
                        waiting.append(told)
                        continue
                    after = told.position
                    if text := render_fragment(waiting):
                        _wait_until_shown(self._rows, after)
                        self.publish(Fragment(text, after))
                    waiting.clear()
                    if self._retire():
                        return
            except (StoreError, DatabaseError) as lost:
                log.warning("live.waiting", error=str(lost).strip())
                if self._retire():
                    return
                stop.wait(RETRY_SECONDS)

    def _retire(self) -> bool:
        """Tell the tail to end when nobody listens; the next `join` starts another."""
        with self._guard:
            if self._queues:
                return False
            self._tail = None
            return True


def _wait_until_shown(rows: Sequence[str], position: Position) -> None:
    if rows:
        wait_until_read(rows, position, timeout_seconds=SHOWN_SECONDS_MAX)


def _put(queue: asyncio.Queue[Fragment], fragment: Fragment) -> None:
    if queue.full():
        queue.get_nowait()
    queue.put_nowait(fragment)


class Relay:
    """Follows the store for every process at once, where REDIS_URL joins several.

    shared: it does; otherwise each web process has its own tail and there is nothing to do.
    rows: as of Hub.
    """

    def __init__(self, *, shared: bool, rows: Sequence[str] = ()) -> None:
        self._shared, self._rows = shared, rows
        self._after: Position | None = None

    def run_once(self, store: EventStore, now: datetime) -> int:
        """Send what is new since the last pass; the first pass only takes its place."""
        if not self._shared:
            return 0
        if self._after is None:
            self._after = store.head()
            return 0
        page = store.read_all(after=self._after, only=ON_TAPE)
        sent = send_to_group(page.events, page.next_position, self._rows)
        # Only now: what was written while Redis was away is sent when it is back.
        self._after = page.next_position
        return sent


def send_to_group(events: Sequence[Recorded], position: Position, rows: Sequence[str] = ()) -> int:
    """Render events once and send them to the sockets of all processes.

    position: up to which they are. rows: as of Hub.
    """
    text = render_fragment(events)
    if text:
        _wait_until_shown(rows, position)
        layer = get_channel_layer()
        assert layer is not None
        message = {"type": "market.fragment", "text": text, "position": position}
        try:
            async_to_sync(layer.group_send)(GROUP, message)
        except Exception as away:
            if not is_redis_away(away):
                raise
            raise NotNow(f"Redis cannot be reached: {away}") from away
    return len(events)


class MarketConsumer(Attended):
    """The socket of a page. It only listens: what a page sends is not read.

    rows: as of Hub.
    """

    hub: ClassVar[Hub] = Hub()
    rows: ClassVar[Sequence[str]] = ()

    async def connect(self) -> None:
        """Accept signed-in people; close with 4401 for others, with 4429 for one too many."""
        self._sender: asyncio.Task[None] | None = None
        self._queue: asyncio.Queue[Fragment] | None = None
        if not await self.arrived():
            return
        # Joined before accepted: whatever happens once a page is connected reaches it.
        if settings.ENV.redis_url:
            assert self.channel_layer is not None
            self._queue = asyncio.Queue(QUEUE_MAX)
            await self.channel_layer.group_add(GROUP, self.channel_name)
        else:
            self._queue = await self.hub.join()
        await self.accept()
        self._sender = asyncio.create_task(self._send_all(self._queue))

    async def _send_all(self, queue: asyncio.Queue[Fragment]) -> None:
        """Send what happened since the page was rendered, and from then on all that happens."""
        told = await database_sync_to_async(self._missed)()
        if told.text:
            await self.send(text_data=told.text)
        while True:
            fragment = await queue.get()
            if fragment.position > told.position:
                await self.send(text_data=fragment.text)

    def _missed(self) -> Fragment:
        """Return what the page missed; nothing where it does not say up to where it knows."""
        asked = parse_qs(self.scope.get("query_string", b"").decode("ascii", "replace"))
        nothing = Fragment("", Position(-1))
        if "after" not in asked:
            return nothing
        try:
            store = default_store()
            told = missed(store, position_of(asked["after"][0], store))
            if told.text:
                _wait_until_shown(self.rows, told.position)
            return told
        except PositionUnreadable:
            return nothing
        except (StoreError, DatabaseError) as lost:
            log.warning("live.missed-unread", error=str(lost).strip())
            return nothing

    async def disconnect(self, code: int) -> None:
        """Leave the market."""
        self.left()
        if self._queue is not None:
            self.hub.leave(self._queue)
        if self._sender is not None:
            self._sender.cancel()
        if settings.ENV.redis_url and self.channel_layer is not None:
            await self.channel_layer.group_discard(GROUP, self.channel_name)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Ignore what the page says."""

    async def market_fragment(self, message: dict[str, Any]) -> None:
        """Pass on what another process rendered; a slow page loses the oldest here as well."""
        if self._queue is not None:
            _put(self._queue, Fragment(message["text"], Position(message["position"])))
