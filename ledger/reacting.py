"""Let policies react to events: each at least once, whatever becomes of any one of them.

A policy asks for something and then moves its checkpoint, so what it asks for must be harmless when
asked twice. It never stops: an event that it cannot react to is parked and tried again
(`ledger.parking`), those about the same subject wait behind it, and all others go on.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import groupby, islice

import structlog

from ledger import parking
from ledger.domain.refusal import Refusal
from ledger.eventstore.port import EventStore, Position, Recorded
from ledger.eventstore.together import record_each
from ledger.following import (
    AWAY,
    PAGE,
    Policy,
    Steps,
    told_apart,
)
from ledger.models import Checkpoint, ParkedReaction
from ledger.places import READ_AGAIN_SECONDS, Places, move

NOTED_EVERY = 20
"""Reactions after which a policy's checkpoint moves: what is asked again at most after a crash."""
TOGETHER_MAX = 100
"""The same for a policy whose reactions are written together, in one append."""
AWAY_MAX = 20
"""Reactions of one pass that may fail as if store or database were away, while both answer: so many
are a fault of theirs and not of single events."""

log = structlog.get_logger()


class Reacting:
    """Lets some policies react, page by page. Not for threads: one loop has one.

    Only it parks what they cannot react to, so what is parked is read now and then only.
    """

    def __init__(self, policies: Sequence[Policy]) -> None:
        """Begin where their checkpoints are."""
        self._policies = policies
        self._wanted = frozenset[str]().union(*(policy.on for policy in policies))
        self._places = Places(policies)
        self._waiting: set[tuple[str, str]] = set()
        self._waiting_read: float | None = None

    def run_once(self, store: EventStore) -> int:
        """Move every policy on by at most one page; return how many events were reacted to.

        What is parked and due is tried again first.
        """
        try:
            return self._run(_Attempt(store, self._parked()))
        except BaseException:
            self._places.forget()
            self._waiting_read = None
            raise

    def _run(self, attempt: _Attempt) -> int:
        reacted = attempt.retry(self._policies)
        for start, group in self._places.groups():
            page = attempt.store.read_all(after=start, limit=PAGE, only=self._wanted)
            if page.next_position == start:
                continue
            told, _ = told_apart(group, page)
            standing = {policy.name for policy in group}
            for policy in told:
                events = [recorded for recorded in page.events if recorded.type in policy.on]
                at = self._react_to_page(attempt, policy, start, events)
                if at != start:
                    standing.discard(policy.name)
                    self._move([policy.name], at, page.next_position)
                reacted += len(events)
            self._move(sorted(standing), start, page.next_position)
        return reacted

    def _react_to_page(
        self, attempt: _Attempt, policy: Policy, start: Position, told: Sequence[Recorded]
    ) -> Position:
        """Let a policy react; note now and then how far, since it may be asked twice anyway.

        Returns: where it stands: the end of a page is noted for all policies at once.
        """
        step = NOTED_EVERY if policy.ask is None else TOGETHER_MAX
        for since in range(0, len(told), step):
            some = told[since : since + step]
            attempt.react_to_each(policy, some)
            if since + step < len(told):
                self._move([policy.name], start, some[-1].position)
                start = some[-1].position
        return start

    def _move(self, names: Sequence[str], start: Position, end: Position) -> None:
        if move(names, start, end) < len(names):
            self._places.forget()  # another process was here first
        else:
            self._places.moved(names, end)

    def _parked(self) -> set[tuple[str, str]]:
        """Return policy and subject of all that is parked."""
        now = time.monotonic()
        if self._waiting_read is None or now - self._waiting_read > READ_AGAIN_SECONDS:
            self._waiting = parking.subjects_parked([policy.name for policy in self._policies])
            self._waiting_read = now
        return self._waiting


def follow_policies(store: EventStore, policies: Sequence[Policy]) -> int:
    """Move every policy on by at most one page, from where its checkpoint is just now."""
    return Reacting(policies).run_once(store)


class _Attempt:
    """One pass of policies. waiting: policy and subject of what is parked; kept up to date."""

    def __init__(self, store: EventStore, waiting: set[tuple[str, str]]) -> None:
        self.store = store
        self._waiting = waiting
        self._away = 0

    def react_to_each(self, policy: Policy, some: Sequence[Recorded]) -> None:
        """React to events; park those that fail, and those behind one that is parked."""
        left = self._without_waiting(policy, some)
        while left:
            done: list[Recorded] = []
            try:
                _react(policy, self.store, left, done)
            except Exception as failure:  # parked and logged: other events do not wait for it
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
        [recorded] = islice(self.store.read_stream(row.stream, after_version=row.version - 1), 1)
        try:
            policy.react(recorded, self.store)
        except Exception as failure:  # it stays parked; whatever was parked beside it is tried
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
            self.store.ping()
            Checkpoint.objects.exists()
        except Exception:  # whatever it says, they are away: the first failure tells why
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
    except Exception as failure:  # of one of them: alone, the others are carried out
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
