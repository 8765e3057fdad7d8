"""What was measured of a lease, cut into equal parts: nothing twice and nothing lost."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ledger.access import Actor
from ledger.eventstore.memory import MemoryStore
from metering.agent.wire import Interval
from metering.models import Interval as Stored
from metering.queries import over_time
from metering.queries.over_time import Piece, extent, pieces
from tests.metering.world import (
    CONSUMING,
    LEASE,
    MINUTE,
    OTHER_HOST,
    OWNING,
    START,
    World,
    interval,
    minute,
)

pytestmark = pytest.mark.django_db


def cut(actor: Actor, count: int, *, minutes: int = 60) -> list[Piece]:
    known = extent(actor, LEASE)
    assert known is not None
    return pieces(
        actor, LEASE, known, starts_ms=START, ends_ms=START + minutes * MINUTE, count=count
    )


@pytest.fixture
def world() -> World:
    world = World(MemoryStore())
    world.fund()
    world.schedule()
    return world


def ten_minutes() -> Sequence[Interval]:
    return [interval(seq, seq, seq + 1) for seq in range(10)]


def test_an_interval_over_an_edge_is_divided(world: World) -> None:
    world.send(interval(1, 0, 4), interval(2, 4, 6), interval(3, 6, 9))

    first, second = cut(CONSUMING, 12)[:2]

    assert (first.granted_ms, first.used_ms) == (5 * MINUTE, 5 * MINUTE // 2)
    assert (second.granted_ms, second.used_ms) == (4 * MINUTE, 2 * MINUTE)
    assert sum(each.granted_ms for each in cut(CONSUMING, 7)) == 9 * MINUTE


def test_memory_is_the_most_of_each_gpu_and_all_of_them_together(world: World) -> None:
    world.send(
        interval(1, 0, 1, memory_used_mib=1_000),
        interval(2, 1, 2, memory_used_mib=3_000),
    )
    world.send(interval(1, 0, 2, "GPU-b", memory_used_mib=500), host_id=OTHER_HOST)

    assert [each.memory_mib for each in cut(CONSUMING, 12)] == [3_500]


def test_what_gpus_cannot_tell_is_unknown_and_not_nothing(world: World) -> None:
    world.send(interval(1, 0, 1, occupied_ms=None, busy_ms=None, memory_used_mib=None))

    [piece] = cut(CONSUMING, 12)

    assert (piece.granted_ms, piece.used_ms, piece.memory_mib) == (MINUTE, None, None)


def test_of_a_long_lease_closed_windows_are_shown_and_the_rest_as_it_came(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.report("started", 0)
    world.send(*ten_minutes(), *(interval(20 + n, 10 + n, 11 + n) for n in range(3)))
    world.close(minute(75))
    whole = cut(CONSUMING, 6)
    monkeypatch.setattr(over_time, "EXACT_MAX", 1)

    thinned = cut(CONSUMING, 6)

    known = extent(CONSUMING, LEASE)
    assert known is not None and known.shortest_ms == 10 * MINUTE
    assert [(each.at, each.granted_ms, each.used_ms) for each in thinned] == [
        (each.at, each.granted_ms, each.used_ms) for each in whole
    ]
    assert thinned[0].memory_mib == 1_000


def test_a_lease_whose_samples_are_dropped_is_shown_by_its_windows(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.report("started", 0)
    world.send(*ten_minutes(), *(interval(20 + n, 10 + n, 11 + n) for n in range(20)))
    world.close(minute(90))
    whole = cut(CONSUMING, 6)
    monkeypatch.setattr(over_time, "kept_from_ms", lambda: START + MINUTE)
    Stored.objects.all().delete()

    left = cut(CONSUMING, 6)

    known = extent(CONSUMING, LEASE)
    assert known is not None and not known.is_exact
    assert [(each.at, each.granted_ms, each.used_ms) for each in left] == [
        (each.at, each.granted_ms, each.used_ms) for each in whole
    ]
    assert {each.memory_mib for each in left} == {None}


def test_an_owner_sees_what_its_own_gpus_did(world: World) -> None:
    world.send(interval(1, 0, 1))

    mine, all_of_it = extent(OWNING, LEASE), extent(CONSUMING, LEASE)

    assert mine is not None and all_of_it is not None
    assert (mine.gpus, all_of_it.gpus) == (1, 2)
    assert [each.granted_ms for each in cut(OWNING, 1)] == [MINUTE]
