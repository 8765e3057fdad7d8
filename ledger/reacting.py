"""Let policies react to events: each at least once, whatever becomes of any one of them.

A policy asks for something and then moves its checkpoint, so what it asks for must be harmless when
asked twice. It never stops: an event that it cannot react to is parked and tried again
(`ledger.parking`), those about the same subject wait behind it, and all others go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import groupby, islice

import structlog

from ledger import parking
from ledger.domain.refusal import Refusal
from ledger.eventstore.port import EventStore, Page, Recorded
from ledger.eventstore.together import record_each
from ledger.following import (
    AWAY,
    PAGE,
    Policy,
    Steps,
    by_place,
    move_over,
    move_to,
    told_apart,
)
from ledger.models import Checkpoint, ParkedReaction

NOTED_EVERY = 20
"""Reactions after which a policy's checkpoint moves: what is asked again at most after a crash."""
TOGETHER_MAX = 100
"""The same for a policy whose reactions are written together, in one append."""
AWAY_MAX = 20
"""Reactions of one pass that may fail as if store or database were away, while both answer: so many
are a fault of theirs and not of single events."""

log = structlog.get_logger()


def follow_policies(store: EventStore, policies: Sequence[Policy]) -> int:
    """Move every policy on by at most one page; return how many events were reacted to.

    What is parked and due is tried again first.
    """
    names = [policy.name for policy in policies]
    attempt = _Attempt(store, parking.subjects_parked(names))
    reacted = attempt.retry(policies)
    for start, group in by_place(policies):
        wanted = frozenset().union(*(policy.on for policy in group))
        page = store.read_all(after=start, limit=PAGE, only=wanted)
        if page.next_position == start:
            continue
        told, idle = told_apart(group, page)
        move_over(idle, start, page.next_position)
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
                move_to([policy.name], some[-1].position)
        move_to([policy.name], page.next_position)
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
