"""From samples to charges: closing, gaps, lateness, crashes, money."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise, permutations
from typing import Any
from uuid import UUID

import pytest
from django.db import models
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger.domain.events import UsageCaptured
from ledger.domain.ids import LeaseId
from ledger.domain.money import Money, Rate
from ledger.domain.span import Window
from ledger.domain.usage_items import CardShare, UsageItem
from ledger.eventstore.memory import MemoryStore
from ledger.models import Checkpoint
from ledger.rows import Rows
from listings import commands
from listings.domain.terms import OfferTerms
from marketplace.domain.facts.events import LeaseExtended
from metering import loops
from metering.domain.events import MeterClosed, MeterGapFound, UsageWindowClosed
from metering.domain.meters import MeterUnknown
from metering.models import (
    Cutoff,
    DayRow,
    GapRow,
    HeatRow,
    Interval,
    MeterRow,
    SummedLease,
    Taken,
    UsageRow,
    Watermark,
    WorkReport,
)
from metering.projections import PROJECTIONS
from metering.queries import usage
from metering.queries.progress import lagging_meters, uncharged_windows
from tests.conftest import NOON, SOMEBODY
from tests.listings.conftest import gpu
from tests.metering.world import (
    CONSUMING,
    FUNDS,
    HOLD,
    HOST,
    LEASE,
    MINUTE,
    NOSY,
    OTHER_HOST,
    OTHER_OWNING,
    OWNER,
    OWNING,
    PRICE,
    World,
    interval,
    minute,
    share,
)

pytestmark = pytest.mark.django_db

TABLES: tuple[type[models.Model], ...] = (
    MeterRow,
    UsageRow,
    GapRow,
    HeatRow,
    SummedLease,
    DayRow,
)
EVERYTHING: tuple[type[models.Model], ...] = (
    *TABLES,
    Checkpoint,
    Cutoff,
    Interval,
    Taken,
    Watermark,
    WorkReport,
)
ALONE = share(HOST, OWNER, "GPU-a")


def granted(world: World) -> list[int]:
    """Return the granted minutes of each closed window, all GPUs together."""
    return [
        sum(gpu.granted_ms for gpu in closed.gpus) // MINUTE
        for closed in world.events(UsageWindowClosed)
    ]


def run_all(world: World, *, minutes: int = 60) -> None:
    """Both hosts work from start to end and say all they have to say."""
    for host_id, uuid in ((HOST, "GPU-a"), (OTHER_HOST, "GPU-b")):
        world.report("started", 0, host_id=host_id)
        world.send(*(interval(n + 1, n, n + 1, uuid) for n in range(minutes)), host_id=host_id)
        world.report("stopped", minutes, host_id=host_id)


def test_a_window_waits_for_the_slowest_gpu(world: World) -> None:
    world.schedule()
    world.report("started", 0)
    world.report("started", 0, host_id=OTHER_HOST)
    world.send(*(interval(n + 1, n, n + 1) for n in range(25)))
    world.close(minute(30))
    assert granted(world) == []

    world.send(interval(1, 0, 10, "GPU-b"), host_id=OTHER_HOST)
    world.close(minute(30))

    assert granted(world) == [20]


def test_a_whole_lease_is_charged_to_the_millisecond_and_the_rest_set_free(world: World) -> None:
    world.fund()
    world.hold(Window(NOON, minute(60)), 2)
    world.schedule()
    run_all(world, minutes=45)
    world.over(minute(45))

    world.close(minute(46))

    assert granted(world) == [20, 20, 20, 20, 10]
    (done,) = world.events(MeterClosed)
    assert done.granted_ms == 90 * MINUTE
    account = world.account()
    cost = PRICE.charge(90 * MINUTE)
    assert account.holds[HOLD].captured == cost
    assert account.holds[HOLD].released
    assert account.available == Money(1_000 * 10**9) - cost
    assert MeterRow.objects.get().captured_nanos == cost.nanos
    assert not UsageRow.objects.filter(is_captured=False).exists()


def test_running_the_loop_and_the_policies_again_charges_nothing_twice(world: World) -> None:
    world.fund()
    world.hold(Window(NOON, minute(60)), 2)
    world.schedule()
    run_all(world)
    world.over(minute(60))
    world.close(minute(61))
    head = world.store.head()

    world.close(minute(62))
    MeterRow.objects.update(state="open", closed_through_ms=MeterRow.objects.get().starts_ms)
    world.close(minute(63))
    loops.charge_what_is_left(world.store, now=minute(70))

    assert world.store.head() == head


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(cuts=st.lists(st.integers(1, 3_599_999), unique=True, max_size=9), mix=st.randoms())
def test_the_rated_total_is_the_same_whatever_the_batches_and_their_order(
    db: None, cuts: list[int], mix: random.Random
) -> None:
    """I4: captured = price × metered, whatever the intervals, batching, order and duplicates."""
    for table in EVERYTHING:
        table._base_manager.all().delete()
    world = World(MemoryStore())
    world.fund()
    world.hold(Window(NOON, minute(60)), 1)
    world.schedule(ALONE)
    borders = [0, *sorted(cuts), 3_600_000]
    sent = [
        interval(index + 1, start / MINUTE, end / MINUTE)
        for index, (start, end) in enumerate(pairwise(borders))
    ]
    batches = [sent[index : index + 3] for index in range(0, len(sent), 3)] * 2
    mix.shuffle(batches)
    world.report("started", 0)
    for index, batch in enumerate(batches):
        world.send(*batch)
        if index % 2 and len({each.seq for b in batches[: index + 1] for each in b}) == len(sent):
            world.close(minute(61), window_seconds=mix.choice([60, 600, 1800]))
    world.report("stopped", 60)
    world.over(minute(60))
    for seconds in (60, 600):
        world.close(minute(62), window_seconds=seconds)

    assert world.account().holds[HOLD].captured == PRICE.charge(3_600_000)
    assert world.events(MeterClosed)[0].granted_ms == 3_600_000


def test_a_gap_is_an_event_and_is_not_charged(world: World) -> None:
    world.fund()
    world.hold(Window(NOON, minute(60)), 1)
    world.schedule(ALONE)
    world.report("started", 0)
    world.send(interval(1, 0, 12), interval(2, 15, 60))
    world.report("stopped", 60)
    world.over(minute(60))

    world.close(minute(61))

    (gap,) = world.events(MeterGapFound)
    assert gap.window == Window(minute(12), minute(15))
    assert world.account().holds[HOLD].captured == PRICE.charge(57 * MINUTE)
    assert usage.gaps(CONSUMING, LEASE).get().gpu_uuid == "GPU-a"


def test_a_silent_agent_holds_a_window_up_for_the_grace_and_no_longer(world: World) -> None:
    """Fifteen minutes of darkness lose nothing; a host that is gone does not hold up the other."""
    world.schedule(minutes=180)
    for host_id, uuid in ((HOST, "GPU-a"), (OTHER_HOST, "GPU-b")):
        world.report("started", 0, host_id=host_id)
        world.send(interval(1, 0, 10, uuid), host_id=host_id)
    world.send(interval(2, 10, 40), now=minute(40))
    world.close(minute(40))
    assert granted(world) == [20]
    world.send(interval(2, 10, 20, "GPU-b"), host_id=OTHER_HOST)
    world.close(minute(41))
    assert granted(world) == [20, 20]

    world.close(minute(89))
    assert granted(world) == [20, 20]
    world.close(minute(90))

    assert granted(world) == [20, 20, 10]
    (gap,) = world.events(MeterGapFound)
    assert gap.window == Window(minute(20), minute(30))


def test_what_comes_after_the_window_was_closed_is_kept_late_and_not_charged(world: World) -> None:
    world.schedule(ALONE, minutes=180)
    world.report("started", 0)
    world.send(interval(1, 0, 5))
    world.close(minute(70))
    assert granted(world) == [5]

    world.send(interval(2, 5, 12), interval(3, 12, 20))
    world.close(minute(71))

    assert granted(world) == [5, 10]
    late = {each.seq: each.late_ms // MINUTE for each in Interval.objects.all()}
    assert late == {1: 0, 2: 5, 3: 0}


def test_use_outside_the_lease_is_not_charged(world: World) -> None:
    """The work started before the lease and went on after it was over; so do its samples."""
    world.schedule(ALONE)
    world.report("started", -1)
    world.send(interval(1, -1, 30), interval(2, 30, 70))
    world.report("stopped", 70)
    world.over(minute(50))

    world.close(minute(71))

    assert granted(world) == [10] * 5


def test_a_card_leased_twice_in_a_row_is_never_charged_for_more_than_it_gave(world: World) -> None:
    """The first lease is closed early and the GPU granted anew; both agents' samples overlap."""
    second = LeaseId(UUID(int=59))
    world.schedule(ALONE)
    world.send(interval(1, 0, 40))
    world.over(minute(30))
    world.schedule(ALONE, lease_id=second, starts_at=minute(30), minutes=30)
    world.send(interval(2, 30, 60, lease_id=second))
    world.over(minute(60), lease_id=second)

    world.close(minute(200))

    per_card = [
        gpu.granted_ms
        for lease_id in (LEASE, second)
        for closed in world.events(UsageWindowClosed, lease_id)
        for gpu in closed.gpus
    ]
    assert sum(per_card) == 60 * MINUTE


def test_overlapping_intervals_of_two_boots_count_once(world: World) -> None:
    world.schedule(ALONE, minutes=20)
    world.send(interval(1, 0, 12))
    world.send(interval(1, 8, 20), boot_id=UUID(int=63))
    world.over(minute(20))

    world.close(minute(200))

    assert granted(world) == [10, 10]


def test_a_share_is_charged_as_a_gpu_and_weighs_its_part_in_the_owners_figures(
    world: World,
) -> None:
    uuid = f"GPU-{UUID(int=7)}/mps-1of4/25pct-20389mib"
    world.fund()
    world.hold(Window(NOON, minute(20)), 1)
    world.schedule(share(HOST, OWNER, uuid), minutes=20)
    world.send(interval(1, 0, 10, uuid), interval(2, 10, 16, uuid, busy_ms=None))
    world.over(minute(20))
    world.close(minute(200))
    world.follow()

    first, second = UsageRow.objects.order_by("starts_at")
    assert (first.granted_ms, first.busy_ms, second.granted_ms) == (
        10 * MINUTE,
        5 * MINUTE,
        6 * MINUTE,
    )
    assert MeterRow.objects.get().captured_nanos == PRICE.charge(16 * MINUTE).nanos
    heat = HeatRow.objects.get()
    assert (heat.granted_ms, heat.occupied_ms) == (4 * MINUTE, 4 * MINUTE)
    # Its kernels kept the card busy for five minutes, more than its part of ten.
    assert (heat.busy_ms, heat.busy_of_ms) == (150_000, 150_000)
    of_card = CardShare(f"GPU-{UUID(int=7)}", "mps", 25, 100)
    charged = [e for e in world.account().entries.values() if isinstance(e, UsageCaptured)]
    assert [each.item.shares for each in charged] == [(of_card,), (of_card,)]


def test_what_a_gpu_cannot_tell_stays_unknown(world: World) -> None:
    """MIG on an older card: occupied is known, busy is not, and not 0 either."""
    world.schedule(ALONE, minutes=20)
    world.send(interval(1, 0, 10, busy_ms=None), interval(2, 10, 20))
    world.over(minute(20))
    world.close(minute(200))

    first, second = UsageRow.objects.order_by("starts_at")
    assert (first.busy_ms, first.occupied_ms) == (None, 10 * MINUTE)
    assert second.busy_ms == 5 * MINUTE
    heat = HeatRow.objects.get()
    assert (heat.busy_ms, heat.busy_of_ms, heat.granted_ms) == (
        5 * MINUTE,
        10 * MINUTE,
        20 * MINUTE,
    )
    assert usage.use_so_far(CONSUMING, LEASE).busy_ms is None


@pytest.mark.parametrize("step", ["samples_of", "close_usage_window", "close_meter"])
def test_a_crash_at_any_step_of_closing_changes_no_sum(
    world: World, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    world.schedule(ALONE, minutes=20)
    world.report("started", 0)
    world.send(interval(1, 0, 8))
    world.over(minute(20))
    with monkeypatch.context() as broken:
        broken.setattr(loops, step, crash)
        with pytest.raises(Crashed):
            world.close(minute(200))
    # What comes between the crash and the next pass is late, whether the event was written or not.
    world.send(interval(2, 8, 20))

    world.close(minute(201))

    assert granted(world) in ([8], [8, 0], [8, 10])
    assert world.events(MeterClosed)[0].granted_ms == sum(granted(world)) * MINUTE
    counted = sum(
        min(each.end_ms, each.start_ms + 10**9) - each.start_ms - each.late_ms
        for each in Interval.objects.all()
    )
    assert counted == sum(granted(world)) * MINUTE


class Crashed(BaseException):
    pass


def crash(*args: Any, **kwargs: Any) -> None:
    raise Crashed


@pytest.mark.parametrize("order", list(permutations(("samples", "report", "close"))))
def test_last_samples_last_report_and_close_may_come_in_any_order(
    world: World, order: tuple[str, ...]
) -> None:
    """yagna#2970: the last chunk was paid twice. Here the loop runs after each of the three."""
    world.fund()
    world.hold(Window(NOON, minute(30)), 1)
    world.schedule(ALONE, minutes=30)
    world.report("started", 0)
    world.send(interval(1, 0, 15))
    steps: dict[str, Callable[[], object]] = {
        "samples": lambda: world.send(interval(2, 15, 25)),
        "report": lambda: world.report("exited", 25, exit_code=0),
        "close": lambda: world.over(minute(25)),
    }
    for step in order:
        steps[step]()
        world.close(minute(31))
    world.close(minute(32))

    assert granted(world) == [10, 10, 5]
    assert world.account().holds[HOLD].captured == PRICE.charge(25 * MINUTE)
    assert world.account().held == Money(0)


def test_a_charge_names_what_was_used_and_what_its_owner_asked_when_it_was_granted(
    world: World,
) -> None:
    commands.register_host(
        world.store,
        host_id=HOST,
        tenant_id=OWNER,
        title="rack 2",
        market="main",
        region="eu-west",
        by=SOMEBODY,
        now=NOON,
    )
    commands.report_inventory(world.store, host_id=HOST, gpus=[gpu()], by=SOMEBODY, now=NOON)
    offered = OfferTerms(
        gpu_uuids=("GPU-a",), windows=(Window(NOON, minute(90)),), floor=Rate(1_200_000_000)
    )
    publish: dict[str, Any] = {"offer_id": ALONE.offer_id, "by": SOMEBODY}
    commands.publish_offer(world.store, host_id=HOST, terms=offered, now=NOON, **publish)
    dearer = Rate(9_000_000_000)
    commands.reprice_offer(world.store, floor=dearer, now=minute(1), **publish)
    world.fund()
    world.hold(Window(NOON, minute(20)), 1)
    world.schedule(ALONE, minutes=20)
    world.send(interval(1, 0, 10))
    world.close(minute(11))

    charged = [each.event for each in world.store.read_stream(f"account-{FUNDS}")][-1]
    assert isinstance(charged, UsageCaptured)
    assert charged.item == UsageItem(
        sku="H100-80GB",
        region="eu-west",
        service_class="on-demand",
        list_price=Rate(1_200_000_000),
    )


def test_what_is_owed_for_too_long_is_found(world: World) -> None:
    """akash support#114: one lease was never settled for months, and nobody noticed."""
    world.schedule(ALONE, minutes=180)
    world.report("started", 0)
    world.send(interval(1, 0, 10))
    world.close(minute(11))
    hour = timedelta(hours=1)

    assert lagging_meters(now=minute(69), older_than=hour) == []
    assert lagging_meters(now=minute(71), older_than=hour) == [LEASE]
    assert uncharged_windows(now=minute(69), older_than=hour) == 0
    assert uncharged_windows(now=minute(71), older_than=hour) == 1


def test_a_lease_that_never_started_closes_its_meter_without_a_window(world: World) -> None:
    world.fund()
    world.hold(Window(NOON, minute(60)), 1)
    world.schedule(ALONE)
    world.report("failed", 1)
    world.over(minute(1))

    assert world.close(minute(2)) == 1

    assert world.events(UsageWindowClosed) == []
    assert world.account().held == Money(0)


def test_a_lost_lease_waits_for_the_grace_and_then_its_money_is_free(world: World) -> None:
    world.fund()
    world.hold(Window(NOON, minute(20)), 1)
    world.schedule(ALONE, minutes=20)
    world.report("started", 0)
    world.send(interval(1, 0, 5))
    world.over(minute(20))
    world.close(minute(30))
    assert world.account().held != Money(0)

    world.close(minute(80))

    assert granted(world) == [5, 0]
    assert world.account().held == Money(0)
    assert world.account().holds[HOLD].captured == PRICE.charge(5 * MINUTE)


def test_a_host_that_talks_on_after_the_end_has_sent_all_it_had(world: World) -> None:
    """Its work was lost, and of one GPU fewer samples were kept than of another."""
    world.schedule(ALONE, minutes=20)
    world.report("started", 0)
    world.send(interval(1, 0, 5))
    world.report("failed", 7)
    world.over(minute(8))
    world.seen(minute(9))
    world.close(minute(22))
    assert world.events(MeterClosed) == []

    world.seen(minute(23))
    world.close(minute(23))

    assert world.events(MeterClosed)[0].granted_ms == 5 * MINUTE


def test_an_extended_lease_is_measured_to_its_new_end(world: World) -> None:
    world.schedule(ALONE, minutes=20)
    world.tell(LeaseExtended(lease_id=LEASE, ends_at=minute(35), at=minute(10)))
    world.send(interval(1, 0, 36))
    world.over(minute(36))

    world.close(minute(200))

    assert granted(world) == [10, 10, 10, 5]


def test_a_charge_that_was_refused_is_made_when_it_can_be(world: World) -> None:
    """The hold was not there when the window closed; other leases were charged meanwhile."""
    world.schedule(ALONE, minutes=20)
    world.send(interval(1, 0, 20))
    world.close(minute(21))
    assert UsageRow.objects.filter(is_captured=False).count() == 2
    world.fund()
    world.hold(Window(NOON, minute(20)), 1)

    assert loops.charge_what_is_left(world.store, now=minute(30)) == 2

    world.follow()
    assert world.account().holds[HOLD].captured == PRICE.charge(20 * MINUTE)
    assert not UsageRow.objects.filter(is_captured=False).exists()
    assert loops.charge_what_is_left(world.store, now=minute(30)) == 0


def test_one_stuck_meter_does_not_hold_up_the_others(world: World) -> None:
    """A row without a meter's stream comes first; the real lease is measured all the same."""
    world.schedule(ALONE, minutes=20)
    world.send(interval(1, 0, 20))
    stuck = MeterRow.objects.get()
    stuck.lease_id, stuck.over_ms = UUID(int=1), stuck.starts_ms
    MeterRow.objects.bulk_create([stuck])

    world.close(minute(21))

    assert granted(world) == [10, 10]


def test_cost_so_far_counts_what_is_not_rated_yet(world: World) -> None:
    world.schedule()
    run_all(world, minutes=15)

    world.close(minute(16))
    found = usage.use_so_far(CONSUMING, LEASE)

    assert (found.rated_ms, found.live_ms) == (20 * MINUTE, 10 * MINUTE)
    assert found.cost == PRICE.charge(30 * MINUTE)
    assert found.rated_through == minute(10)
    assert not found.is_final


def test_each_owner_sees_the_use_of_its_own_gpus_and_a_stranger_nothing(world: World) -> None:
    world.schedule()
    run_all(world, minutes=15)
    world.close(minute(16))

    for owner, uuid in ((OWNING, "GPU-a"), (OTHER_OWNING, "GPU-b")):
        (row,) = usage.usage_windows(owner, LEASE)
        assert [gpu["gpu_uuid"] for gpu in row.gpus] == [uuid]
        assert usage.use_so_far(owner, LEASE).granted_ms == 15 * MINUTE
        (cell,) = usage.heat(owner, since=NOON, until=NOON + timedelta(hours=1))
        assert cell.granted_ms == 10 * MINUTE
    assert len(usage.usage_windows(CONSUMING, LEASE)) == 2
    for ask in (usage.usage_windows, usage.gaps, usage.use_so_far):
        with pytest.raises(MeterUnknown):
            ask(NOSY, LEASE)
    assert not usage.heat(NOSY, since=NOON, until=NOON + timedelta(hours=1))
    assert usage.agents(NOSY, now=NOON, poll_seconds=2) == []


def test_rows_equal_their_rebuild_from_the_first_event(world: World) -> None:
    world.fund()
    world.hold(Window(NOON, minute(60)), 2)
    world.schedule()
    run_all(world, minutes=25)
    world.close(minute(26))
    world.over(minute(25))
    world.close(minute(27))
    live = {table: as_told(table) for table in TABLES}

    for table in TABLES:
        table._base_manager.all().delete()
    rows = Rows(fresh=True)
    for recorded in world.store.read_all(limit=10_000).events:
        for projection in PROJECTIONS:
            if recorded.type in projection.on:
                projection.project(recorded, rows)
    rows.flush()

    assert {table: as_told(table) for table in TABLES} == live
    assert live[UsageRow]


def as_told(table: type[models.Model]) -> list[dict[str, Any]]:
    return list(table._base_manager.order_by("pk").values())
