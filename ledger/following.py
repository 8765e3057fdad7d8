"""Feed recorded events to those who follow them: projections (rows) and policies (requests).

A projection's rows and its checkpoint commit in one transaction: exactly once. A policy asks for
something and then moves its checkpoint: at least once, so what it asks for must be harmless when
asked twice.

A projection that fails stops there and says why in its checkpoint, since rows that lack an event
are wrong; others go on. A policy never stops: an event that it cannot react to is parked and tried
again (`ledger.parking`), those about the same subject wait behind it, and all others go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby, islice
from typing import TypeVar

import structlog
from django.db import InterfaceError, OperationalError, models, transaction

from ledger import parking
from ledger.domain.event import Event
from ledger.domain.redaction import redact
from ledger.domain.refusal import Refusal
from ledger.eventstore.port import (
    START,
    EventStore,
    OutcomeUnknown,
    Page,
    Position,
    Recorded,
    StoreUnavailable,
    StreamMoved,
)
from ledger.eventstore.together import Part, record_each
from ledger.models import Checkpoint, ParkedReaction
from ledger.prepared import ask
from ledger.rows import Rows

PAGE = 1_000
NOTED_EVERY = 20
"""Reactions after which a policy's checkpoint moves: what is asked again at most after a crash."""
TOGETHER_MAX = 100
"""The same for a policy whose reactions are written together, in one append."""
RETRY_AFTER = timedelta(seconds=5)
WAIT_STEP_SECONDS = 0.005

AWAY = (StoreUnavailable, OutcomeUnknown, StreamMoved, OperationalError, InterfaceError)
"""Store or database is away, or somebody was faster: the follower is fine and tries again. What
the database refuses (a constraint, a value) is the follower's own fault and stops it."""
AWAY_MAX = 20
"""Reactions of one pass that may fail as if store or database were away, while both answer: so many
are a fault of theirs and not of single events."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Projection:
    """A read model: its tables, the events it is told, and how they become rows."""

    name: str
    project: Callable[[Recorded, Rows], None]
    tables: tuple[type[models.Model], ...]
    on: frozenset[str]


Steps = Sequence[Sequence[Part]]
Asking = Callable[[Sequence[Recorded], EventStore], Sequence[Steps | None]]


def _stream_of(recorded: Recorded) -> str:
    return recorded.stream


@dataclass(frozen=True, slots=True)
class Policy:
    """When one of these events happens, something is asked for.

    ask: what each of several events asks for, step by step; a step is written in one append for all
        of them. None for an event that has to be reacted to alone. So is one that is refused.
    subject: what an event is about: those of one subject are reacted to in their order.
    """

    name: str
    react: Callable[[Recorded, EventStore], None]
    on: frozenset[str]
    ask: Asking | None = None
    subject: Callable[[Recorded], str] = _stream_of


def names_of(*kinds: type[Event]) -> frozenset[str]:
    """Return the stored names of event types: what a follower is told."""
    return frozenset(kind.name for kind in kinds)


def follow_projections(store: EventStore, projections: Sequence[Projection]) -> int:
    """Move every projection on by at most one page; return how many events were new to one.

    Projections at the same place share one read and one decoding of the page, and those that the
    page says nothing to are moved over it together: with a dozen read models that is the
    difference between one small transaction and a dozen.
    """
    moved = 0
    for start, group in _by_place(projections):
        page = store.read_all(after=start, limit=PAGE)
        if page.next_position == start:
            continue
        told, idle = _told(group, page)
        _move_over(idle, start, page.next_position)
        moved += len(page.events) if idle else 0
        if _project_together(told, start, page):
            moved += len(page.events) * len(told)
            continue
        for projection in told:
            try:
                _project_page(projection, start, page)
            except AWAY:
                raise
            except Exception as failure:
                _stop(projection.name, failure)
            else:
                moved += len(page.events)
    return moved


def _project_together(projections: Sequence[Projection], start: Position, page: Page) -> bool:
    """Project a page to several read models in one transaction; tell if that could be done.

    Where one of them fails nothing of it stands, and each has to be tried alone.
    """
    if len(projections) < 2:
        return False
    names = [projection.name for projection in projections]
    try:
        with transaction.atomic():
            held = Checkpoint.objects.select_for_update().filter(name__in=names, position=start)
            if len(held.order_by("name")) != len(names):
                return False  # another process was here first
            for projection in projections:
                _project(projection, page)
            _move_to(names, page.next_position)
    except AWAY:
        raise
    except Exception:
        return False
    return True


def _project_page(projection: Projection, start: Position, page: Page) -> None:
    with transaction.atomic():
        checkpoint = Checkpoint.objects.select_for_update().get(name=projection.name)
        if checkpoint.position != start:
            return  # another process was here first
        _project(projection, page)
        _move_to([projection.name], page.next_position)


def _project(projection: Projection, page: Page) -> None:
    told = [recorded for recorded in page.events if recorded.type in projection.on]
    rows = Rows()
    rows.expect(projection.tables, [recorded.event for recorded in told])
    for recorded in told:
        projection.project(recorded, rows)
    rows.flush()


_MOVE = """
UPDATE ledger_checkpoint SET position = %s, moved_at = %s, error = '' WHERE name = ANY(%s)
RETURNING set_config('synchronous_commit', 'off', true)
"""


def _move_to(names: Sequence[str], position: Position) -> None:
    """Note how far these are, with what commits beside. Nobody waits for the disk: what a server
    that breaks down has forgotten is done again."""
    ask(_MOVE, (position, datetime.now(UTC), list(names)))


def follow_policies(store: EventStore, policies: Sequence[Policy]) -> int:
    """Move every policy on by at most one page; return how many events were reacted to.

    What is parked and due is tried again first.
    """
    names = [policy.name for policy in policies]
    attempt = _Attempt(store, parking.subjects_parked(names))
    reacted = attempt.retry(policies)
    for start, group in _by_place(policies):
        wanted = frozenset().union(*(policy.on for policy in group))
        page = store.read_all(after=start, limit=PAGE, only=wanted)
        if page.next_position == start:
            continue
        told, idle = _told(group, page)
        _move_over(idle, start, page.next_position)
        for policy in told:
            reacted += attempt.react_to_page(policy, page)
    return reacted


class _Attempt:
    """One pass of policies. waiting: policy and subject of what is parked."""

    def __init__(self, store: EventStore, waiting: set[tuple[str, str]]) -> None:
        self._store = store
        self._waiting = waiting
        self._away = 0

    def react_to_page(self, policy: Policy, page: Page) -> int:
        """Let a policy react; note now and then how far, since it may be asked twice anyway."""
        told = [recorded for recorded in page.events if recorded.type in policy.on]
        step = NOTED_EVERY if policy.ask is None else TOGETHER_MAX
        for since in range(0, len(told), step):
            some = told[since : since + step]
            self._react_to_each(policy, some)
            if since + step < len(told):
                _note(policy, some[-1].position)
        _note(policy, page.next_position)
        return len(told)

    def _react_to_each(self, policy: Policy, some: Sequence[Recorded]) -> None:
        """React to events; park those that fail, and those behind one that is parked."""
        left = self._without_waiting(policy, some)
        while left:
            done: list[Recorded] = []
            try:
                _react(policy, self._store, left, done)
            except Exception as failure:
                self._need_present(failure)
                failed = left[len(done)]
                log.error("reaction.parked", policy=policy.name, exc_info=failure, **_of(failed))
                self._park(policy, failed, failure)
                left = self._without_waiting(policy, left[len(done) + 1 :])
            else:
                return

    def _without_waiting(self, policy: Policy, some: Sequence[Recorded]) -> list[Recorded]:
        """Leave out events behind parked ones of their subject, and park them too."""
        left = []
        for recorded in some:
            if (policy.name, policy.subject(recorded)) in self._waiting:
                self._park(policy, recorded, None)
            else:
                left.append(recorded)
        return left

    def _park(self, policy: Policy, recorded: Recorded, failure: Exception | None) -> None:
        subject = policy.subject(recorded)
        parking.park(policy.name, recorded, subject, failure=failure, now=datetime.now(UTC))
        self._waiting.add((policy.name, subject))

    def retry(self, policies: Sequence[Policy]) -> int:
        """Try again what is parked and due; return how much was carried out."""
        known, now = {policy.name: policy for policy in policies}, datetime.now(UTC)
        carried_out = 0
        for row in parking.due(list(known), now=now) if self._waiting else ():
            next_row: ParkedReaction | None = row
            while next_row is not None:
                next_row, done = self._tried(known[next_row.policy], next_row)
                carried_out += done
        return carried_out

    def _tried(self, policy: Policy, row: ParkedReaction) -> tuple[ParkedReaction | None, int]:
        """React to a parked event; return the next of its subject, and if that was done."""
        [recorded] = islice(self._store.read_stream(row.stream, after_version=row.version - 1), 1)
        try:
            policy.react(recorded, self._store)
        except Exception as failure:
            self._need_present(failure)
            log.warning("reaction.failed-again", policy=policy.name, error=repr(failure))
            parking.failed_again(row, failure, now=datetime.now(UTC))
            return None, 0
        following = parking.carried_out(row, now=datetime.now(UTC))
        if following is None:
            self._waiting.discard((row.policy, row.subject))
        return following, 1

    def _need_present(self, failure: Exception) -> None:
        """Raise the failure again where it is store or database that fail, and not one event."""
        if not isinstance(failure, AWAY):
            return
        self._away += 1
        if self._away > AWAY_MAX:
            raise failure
        try:
            self._store.ping()
            Checkpoint.objects.exists()
        except Exception:
            raise failure from None


def _of(recorded: Recorded) -> dict[str, object]:
    return {"type": recorded.type, "stream": recorded.stream, "position": recorded.position}


def _react(
    policy: Policy, store: EventStore, some: Sequence[Recorded], done: list[Recorded]
) -> None:
    """React to events in their order, together where that can be; note in `done` how far it is."""
    asked = _asked(policy, store, some)
    for alone, run in groupby(zip(some, asked, strict=True), key=lambda each: each[1] is None):
        pairs = list(run)
        # Where several cannot be asked for together, each is asked alone: that says what is wrong.
        settled = set() if alone else _settled_or_none(store, [steps or () for _, steps in pairs])
        for number, (recorded, _) in enumerate(pairs):
            if number not in settled:
                policy.react(recorded, store)
            done.append(recorded)


def _asked(policy: Policy, store: EventStore, some: Sequence[Recorded]) -> Sequence[Steps | None]:
    """Return what each event asks for; where that breaks off, each is reacted to alone."""
    alone: list[Steps | None] = [None] * len(some)
    if policy.ask is None:
        return alone
    try:
        return policy.ask(some, store)
    except Exception as failure:
        log.error("reactions.not-together", policy=policy.name, exc_info=failure)
        return alone


def _settled_or_none(store: EventStore, asked: Sequence[Steps]) -> set[int]:
    """Return those settled together; none where one of them makes all of them break off."""
    try:
        return _settled(store, asked)
    except Exception as failure:
        log.error("reactions.not-together", exc_info=failure)
        return set()


def _settled(store: EventStore, asked: Sequence[Steps]) -> set[int]:
    """Write the first steps of all, then the next ones; return the places of those not refused."""
    through = set(range(len(asked))) if len(asked) > 1 else set[int]()
    for step in range(max(map(len, asked))):
        places = [place for place in sorted(through) if step < len(asked[place])]
        if places:
            outcomes = record_each(store, [asked[place][step] for place in places])
            refused = {
                place
                for place, each in zip(places, outcomes, strict=True)
                if isinstance(each, Refusal)
            }
            through -= refused
    return through


def _note(policy: Policy, position: Position) -> None:
    """Note how far a policy is."""
    _move_to([policy.name], position)


FollowerT = TypeVar("FollowerT", Projection, Policy)


def _by_place(followers: Sequence[FollowerT]) -> list[tuple[Position, list[FollowerT]]]:
    """Group followers by where they stand; leave out those that stopped a moment ago."""
    names = [follower.name for follower in followers]
    known = {each.name: each for each in Checkpoint.objects.filter(name__in=names)}
    missing = [Checkpoint(name=name) for name in names if name not in known]
    if missing:
        Checkpoint.objects.bulk_create(missing, ignore_conflicts=True)
    retry_before = datetime.now(UTC) - RETRY_AFTER
    places: dict[Position, list[FollowerT]] = {}
    for follower in followers:
        checkpoint = known.get(follower.name)
        if checkpoint and checkpoint.error and (checkpoint.moved_at or retry_before) > retry_before:
            continue
        position = Position(checkpoint.position if checkpoint else START)
        places.setdefault(position, []).append(follower)
    return list(places.items())


def _told(followers: Sequence[FollowerT], page: Page) -> tuple[list[FollowerT], list[FollowerT]]:
    """Tell apart those that the page says something to and those that it does not."""
    types = {recorded.type for recorded in page.events}
    told = [follower for follower in followers if follower.on & types]
    return told, [follower for follower in followers if not follower.on & types]


_MOVE_OVER = """
UPDATE ledger_checkpoint SET position = %s, moved_at = %s, error = ''
 WHERE name = ANY(%s) AND position = %s
RETURNING set_config('synchronous_commit', 'off', true)
"""


def _move_over(followers: Sequence[FollowerT], start: Position, end: Position) -> None:
    """Move followers over a page that says nothing to them, unless somebody has already."""
    if followers:
        names = [follower.name for follower in followers]
        ask(_MOVE_OVER, (end, datetime.now(UTC), names, start))


def _stop(name: str, failure: Exception) -> None:
    log.error("follower.stopped", follower=name, error=repr(failure), exc_info=failure)
    Checkpoint.objects.filter(name=name).update(
        error=redact(f"{type(failure).__name__}: {failure}")[:2000], moved_at=datetime.now(UTC)
    )


def wait_until_read(names: Sequence[str], position: Position, *, timeout_seconds: float) -> bool:
    """Wait until every named follower has read up to `position`; tell if it came to that.

    This is read-your-writes: a command answers with a position, a read may ask to see it.
    """
    deadline = time.monotonic() + timeout_seconds
    while True:
        behind = Checkpoint.objects.filter(name__in=names, position__lt=position)
        known = Checkpoint.objects.filter(name__in=names).count()
        if known == len(names) and not behind.exists():
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(WAIT_STEP_SECONDS)


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a follower is behind.

    seconds: age of the oldest event it has not read; 0 when it has read everything. Not a count:
    positions are opaque, and on some stores their differences are bytes.
    error: why it stopped, if it did.
    """

    name: str
    seconds: float
    error: str


def lag(store: EventStore, *, now: datetime) -> list[Lag]:
    """Return how far each follower is behind, by name."""
    head = store.head()
    oldest: dict[int, float] = {}
    found = []
    for checkpoint in Checkpoint.objects.order_by("name"):
        position = checkpoint.position
        if position not in oldest:
            oldest[position] = 0.0 if position >= head else _age_after(store, position, now)
        found.append(Lag(checkpoint.name, oldest[position], checkpoint.error))
    return found


def _age_after(store: EventStore, position: int, now: datetime) -> float:
    events = store.read_all(after=Position(position), limit=1).events
    return max(0.0, (now - events[0].recorded_at).total_seconds()) if events else 0.0


def read_up_to(name: str) -> Position:
    """Return the position up to which a follower has read."""
    checkpoint = Checkpoint.objects.filter(name=name).first()
    return Position(checkpoint.position if checkpoint else START)


def last_moves() -> dict[str, datetime | None]:
    """Return when each follower last moved on, or stopped."""
    return dict(Checkpoint.objects.values_list("name", "moved_at"))
