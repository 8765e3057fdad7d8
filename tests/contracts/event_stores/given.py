"""Events to record, and the stores to record them in."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from uuid import UUID, uuid4

import psycopg
from django.db import connection

from ledger.domain.event import EVENT_TYPES, Event
from ledger.eventstore.port import (
    START,
    CaughtUp,
    EventStore,
    Expect,
    Meta,
    NewEvent,
    Position,
    Recorded,
)

BY = Meta(actor="user:contract", tenant_id=UUID(int=7), command_id=UUID(int=8))
PATIENCE_SECONDS = 60.0


class Noted(Event, name="contract.noted"):
    """Somebody wrote something down."""

    text: str


class NotedLoudly(Event, name="contract.noted-loudly"):
    """Its name begins like another's."""

    text: str


class FootNoted(Event, name="foot-contract.noted"):
    """Its name ends like another's."""

    text: str


class NotedBesides(Event, name="contractXnoted"):
    """Its name is what a pattern finds that takes the dot for any character."""

    text: str


KINDS: tuple[type[Event], ...] = (Noted, NotedLoudly, FootNoted, NotedBesides)
for _kind in KINDS:
    # Known only while a test of this folder runs: other tests look at all event types.
    del EVENT_TYPES[_kind.name]


def note(text: str = "x") -> NewEvent:
    """Return a new event with an id of its own."""
    return NewEvent(uuid4(), Noted(text=text))


def notes(count: int) -> list[NewEvent]:
    """Return new events that can be told apart."""
    return [note(str(index)) for index in range(count)]


def a_stream() -> str:
    """Return the name of a stream that nobody has used."""
    return f"contract-{uuid4()}"


@dataclass(frozen=True)
class Rig:
    """A store under test.

    start: where the store's log ended before the test; a store may be shared.
    another: makes a second store on the same events, as another process would.
    tamper: changes the stored data of one event behind the store's back; None: cannot be done.
    """

    store: EventStore
    another: Callable[[], EventStore]
    tamper: Callable[[str, int, str], None] | None = None
    start: Position = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "start", self.store.head())

    def put(self, stream: str, events: list[NewEvent]) -> Position:
        """Append to whatever is there."""
        return self.store.append(stream, events, expected=Expect.ANY, by=BY).position

    def since_start(self, only: frozenset[str] | None = None) -> list[Recorded]:
        """Return all that the test has recorded so far, page by page."""
        found: list[Recorded] = []
        position = self.start
        while True:
            page = self.store.read_all(after=position, limit=100, only=only)
            found += page.events
            position = page.next_position
            if page.caught_up:
                return found


def texts(recorded: Iterable[Recorded]) -> list[str]:
    """Return what was noted."""
    return [each.event.text for each in recorded if isinstance(each.event, KINDS)]  # type: ignore[attr-defined]  # every kind has it


class Follower:
    """A subscription read by a thread of its own."""

    def __init__(
        self,
        follow: Callable[[threading.Event], Iterator[Recorded | CaughtUp]],
        nudge: Callable[[], object],
    ) -> None:
        self._follow = follow
        self._nudge = nudge
        self._heard: queue.Queue[Recorded | CaughtUp | Exception] = queue.Queue()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            for each in self._follow(self._stop):
                self._heard.put(each)
        except Exception as failed:
            self._heard.put(failed)
        finally:
            connection.close()

    def next(self, deadline: float | None = None) -> Recorded | CaughtUp:
        """Return the next thing heard, before `deadline` on the monotonic clock."""
        left = PATIENCE_SECONDS if deadline is None else deadline - time.monotonic()
        heard = self._heard.get(timeout=max(0.0, left))
        if isinstance(heard, Exception):
            raise heard
        return heard

    def next_event(self) -> Recorded:
        """Return the next event heard."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            heard = self.next(deadline)
            if isinstance(heard, Recorded):
                return heard

    def rest(self, at: Position = START) -> None:
        """Wait until it has caught up, with what was at position `at` if given."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            heard = self.next(deadline)
            if isinstance(heard, CaughtUp) and heard.position >= at:
                return

    @contextmanager
    def running(self) -> Iterator[Follower]:
        """Follow until the block ends."""
        self._thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            self._nudge()
            self._thread.join(PATIENCE_SECONDS)
            assert not self._thread.is_alive(), "the subscription did not end"


def following(
    rig: Rig,
    *,
    after: Position | None = None,
    only: frozenset[str] | None = None,
    idle_seconds: float = 5.0,
) -> Follower:
    """Return a follower of the whole store, not yet running.

    Where its idle time is long, an append tells it at the end to look at its `stop`.
    """

    def nudge() -> None:
        if idle_seconds > 1:
            rig.put(a_stream(), [note("the end")])

    def follow(stop: threading.Event) -> Iterator[Recorded | CaughtUp]:
        start = rig.start if after is None else after
        return rig.store.subscribe(after=start, only=only, stop=stop, idle_seconds=idle_seconds)

    return Follower(follow, nudge)


def in_threads(jobs: Iterable[Callable[[], object]]) -> None:
    """Run jobs side by side, each with its own connections, and raise what any of them raised."""
    failures: list[BaseException] = []

    def run(job: Callable[[], object]) -> None:
        try:
            job()
        except BaseException as failed:
            failures.append(failed)
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert not any(thread.is_alive() for thread in threads), "a writer did not end"
    if failures:
        raise failures[0]


@contextmanager
def apart_from_django() -> Iterator[psycopg.Connection]:
    """Give a connection to the test's database, apart from Django's own."""
    parameters = connection.get_connection_params()
    for name in ("cursor_factory", "context"):
        parameters.pop(name)
    with psycopg.connect(**parameters, autocommit=True) as apart:
        yield apart


def wait_for_a_waiting_append(watcher: psycopg.Connection) -> int:
    """Wait until an append waits for another transaction's; return its backend's pid."""
    pause = threading.Event()
    for _look in range(int(PATIENCE_SECONDS / 0.01)):
        row = watcher.execute(
            "SELECT pid FROM pg_locks JOIN pg_database ON pg_database.oid = database"
            " WHERE locktype = 'advisory' AND NOT granted AND datname = current_database()"
        ).fetchone()
        if row is not None:
            return int(row[0])
        pause.wait(0.01)
    raise AssertionError("no append waits")
