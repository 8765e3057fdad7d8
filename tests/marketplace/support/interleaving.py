"""Stores and policies that can be stopped between any two writes."""

from __future__ import annotations

from collections.abc import Sequence

from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import START, Appended, EventStore, Position, Recorded, Write
from ledger.following import Policy


class Killed(BaseException):
    """The process is gone: nothing catches it."""


class Mortal(MemoryStore):
    """A store under which a process may be killed after a number of writes to it.

    left: writes until then; None: it lives.
    """

    left: int | None = None

    def append(self, stream, events, *, expected, by):  # type: ignore[no-untyped-def]
        """Append, and be killed if it was the last write."""
        done = super().append(stream, events, expected=expected, by=by)
        if events and self.left is not None:
            self.left -= 1
            if self.left <= 0:
                self.left = None
                raise Killed
        return done


class Whole(Mortal):
    """Appends to several streams all or nothing, as PostgreSQL does."""

    def append_whole(self, writes: Sequence[Write]) -> list[Appended]:
        """Append all of it as one write."""
        left, self.left = self.left, None
        done = super().append_whole(writes)
        if left is not None:
            if left <= 1:
                raise Killed
            self.left = left - 1
        return done


class Piecemeal(Mortal):
    """Appends to one stream after the other, as EventStoreDB does."""

    appends_whole = False

    def append_whole(self, writes: Sequence[Write]) -> list[Appended]:
        """Append in order up to the first that fails, or after which it is killed."""
        return self.append_each(writes)


class Stepping:
    """Policies that follow a store each at a pace of its own, and forget how far they were."""

    def __init__(self, store: EventStore, policies: Sequence[Policy]) -> None:
        self.store = store
        self.policies = list(policies)
        self.positions = [START] * len(self.policies)

    def step(self, number: int, events: int = 1) -> int:
        """Let one policy react to its next events; return to how many it did."""
        policy, done = self.policies[number], 0
        while done < events:
            page = self.store.read_all(after=self.positions[number], limit=1, only=policy.on)
            for recorded in page.events:
                self.react(policy, recorded)
                done += 1
            self.positions[number] = page.next_position
            if page.caught_up and not page.events:
                break
        return done

    def react(self, policy: Policy, recorded: Recorded) -> None:
        """React to one event; a refusal would hold it up for ever, so none may come."""
        policy.react(recorded, self.store)

    def forget(self, number: int, events: int) -> None:
        """Go back by some events, as after a crash before the checkpoint was written."""
        seen = [
            each.position
            for each in self.store.read_all(limit=10**6, only=self.policies[number].on).events
            if each.position <= self.positions[number]
        ]
        if seen:
            back = seen[-min(events, len(seen))]
            self.positions[number] = Position(back - 1)

    def drain(self) -> bool:
        """Let all of them react to all there is; tell if that was anything."""
        return sum(self.step(number, 10**6) for number in range(len(self.policies))) > 0
