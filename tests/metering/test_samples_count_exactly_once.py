"""Ingest on real tables: duplicates, reorder, restarts, crashes, and what must be refused."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction

from ledger.domain.ids import LeaseId
from metering.agent.wire import Health, SampleBatch, WireError
from metering.ingest import samples as ingest
from metering.ingest import storing
from metering.ingest.grants import Grants, LeaseNotHere
from metering.ingest.reports import ReportConflict
from metering.ingest.samples import SampleBeforeLease, SampleConflict, SampleTooEarly
from metering.models import AgentContact, HealthEvent, Interval, Watermark, WorkReport
from tests.conftest import NOON
from tests.metering.world import (
    BOOT,
    HOST,
    LEASE,
    OTHER_HOST,
    OWNER,
    START,
    World,
    interval,
    minute,
)

pytestmark = pytest.mark.django_db


def health(seq: int, **fields: Any) -> Health:
    known: dict[str, Any] = {"gpu_uuid": "GPU-a", "kind": "xid", "at": NOON, "detail": "XID 79"}
    return Health(seq=seq, **(known | fields))


def stored() -> list[tuple[int, int]]:
    return list(Interval.objects.order_by("start_ms").values_list("start_ms", "end_ms"))


def test_a_batch_is_stored_and_acknowledged_up_to_its_last_number(world: World) -> None:
    world.schedule()

    acknowledged = world.send(interval(1, 0, 1), interval(3, 1, 2), health=(health(2), health(4)))

    assert acknowledged == 4
    assert Interval.objects.count() == 2
    assert HealthEvent.objects.count() == 2
    assert Watermark.objects.get().seen_ms == START + 120_000


def test_a_resend_changes_nothing_and_is_acknowledged_alike(world: World) -> None:
    world.schedule()
    batch = [interval(seq, seq, seq + 1) for seq in range(1, 6)]
    world.send(*batch)

    assert world.send(*batch) == 5
    assert world.send(*batch[:3], interval(9, 9, 10)) == 9

    assert Interval.objects.count() == 6


def test_any_order_and_any_cutting_into_batches_stores_the_same(world: World) -> None:
    world.schedule()
    every = [interval(seq, seq, seq + 1) for seq in range(1, 40)]
    mix = random.Random(7)
    for _ in range(20):
        chosen = sorted(mix.sample(every, mix.randint(1, 12)), key=lambda each: each.seq)
        world.send(*chosen)
    world.send(*every)

    assert stored() == [(each.start_ms, each.end_ms) for each in every]
    assert Watermark.objects.get().seen_ms == every[-1].end_ms


def test_a_restarted_agent_counts_from_one_again_under_a_new_boot_id(world: World) -> None:
    world.schedule()
    world.send(interval(1, 0, 1))

    world.send(interval(1, 1, 2), boot_id=UUID(int=62))

    assert len(stored()) == 2


@pytest.mark.parametrize(
    "step", ["_TAKEN", "_BEGIN_RUNS", "_SHARE_CUTOFFS", "_MOVE_WATERMARKS", "_PUT_HEALTH", "_TAKE"]
)
def test_a_crash_after_any_step_stores_nothing_and_the_resend_everything(
    world: World, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The claim of a number and the sample itself stand or fall together."""
    world.schedule()
    batch = SampleBatch(boot_id=BOOT, batch=(interval(1, 0, 1),), health=(health(2),))
    with monkeypatch.context() as broken:
        # The statement succeeds, and the process dies before the next one.
        sql = getattr(storing, step)
        broken.setattr(storing, step, Dying(sql))
        with pytest.raises(Crashed):
            take(world, batch)
    assert (stored(), HealthEvent.objects.count(), Watermark.objects.count()) == ([], 0, 0)

    take(world, batch)

    assert len(stored()) == 1
    assert HealthEvent.objects.count() == 1


class Crashed(Exception):
    pass


class Dying(str):
    """An SQL text that kills whoever has executed it."""


def take(world: World, batch: SampleBatch) -> int:
    def die_after(execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        result = execute(sql, params, many, context)
        if isinstance(sql, Dying):
            raise Crashed
        return result

    with connection.execute_wrapper(die_after):
        return ingest.take_samples(
            world.store, world.grants, batch, host_id=HOST, tenant_id=OWNER, now=minute(120)
        )


@pytest.mark.parametrize(
    "other",
    [
        interval(2, 1, 3),
        interval(2, 1, 2, busy_ms=None),
        interval(2, 1, 2, memory_used_mib=2),
        interval(2, 1, 2, busy_ms=1),
    ],
)
def test_the_same_number_with_another_content_is_refused_whole(world: World, other: Any) -> None:
    world.schedule()
    world.send(interval(1, 0, 1), interval(2, 1, 2))

    with pytest.raises(SampleConflict) as refused, transaction.atomic():
        world.send(other, interval(3, 3, 4))

    assert refused.value.details["seq"] == 2
    assert len(stored()) == 2


def test_a_number_belongs_to_an_interval_or_to_a_health_event(world: World) -> None:
    world.schedule()
    world.send(interval(1, 0, 1), health=(health(2),))

    with pytest.raises(SampleConflict), transaction.atomic():
        world.send(health=(health(1),))
    with pytest.raises(SampleConflict), transaction.atomic():
        world.send(interval(2, 1, 2))
    with pytest.raises(SampleConflict), transaction.atomic():
        world.send(health=(health(2, detail="XID 48"),))

    assert Interval.objects.count() == HealthEvent.objects.count() == 1


def test_an_agent_sends_only_of_its_own_host_and_leases(world: World) -> None:
    world.schedule()
    unheard_of = interval(1, 0, 1, lease_id=LeaseId(UUID(int=99)))

    with pytest.raises(LeaseNotHere):
        world.send(unheard_of)
    with pytest.raises(LeaseNotHere):
        world.send(interval(1, 0, 1), host_id=OTHER_HOST)
    with pytest.raises(LeaseNotHere):
        world.send(interval(1, 0, 1, "GPU-b"))
    with pytest.raises(LeaseNotHere):
        world.send(interval(1, 0, 1), interval(2, 0, 1, "GPU-b"))

    assert stored() == []


def test_a_lease_scheduled_a_moment_ago_is_known_although_no_row_is(world: World) -> None:
    """Nobody has followed the store yet; the agent must not be told that its samples are wrong."""
    follow, world.follow = world.follow, lambda: None  # type: ignore[method-assign]
    world.schedule()

    world.send(interval(1, 0, 1))

    world.follow = follow  # type: ignore[method-assign]
    assert len(stored()) == 1


def test_what_a_lease_was_granted_is_read_once(world: World) -> None:
    world.schedule()
    grants = Grants()
    first = grants.of(world.store, LEASE)

    assert grants.of(world.store, LEASE) is first
    assert first.on(HOST) == {"GPU-a"}


def test_an_interval_of_the_future_has_to_wait_and_an_absurd_one_is_refused(world: World) -> None:
    world.schedule()

    with pytest.raises(SampleTooEarly) as early:
        world.send(interval(1, 0, 10), now=minute(10) - timedelta(minutes=1, milliseconds=1))
    assert early.value.status == 425
    world.send(interval(1, 0, 10), now=minute(10) - timedelta(minutes=1))
    with pytest.raises(SampleBeforeLease):
        world.send(interval(2, -5, 0))


def test_what_the_wire_does_not_allow_never_comes_in() -> None:
    body = SampleBatch(boot_id=BOOT, batch=(interval(1, 0, 1),), health=(health(2),)).to_json()
    naive = body | {"health": [{**body["health"][0], "at": "2026-01-05T12:00:00"}]}
    huge = body | {"batch": [{**body["batch"][0], "end_ms": 10**30}]}
    negative = body | {"batch": [{**body["batch"][0], "occupied_ms": -1}]}
    twice = body | {"batch": body["batch"] * 2}
    unknown = body | {"batch": [{**body["batch"][0], "colour": 1}]}

    for wrong in (naive, huge, negative, twice, unknown):
        with pytest.raises(WireError):
            SampleBatch.from_json(wrong)


def test_a_report_counts_once_and_two_hosts_of_a_lease_may_share_its_id(world: World) -> None:
    world.schedule()
    for _ in range(2):
        world.report("started", 1)
        world.report("started", 2, host_id=OTHER_HOST)

    assert WorkReport.objects.count() == 2
    heard = [each.type for each in world.store.read_stream(f"lease-{LEASE}")]
    assert heard.count("marketplace.work-started") == 2
    assert heard.count("marketplace.lease-activated") == 1
    with pytest.raises(ReportConflict), transaction.atomic():
        world.report("started", 3)


def test_an_agent_reports_only_of_leases_on_its_host(world: World) -> None:
    world.schedule()

    with pytest.raises(LeaseNotHere):
        world.report("started", 1, host_id=LEASE)  # type: ignore[arg-type]  # some other id

    assert WorkReport.objects.count() == 0


def test_a_lease_that_did_not_hear_a_known_report_hears_it_again(world: World) -> None:
    """The row was written, and the process died before the lease was told."""
    world.schedule()
    WorkReport.objects.create(
        host_id=HOST,
        report_id=UUID(int=81),
        lease_id=LEASE,
        what="started",
        at=minute(1),
        exit_code=None,
        detail="",
        received_at=minute(1),
    )

    world.report("started", 1)

    heard = [each.type for each in world.store.read_stream(f"lease-{LEASE}")]
    assert "marketplace.work-started" in heard


def test_an_agent_was_last_seen_when_the_server_heard_it_whatever_its_clock(world: World) -> None:
    world.schedule()
    world.seen(minute(5))

    world.send(interval(1, 0, 60), now=minute(60))
    world.seen(minute(4))

    assert AgentContact.objects.get().last_seen_at == minute(5)
