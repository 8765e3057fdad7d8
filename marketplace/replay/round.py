"""Put the book back to where a round found it, and clear it again by the same code.

A round says up to where in the log the engine had read (`through`). The book of that moment is
the facts up to there and the engine's decisions before the round, taken in where the engine that
made them had read; it is folded from the newest snapshot before the round, if there is one.
Cleared again with the id and the moment of the round it must give the events that were recorded,
however much has happened since (I13).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal
from uuid import UUID
from weakref import WeakKeyDictionary

import structlog

from ledger.collecting import uncollected
from ledger.domain.event import Event
from ledger.domain.ids import LeaseId
from ledger.eventstore.port import START, EventStore, Position, Recorded
from marketplace import kernels
from marketplace.domain.book.book import READS, Book
from marketplace.domain.book.snapshot import restored
from marketplace.domain.clearing.fills import PRESENT, Rules
from marketplace.domain.decisions.decide import (
    RoundUnsound,
    considered,
    follow_up,
    on_fact,
    on_round,
)
from marketplace.domain.decisions.meanwhile import on_return, worked
from marketplace.domain.facts.events import (
    DECISIONS,
    ROUND_RULE,
    RULE,
    LeaseGranted,
    MarketEvent,
    Posed,
    RoundCleared,
)
from marketplace.domain.facts.instants import from_above
from marketplace.domain.orderbook.triggers import Trigger
from marketplace.domain.rounds.vetting import Part
from marketplace.folding import Folding, Overtaken
from marketplace.queries.market import RoundUnknown
from marketplace.replay.curves import Curve, curves_of
from marketplace.snapshots import snapshots_for
from marketplace.snapshots.port import Snapshot

PAGE = 1_000
FACTS_MAX = 200_000
"""Facts before a round, from the snapshot before it on, beyond which it is not replayed."""
COMPILED = (" search", " opened")
"""Stages that as Python take minutes for what a compiled round did in a second."""
KEPT_MAX = 128
"""Replays kept by this process: what they say of a round never changes."""

log = structlog.get_logger()

Outcome = Literal["identical", "different", "older-rule", "too-long"]


class LogTooLong(Exception):
    """More facts lie before the round than are gone through."""


@dataclass(frozen=True, slots=True)
class Found:
    """A round and the book as the engine had it just before.

    trigger: the fact that it answers; None in a round of patient bids. facts: how many were
    taken in. posed: the book on which it was worked out, where that was an older one.
    """

    book: Book
    cleared: RoundCleared
    granted: tuple[LeaseGranted, ...]
    trigger: Trigger | None
    facts: int
    posed: Book | None = None

    @property
    def looked_at(self) -> Book:
        """Return the book on which it was worked out."""
        return self.book if self.posed is None else self.posed


@dataclass(frozen=True, slots=True)
class Replayed:
    """What clearing a round again gave. differences: what is not as recorded, in words."""

    outcome: Outcome
    rule: str
    facts: int
    differences: tuple[str, ...] = ()
    curves: tuple[Curve, ...] = ()


def book_at(store: EventStore, market: str, round_id: UUID) -> Found:
    """Return a round and its book, which is the caller's own.

    Raises: RoundUnknown; LogTooLong.
    """
    with uncollected():
        snapshot = _snapshot_before(store, market, round_id)
        found = None if snapshot is None else _book_from(store, market, round_id, snapshot)
        found = found or _book_from(store, market, round_id, None)
        assert found is not None
        if found.cleared.posed is not None:
            found = replace(found, posed=_posed(store, market, found.cleared.posed))
    return found


def _posed(store: EventStore, market: str, posed: Posed) -> Book:
    """Return the book on which the problem of a round was posed."""
    snapshot = _snapshot_before_version(store, market, posed.version + 1)
    for start in (snapshot, None):
        folding = Folding(market, start, last=posed.version)
        try:
            while folding.position < posed.through or folding.version < posed.version:
                if folding.read_page(store):
                    break
        except Overtaken:
            continue
        folding.take_in(posed.through)
        return folding.book
    raise AssertionError("without a snapshot no decision has read less")


def _snapshot_before(store: EventStore, market: str, round_id: UUID) -> Snapshot | None:
    """Return the newest snapshot before a round that the log bears out."""
    versions = snapshots_for(store).versions(market)
    if not versions:
        return None
    decisions = store.read_stream(f"market-{market}", after_version=versions[0])
    at = next((each.version for each in decisions if _is_round(each.event, round_id)), 0)
    return _snapshot_before_version(store, market, at)


def _snapshot_before_version(store: EventStore, market: str, at: int) -> Snapshot | None:
    snapshots = snapshots_for(store)
    for version in reversed([each for each in snapshots.versions(market) if each < at]):
        snapshot = snapshots.at(market, version)
        if snapshot is not None and snapshot.is_in(store):
            return snapshot
    return None


def _is_round(event: Event, round_id: UUID) -> bool:
    return isinstance(event, RoundCleared) and event.round_id == round_id


def _book_from(
    store: EventStore, market: str, round_id: UUID, snapshot: Snapshot | None
) -> Found | None:
    """Fold up to a round; None where a decision had read less than the snapshot.

    Raises: RoundUnknown; LogTooLong.
    """
    stream, version, position = f"market-{market}", 0, START
    if snapshot is None:
        book = Book(market)
    else:
        book = restored(snapshot.state)
        version, position = snapshot.version, snapshot.next_position
    read_before = book.read_to
    later: list[Recorded] = []
    taken, trigger = 0, None
    facts = _facts(store, position)
    for recorded in facts:
        if recorded.stream != stream:
            later.append(recorded)
            continue
        if recorded.version <= version:
            continue  # in the snapshot: appended before it was taken, read after
        event = recorded.event
        if isinstance(event, DECISIONS):
            if event.through < read_before:
                return None
            ready = [each for each in later if each.position <= event.through]
            later = later[len(ready) :]
            taken += len(ready)
            if taken > FACTS_MAX:
                raise LogTooLong(round_id)
            for fact in ready:
                trigger = book.apply(fact.event, fact.position)
                book.read_to = Position(fact.position)
        if isinstance(event, RoundCleared) and _is_round(event, round_id):
            grants = _grants(facts, stream, event)
            return Found(book, event, grants, None if event.lane == "round" else trigger, taken)
        book.apply(event, recorded.position)
        if isinstance(event, RoundCleared):
            trigger = follow_up(book, trigger, (event,))
    raise RoundUnknown(round_id=round_id)


def _facts(store: EventStore, position: Position) -> Iterator[Recorded]:
    while True:
        page = store.read_all(after=position, limit=PAGE, only=READS)
        yield from page.events
        position = page.next_position
        if page.caught_up:
            return


def _grants(
    facts: Iterator[Recorded], stream: str, cleared: RoundCleared
) -> tuple[LeaseGranted, ...]:
    """Return the grants of a round: they follow it in its stream, in the same append."""
    grants: list[LeaseGranted] = []
    while len(grants) < cleared.grants:
        recorded = next(facts)
        if recorded.stream == stream:
            assert isinstance(recorded.event, LeaseGranted)
            grants.append(recorded.event)
    return tuple(grants)


def replay_round(store: EventStore, *, market: str, round_id: UUID) -> Replayed:
    """Clear a round again and compare; the answer is kept, because it never changes.

    Raises: RoundUnknown.
    """
    with _lock:
        kept = _kept.setdefault(store, OrderedDict())
        known = kept.get(round_id)
    if known is None:
        known = _replay(store, market, round_id)
        with _lock:
            kept[round_id] = known
            while len(kept) > KEPT_MAX:
                kept.popitem(last=False)
    return known


_kept: WeakKeyDictionary[EventStore, OrderedDict[UUID, Replayed]] = WeakKeyDictionary()
_lock = threading.Lock()


def _replay(store: EventStore, market: str, round_id: UUID) -> Replayed:
    try:
        found = book_at(store, market, round_id)
    except LogTooLong:
        return Replayed("too-long", "", FACTS_MAX)
    cleared, book = found.cleared, found.looked_at
    now = from_above(cleared.at)
    bids = considered(book, found.trigger)
    curves = curves_of(book, bids, found.granted, now=now)
    recorded: list[MarketEvent] = [cleared, *found.granted]
    again: Sequence[MarketEvent] = ()
    try:
        again = cleared_again(found, now)
        differences = _differences(recorded, again)
    except RoundUnsound as unsound:
        differences = (f"it is unsound: {unsound}",)
    except Exception as broken:
        # A mistake in the rules of today is no reason to say nothing of a round of yesterday.
        log.exception("replay.broken", market=market, round=str(round_id))
        differences = (f"clearing it again broke off: {broken!r}",)
    outcome: Outcome = "different" if differences else "identical"
    if differences and cleared.rule not in (RULE, ROUND_RULE):
        outcome = "older-rule"
    return Replayed(outcome, cleared.rule, found.facts, differences, tuple(curves))


def cleared_again(found: Found, now: int, rules: Rules = PRESENT) -> Sequence[MarketEvent]:
    """Clear a round again, with the steps it took; under the present rules or others.

    Raises: RoundUnsound.
    """
    round_id = found.cleared.round_id
    if found.trigger is None:
        certificate = found.cleared.certificate
        steps = dict(certificate.iterations) if certificate is not None else None
        if any(count and name.endswith(COMPILED) for name, count in (steps or {}).items()):
            kernels.use()
        aside = () if certificate is None else certificate.aside
        parts: dict[LeaseId, Part] = {}
        events = on_round(
            found.looked_at,
            now=now,
            round_id=round_id,
            rules=rules,
            steps=steps,
            aside=aside,
            parts=parts,
        )
        posed = found.cleared.posed
        if posed is None:
            return events
        before = found.looked_at.calendar.spans()
        return on_return(found.book, worked(events, parts), posed=posed, before=before)
    return on_fact(found.book, found.trigger, now=now, round_id=round_id, rules=rules)


NOT_COMPARED = ("rule", "binds")
"""What says by which rules it was decided, and nothing of what came out."""


def _differences(recorded: Sequence[Event], again: Sequence[Event]) -> tuple[str, ...]:
    """Say what came out otherwise."""
    if len(recorded) != len(again):
        return (f"{len(recorded)} events were recorded, {len(again)} came out",)
    found = []
    for index, (was, now) in enumerate(zip(recorded, again, strict=True)):
        if type(was) is not type(now):
            found.append(f"event {index}: {was.name} was recorded, {now.name} came out")
            continue
        found += [
            f"event {index}: {each.name}"
            for each in fields(was)  # type: ignore[arg-type]  # every event is a dataclass
            if each.name not in NOT_COMPARED and getattr(was, each.name) != getattr(now, each.name)
        ]
    return tuple(found)
