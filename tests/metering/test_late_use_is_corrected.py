"""What was proved is charged, whenever it came; what came after its window is a correction."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from uuid import UUID

import pytest

from ledger.domain.money import Money
from ledger.domain.span import Window
from ledger.domain.uptime import Uptime
from ledger.eventstore.memory import MemoryStore
from metering import commands, corrections, loops
from metering.domain.correcting import CORRECTED_WITHIN, spans_to_correct
from metering.domain.events import GpuUse, MeterClosed, UsageCorrected, UsageWindowClosed
from metering.domain.meters import MeterUnknown
from metering.models import CorrectionRow, GapRow, Interval, LateUse, MeterRow
from metering.queries import usage
from tests.conftest import NOON, SOMEBODY
from tests.metering.world import (
    CONSUMING,
    GRACE,
    HOLD,
    HOST,
    LEASE,
    MINUTE,
    NOSY,
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
HOUR_MS = 3_600_000
DAY = timedelta(days=1)


def started(world: World) -> None:
    """A lease of an hour, of which ten minutes were told before everything went away."""
    world.fund()
    world.hold(Window(NOON, minute(60)), 1)
    world.schedule(share(HOST, OWNER, "GPU-a"), minutes=60)
    world.report("started", 0)
    world.send(*(interval(n + 1, n, n + 1) for n in range(10)), now=minute(10))


def rest(world: World, *, at: float) -> None:
    """Tell the other fifty minutes, and that the work is over."""
    world.send(*(interval(n + 1, n, n + 1) for n in range(10, 60)), now=minute(at))
    world.report("stopped", 60)


def captured(world: World) -> Money:
    return world.account().holds[HOLD].captured


def test_away_for_26_hours_with_a_grace_of_a_day(world: World) -> None:
    started(world)
    back = NOON + timedelta(hours=26)
    world.over(back)
    world.close(back, grace=DAY)  # the loop is up a few seconds before the agent
    rest(world, at=26 * 60 + 0.1)
    world.close(back + timedelta(hours=1), grace=DAY)
    assert captured(world) == PRICE.charge(HOUR_MS)


def test_away_for_15_minutes_with_the_grace_of_the_demo(world: World) -> None:
    started(world)
    grace = timedelta(seconds=120)
    world.close(minute(10), window_seconds=60, grace=grace)
    world.close(minute(25), window_seconds=60, grace=grace)
    rest(world, at=60)
    world.over(minute(60))
    world.close(minute(61), window_seconds=60, grace=grace)
    assert captured(world) == PRICE.charge(HOUR_MS)


def test_an_outage_that_is_known_lets_the_window_wait(world: World) -> None:
    """Nothing is rated before its samples had their time to come in: no correction is needed."""
    started(world)
    back = NOON + timedelta(hours=26)
    world.over(minute(60))
    uptime = Uptime((Window(minute(10), back),))
    loops.close_usage_windows(world.store, now=back, window_seconds=600, grace=DAY, uptime=uptime)
    world.follow()
    assert len(world.events(UsageWindowClosed)) == 1
    rest(world, at=26 * 60 + 0.1)
    world.close(back + timedelta(hours=1), grace=DAY)
    assert captured(world) == PRICE.charge(HOUR_MS)
    assert world.events(UsageCorrected) == []


def test_a_market_that_has_not_noted_its_outage_yet_waits_too(world: World) -> None:
    started(world)
    world.over(minute(60))
    loops.close_usage_windows(
        world.store,
        now=NOON + timedelta(hours=26),
        window_seconds=600,
        grace=DAY,
        uptime=Uptime((), minute(12)),
    )
    world.follow()
    assert len(world.events(UsageWindowClosed)) == 1


@pytest.mark.parametrize(
    ("arrives", "uptime", "reason"),
    [
        (90, Uptime((Window(minute(15), minute(85)),)), "platform-away"),
        (120, Uptime(), "host-late"),
        (62, Uptime(), "out-of-order"),
    ],
)
def test_a_correction_says_why_it_came_late(
    world: World, arrives: float, uptime: Uptime, reason: str
) -> None:
    started(world)
    world.send(interval(1, 59, 60), boot_id=UUID(int=62), now=minute(60))
    world.close(minute(61))  # the agent was started anew, and what it sent says that all is known
    world.send(interval(11, 10, 20), now=minute(arrives))
    loops.close_usage_windows(
        world.store, now=minute(121), window_seconds=600, grace=GRACE, uptime=uptime
    )
    world.follow()
    [correction] = world.events(UsageCorrected)
    assert (correction.reason, correction.number) == (reason, 1)
    assert correction.window == Window(minute(10), minute(20))
    assert sum(gpu.granted_ms for gpu in correction.gpus) == 10 * MINUTE


def test_both_sides_see_a_correction_and_a_stranger_does_not(world: World) -> None:
    started(world)
    world.over(minute(60))
    world.close(minute(200))
    assert captured(world) == PRICE.charge(10 * MINUTE)
    rest(world, at=201)
    world.close(minute(202))

    for actor in (CONSUMING, OWNING):
        rows = usage.corrections(actor, LEASE)
        assert sum(row.granted_ms for row in rows) == 50 * MINUTE
        assert {row.reason for row in rows} == {"host-late"}
        assert all(row.is_captured for row in rows)
        so_far = usage.use_so_far(actor, LEASE)
        assert (so_far.rated_ms, so_far.corrected_ms) == (60 * MINUTE, 50 * MINUTE)
        assert so_far.gap_ms == 0
    for actor in (NOSY, OTHER_OWNING):
        with pytest.raises(MeterUnknown):
            usage.corrections(actor, LEASE)


def test_the_hold_was_given_back_and_the_late_use_is_paid_from_what_is_available(
    world: World,
) -> None:
    started(world)
    world.over(minute(60))
    world.close(minute(200))
    assert world.account().holds[HOLD].released
    rest(world, at=201)
    world.close(minute(202))
    assert captured(world) == PRICE.charge(HOUR_MS)
    assert world.account().available == Money(1_000 * 10**9) - PRICE.charge(HOUR_MS)
    assert MeterRow.objects.get().granted_ms == HOUR_MS


def test_what_comes_twice_is_corrected_once(world: World) -> None:
    started(world)
    world.over(minute(60))
    world.close(minute(200))
    for at in (201, 203, 205):
        rest(world, at=at)
        world.close(minute(at + 1))
    assert captured(world) == PRICE.charge(HOUR_MS)
    assert not LateUse.objects.exists()


def test_a_month_later_it_is_noted_and_not_charged(world: World) -> None:
    started(world)
    world.over(minute(60))
    world.close(minute(200))
    late = minute(60) + CORRECTED_WITHIN + timedelta(minutes=1)
    world.send(*(interval(n + 1, n, n + 1) for n in range(10, 60)), now=late)
    world.close(late)
    assert captured(world) == PRICE.charge(10 * MINUTE)
    assert {row.reason for row in CorrectionRow.objects.all()} == {"too-late"}
    assert loops.charge_what_is_left(world.store, now=late + DAY) == 0


def test_nothing_after_the_right_ended_is_corrected(world: World) -> None:
    started(world)
    world.over(minute(30))
    world.close(minute(200))
    rest(world, at=201)
    world.close(minute(202))
    assert captured(world) == PRICE.charge(30 * MINUTE)


def test_a_correction_that_was_refused_is_charged_when_it_can_be(world: World) -> None:
    world.schedule(share(HOST, OWNER, "GPU-a"), minutes=60)
    world.report("started", 0)
    world.over(minute(60))
    world.close(minute(200))
    rest(world, at=201)
    world.close(minute(202))
    assert CorrectionRow.objects.filter(is_captured=False).exists()
    world.fund()
    world.hold(Window(NOON, minute(60)), 1)

    loops.charge_what_is_left(world.store, now=minute(300))
    world.follow()

    assert not CorrectionRow.objects.filter(is_captured=False).exists()
    assert captured(world) == PRICE.charge(50 * MINUTE)


def test_use_that_comes_while_a_span_is_corrected_is_not_forgotten(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    started(world)
    world.over(minute(60))
    world.close(minute(200))
    world.send(interval(11, 10, 20), now=minute(201))
    with monkeypatch.context() as meanwhile:
        recorded = commands.correct_usage

        def correct(*given: object, **named: object) -> object:
            done = recorded(*given, **named)  # type: ignore[arg-type]
            if not Interval.objects.filter(seq=12).exists():
                world.send(interval(12, 20, 60), now=minute(201))
            return done

        meanwhile.setattr(corrections, "correct_usage", correct)
        world.close(minute(202))
    world.close(minute(203))
    assert captured(world) == PRICE.charge(HOUR_MS)


@pytest.mark.parametrize("seed", range(5))
def test_the_total_is_the_same_for_every_order_of_arrival(world: World, seed: int) -> None:
    """I4: intervals in any order, batching and repetition, with the loop at any time between."""
    mix = random.Random(seed)
    size, looks = mix.randint(1, 8), mix.randint(0, 4)
    world.fund()
    world.hold(Window(NOON, minute(60)), 1)
    world.schedule(share(HOST, OWNER, "GPU-a"), minutes=60)
    world.report("started", 0)
    sent = [interval(n + 1, 3 * n, 3 * n + 3) for n in range(20)]
    mix.shuffle(sent)
    batches = [sent[since : since + size] for since in range(0, len(sent), size)]
    batches += mix.sample(batches, k=min(2, len(batches)))
    when = sorted(mix.sample(range(len(batches)), k=min(looks, len(batches))))
    for number, batch in enumerate(batches):
        world.send(*sorted(batch, key=lambda each: each.seq), now=minute(61))
        if number in when:
            world.close(minute(61 + number), window_seconds=mix.choice([60, 600]))
    world.report("stopped", 60)
    world.over(minute(60))
    world.close(minute(100), window_seconds=600)
    world.close(minute(300), window_seconds=600)
    assert captured(world) == PRICE.charge(HOUR_MS)
    assert world.events(MeterClosed)


def told_in_any_order(world: World, mix: random.Random) -> set[int]:
    """Tell a lease of an hour and its work in any order, some of it never; return what minutes."""
    size = mix.randint(1, 8)
    sent = [interval(n + 1, 3 * n, 3 * n + 3) for n in range(20)]
    kept = mix.sample(sent, k=mix.choice([20, 19, 12, 1]))
    batches = [kept[since : since + size] for since in range(0, len(kept), size)]
    batches += mix.sample(batches, k=min(2, len(batches)))
    steps: list[Callable[[], object]] = [
        lambda: world.report("stopped", 60),
        lambda: world.over(minute(60)),
    ]
    for batch in batches:
        ordered = sorted(batch, key=lambda each: each.seq)
        steps.append(partial(world.send, *ordered, now=minute(61)))
    steps += [partial(world.close, minute(61), window_seconds=60)] * 2
    steps += [partial(world.close, minute(140), window_seconds=600)] * mix.randint(0, 1)
    for step in mix.sample(steps, k=len(steps)):
        step()
    return {each.seq - 1 for each in kept}


@pytest.mark.parametrize("seed", range(8))
def test_samples_and_reports_in_any_order_leave_the_same_use_and_the_same_gaps(
    world: World, seed: int
) -> None:
    world.fund()
    world.hold(Window(NOON, minute(60)), 1)
    world.schedule(share(HOST, OWNER, "GPU-a"), minutes=60)

    world.report("started", 0)  # what is not known to run has no gaps
    proved = told_in_any_order(world, random.Random(seed))
    world.close(minute(300), window_seconds=600)
    world.close(minute(301), window_seconds=600)

    granted_ms = len(proved) * 3 * MINUTE
    assert captured(world) == PRICE.charge(granted_ms)
    assert len(world.events(MeterClosed)) == 1
    shown = usage.use_so_far(CONSUMING, LEASE)
    assert (shown.rated_ms, shown.gap_ms) == (granted_ms, HOUR_MS - granted_ms)
    assert gap_minutes() == {
        each for n in set(range(20)) - proved for each in range(3 * n, 3 * n + 3)
    }


def gap_minutes() -> set[int]:
    """Return the minutes of the lease that are shown to be without proof."""
    found: list[int] = []
    for row in GapRow.objects.all():
        since, until = ((at - NOON) // timedelta(minutes=1) for at in (row.starts_at, row.ends_at))
        found += range(since, until)
    assert len(found) == len(set(found))
    return set(found)


def test_gaps_that_are_proved_later_are_shown_no_more(world: World) -> None:
    started(world)
    world.over(minute(60))
    world.close(minute(200))
    assert gap_minutes() == set(range(10, 60))
    world.send(interval(26, 25, 26), interval(27, 26, 27), now=minute(201))
    world.close(minute(202))
    assert gap_minutes() == set(range(10, 25)) | set(range(27, 60))
    rest(world, at=203)
    world.close(minute(204))
    assert not GapRow.objects.exists()


def test_use_that_is_noted_and_not_charged_is_not_in_a_meters_total(store: MemoryStore) -> None:
    world = World(store)
    world.schedule(share(HOST, OWNER, "GPU-a"), minutes=60)
    window = Window(NOON, minute(10))
    use = GpuUse("GPU-a", HOST, OWNER, 10 * MINUTE, None, None, 0)
    for number, reason in ((1, "host-late"), (2, "too-late")):
        commands.correct_usage(
            store,
            lease_id=LEASE,
            window=window,
            added=[use],
            gaps=[],
            number=number,
            reason=reason,
            by=SOMEBODY,
            now=NOON,
        )
    commands.close_meter(store, lease_id=LEASE, by=SOMEBODY, now=NOON)
    assert [each.granted_ms for each in world.events(MeterClosed)] == [10 * MINUTE]


def test_spans_on_record_are_added_up_as_they_are_and_others_are_cut() -> None:
    rated = [(0, 100), (300, 400)]
    lease = (0, 1_000)
    assert spans_to_correct((50, 60), rated, lease=lease, window_ms=100) == [(0, 100)]
    assert spans_to_correct((50, 350), rated, lease=lease, window_ms=100) == [
        (0, 100),
        (100, 200),
        (200, 300),
        (300, 400),
    ]
    assert spans_to_correct((950, 2_000), rated, lease=lease, window_ms=100) == [(950, 1_000)]
    assert spans_to_correct((-50, -10), rated, lease=lease, window_ms=100) == []
