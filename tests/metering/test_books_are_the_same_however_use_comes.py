"""Use that comes twice, shuffled, or across a crash between two steps: the same books by hash."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from hashlib import sha256

import pytest

from ledger.domain.span import Window
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import Appended, Expect, Meta, NewEvent
from ledger.following import follow_projections
from ledger.models import JournalEntryRow
from ledger.projections.money import MONEY
from ledger.queries.money import disagreements
from tests.conftest import NOON
from tests.metering.world import HOST, OTHER_HOST, SHARES, World, interval, minute

pytestmark = pytest.mark.django_db
STEPS = 14
"""Appends of the month below, once its lease is there: each is crashed before and after."""


class Crash(BaseException):
    """The process is gone: nobody catches it."""


class CrashingStore(MemoryStore):
    """Goes down once, before or after the append of a number; the store itself is whole."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.is_after, self.appends = 0, False, 0

    def append(
        self, stream: str, events: Sequence[NewEvent], *, expected: int | Expect, by: Meta
    ) -> Appended:
        self.appends += 1
        self.left -= 1
        if self.left == 0 and not self.is_after:
            raise Crash
        appended = super().append(stream, events, expected=expected, by=by)
        if self.left == 0:
            raise Crash
        return appended


def lived(seed: int | None = None, *, crash_at: int = 0, is_after: bool = False) -> World:
    """Live an hour of two owners' GPUs; what is interrupted is begun again by who starts next."""
    store = CrashingStore()
    world = World(store)
    world.fund()
    world.hold(Window(NOON, minute(60)), 2)
    world.schedule(*SHARES, minutes=60)
    world.report("started", 0)
    world.report("started", 0, host_id=OTHER_HOST)
    sent = [
        (host_id, interval(number + 1, number, number + 1, uuid))
        for host_id, uuid in ((HOST, "GPU-a"), (OTHER_HOST, "GPU-b"))
        for number in range(60)
        if number % 7 or host_id == HOST
    ]
    if seed is not None:
        sent += sent
        random.Random(seed).shuffle(sent)
    for host_id, each in sent:
        world.send(each, host_id=host_id, now=minute(61))
    world.report("stopped", 60)
    world.report("stopped", 60, host_id=OTHER_HOST)
    for host_id in (HOST, OTHER_HOST):
        world.seen(minute(200), host_id=host_id)
    store.left, store.is_after, store.appends = crash_at, is_after, 0
    for _ in range(3):
        try:
            world.over(minute(60)) if not _is_over(world) else world.follow()
            world.close(minute(200))
            world.close(minute(200))
        except Crash:
            continue
        break
    while follow_projections(store, [MONEY]):
        pass
    assert disagreements() == []
    return world


def _is_over(world: World) -> bool:
    found = world.store.read_all(limit=10_000).events
    return any(each.type == "marketplace.lease-closed" for each in found)


def books() -> str:
    """Return a hash of all entries, line by line, but for when they were booked."""
    rows = JournalEntryRow.objects.order_by("entry_id")
    told = rows.values_list("entry_id", "period", "kind", "account_ids", "nanos")
    entries = [[str(each) for each in row] for row in told]
    assert len(entries) > 6
    return sha256(json.dumps(entries).encode()).hexdigest()


@pytest.mark.parametrize("seed", range(4))
def test_twice_and_shuffled(seed: int) -> None:
    lived(seed)

    assert books() == PLAIN


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("crash_at", range(1, STEPS + 1))
def test_crashed_between_any_two_steps(crash_at: int, is_after: bool) -> None:
    world = lived(crash_at, crash_at=crash_at, is_after=is_after)

    assert isinstance(world.store, CrashingStore)
    assert world.store.left <= 0, "fewer appends than steps: nothing crashed"
    assert books() == PLAIN


def test_once_and_in_order_is_what_the_others_are_held_to() -> None:
    world = lived()

    assert isinstance(world.store, CrashingStore)
    assert (books(), world.store.appends) == (PLAIN, STEPS)


PLAIN = "866bda484c71ac15d12d9db96469af758f6cdd47f41737d03eefa9fa8ca088a8"
"""The hash of the books where all came once, in order, and nothing crashed."""
