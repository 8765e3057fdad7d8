"""What counts as idle, and what follows: only what was measured and told in time ends a lease."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.domain.ids import LeaseId, TenantId
from metering.domain.idle import (
    FRESH_MS,
    LATE_MS,
    WARNING,
    Figures,
    IdleTermsOutOfRange,
    IdleWatch,
    Measured,
    Quiet,
    quiet_of,
    set_rule,
    strictest,
)
from metering.domain.idle_events import (
    IdleEvent,
    IdleLeaseKept,
    IdleLeaseReleased,
    IdleTerms,
    IdleWarned,
    IdleWarningLifted,
)
from metering.domain.instants import instant_of

LEASE, TENANT = LeaseId(UUID(int=1)), TenantId(UUID(int=2))
TERMS = IdleTerms(after_seconds=1_800)
START = 1_767_614_400_000
STEP = 10_000
NOTHING = Figures()


def measured(at: int, kind: str = "quiet") -> Measured:
    """Return the interval number `at` of a GPU: quiet, used, unknown, or late."""
    start_ms = START + at * STEP
    end_ms = start_ms + STEP
    found = Measured(
        start_ms=start_ms,
        end_ms=end_ms,
        received_ms=end_ms + 2_000,
        busy_ms=0,
        cpu_ms=100,
        disk_bytes=0,
        network_bytes=5_000,
    )
    match kind:
        case "busy":
            return replace(found, busy_ms=STEP // 2)
        case "working":
            return replace(found, cpu_ms=STEP)
        case "reading":
            return replace(found, disk_bytes=500_000_000)
        case "sending":
            return replace(found, network_bytes=500_000_000)
        case "unknown":
            return replace(found, cpu_ms=None)
        case "late":
            return replace(found, received_ms=end_ms + LATE_MS + 1)
    return found


def looked(kinds: list[str], *, now_ms: int | None = None, not_before_ms: int = 0) -> Quiet:
    rows = [measured(at, kind) for at, kind in enumerate(kinds) if kind != "missing"]
    end_ms = START + len(kinds) * STEP
    newest_first = list(reversed(rows))
    now_ms = end_ms if now_ms is None else now_ms
    return quiet_of([newest_first], TERMS, now_ms=now_ms, not_before_ms=not_before_ms)


KINDS = ("quiet", "busy", "working", "reading", "sending", "unknown", "late", "missing")


@given(st.lists(st.sampled_from(KINDS), min_size=1, max_size=40))
def test_only_an_unbroken_row_of_quiet_intervals_up_to_now_counts(kinds: list[str]) -> None:
    found = looked(kinds)

    back = len(kinds)
    if kinds[-1] == "missing":
        back -= next((n for n, kind in enumerate(reversed(kinds)) if kind != "missing"), len(kinds))
    trailing = 0
    while trailing < back and kinds[back - 1 - trailing] == "quiet":
        trailing += 1
    missing_ms = (len(kinds) - back) * STEP
    if trailing == 0 or missing_ms > FRESH_MS:
        assert found.since_ms is None
    else:
        assert found.since_ms == START + (back - trailing) * STEP
        assert found.length_ms() == trailing * STEP


@given(
    st.lists(
        st.lists(st.sampled_from(("quiet", "busy", "unknown")), min_size=12, max_size=12),
        min_size=1,
        max_size=4,
    )
)
def test_a_lease_is_as_quiet_as_its_least_quiet_gpu(gpus: list[list[str]]) -> None:
    rows = [[measured(at, kind) for at, kind in enumerate(kinds)][::-1] for kinds in gpus]
    whole = quiet_of(rows, TERMS, now_ms=START + 12 * STEP, not_before_ms=0)
    alone = [looked(kinds).length_ms() for kinds in gpus]

    assert whole.length_ms() == min(alone)


def test_a_gpu_of_which_nothing_is_told_is_never_idle() -> None:
    rows = [[measured(0)], []]
    assert quiet_of(rows, TERMS, now_ms=START + STEP, not_before_ms=0).since_ms is None
    assert quiet_of([], TERMS, now_ms=START, not_before_ms=0).since_ms is None


def test_nothing_before_the_work_began_or_was_kept_counts() -> None:
    found = looked(["quiet"] * 10, not_before_ms=START + 6 * STEP + 1_234)
    assert found.since_ms == START + 6 * STEP + 1_234


def test_what_was_told_long_ago_says_nothing_of_now() -> None:
    kinds = ["quiet"] * 400
    end_ms = START + 400 * STEP
    assert looked(kinds, now_ms=end_ms + FRESH_MS).since_ms == START
    assert looked(kinds, now_ms=end_ms + FRESH_MS + 1).since_ms is None


def test_each_figure_is_shown_beside_its_threshold() -> None:
    found = looked(["quiet", "working"])
    assert found.figures == Figures(
        busy_percent=0, cpu_millicores=1_000, disk_bytes=0, network_bytes=500
    )
    assert found.before == "use"


def quiet_for(seconds: int, *, now_ms: int) -> Quiet:
    since_ms = now_ms - seconds * 1_000
    return Quiet(since_ms=since_ms, through_ms=now_ms, before="", figures=NOTHING)


def used(now_ms: int) -> Quiet:
    return Quiet(since_ms=None, through_ms=now_ms, before="use", figures=NOTHING)


def unknown(now_ms: int) -> Quiet:
    return Quiet(since_ms=None, through_ms=now_ms, before="gap", figures=NOTHING)


def look(
    watch: IdleWatch, quiet: Quiet, now_ms: int, terms: IdleTerms | None = TERMS
) -> tuple[IdleWatch, list[IdleEvent]]:
    told = watch.look(quiet, terms, lease_id=LEASE, tenant_id=TENANT, now=instant_of(now_ms))
    for event in told:
        watch = IdleWatch.evolve(watch, event)
    return watch, told


def warned(at_ms: int) -> IdleWatch:
    watch, told = look(IdleWatch(), quiet_for(1_800, now_ms=at_ms), at_ms)
    assert isinstance(told[0], IdleWarned)
    assert told[0].release_at == instant_of(at_ms) + WARNING
    return watch


def test_a_warning_comes_first_and_the_end_not_before_it_is_over() -> None:
    now_ms = START
    assert look(IdleWatch(), quiet_for(1_799, now_ms=now_ms), now_ms)[1] == []
    watch = warned(now_ms)

    soon_ms = now_ms + 299_000
    assert look(watch, quiet_for(1_800 + 299, now_ms=soon_ms), soon_ms)[1] == []
    then_ms = now_ms + 300_000
    watch, told = look(watch, quiet_for(1_800 + 300, now_ms=then_ms), then_ms)
    assert isinstance(told[0], IdleLeaseReleased)
    later_ms = then_ms + 60_000
    assert look(watch, quiet_for(5_000, now_ms=later_ms), later_ms)[1] == []


@pytest.mark.parametrize(("why", "quiet"), [("use", used), ("gap", unknown)])
def test_a_warning_is_lifted_by_use_and_by_what_is_not_known(why: str, quiet: object) -> None:
    now_ms = START
    watch, told = look(warned(now_ms), quiet(now_ms + 400_000), now_ms + 400_000)  # type: ignore[operator]

    assert told == [IdleWarningLifted(lease_id=LEASE, by=why, at=instant_of(now_ms + 400_000))]  # type: ignore[arg-type]
    assert watch.warned is None


def test_a_stretch_that_began_after_the_warned_one_is_another() -> None:
    now_ms = START
    then_ms = now_ms + 600_000
    _, told = look(warned(now_ms), quiet_for(120, now_ms=then_ms), then_ms)
    assert isinstance(told[0], IdleWarningLifted)


def test_without_a_rule_nothing_follows_and_a_warning_is_lifted() -> None:
    assert look(IdleWatch(), quiet_for(9_000, now_ms=START), START, None)[1] == []
    _, told = look(warned(START), quiet_for(9_000, now_ms=START), START, None)
    assert told == [IdleWarningLifted(lease_id=LEASE, by="rule", at=instant_of(START))]


def test_a_lease_that_is_kept_is_warned_of_anew_and_one_that_is_released_is_not_kept() -> None:
    watch = warned(START)
    [kept] = watch.keep(lease_id=LEASE, tenant_id=TENANT, now=instant_of(START))
    assert isinstance(kept, IdleLeaseKept)
    assert IdleWatch.evolve(watch, kept).warned is None

    over, _ = look(watch, quiet_for(9_000, now_ms=START + 300_000), START + 300_000)
    assert over.keep(lease_id=LEASE, tenant_id=TENANT, now=instant_of(START)) == []


LOOKS = st.lists(
    st.tuples(st.integers(1, 900), st.sampled_from(("quiet", "use", "gap", "keep"))), max_size=40
)


@given(LOOKS)
def test_whatever_is_seen_nobody_is_released_without_half_an_hour_of_proof_and_a_warning(
    looks: list[tuple[int, str]],
) -> None:
    watch, now_ms, since_ms = IdleWatch(), START, START
    warned_ms: int | None = None
    for seconds, seen in looks:
        now_ms += seconds * 1_000
        if seen == "keep":
            for event in watch.keep(lease_id=LEASE, tenant_id=TENANT, now=instant_of(now_ms)):
                watch = IdleWatch.evolve(watch, event)
        if seen != "quiet":
            since_ms, warned_ms = now_ms, None if seen != "quiet" else warned_ms
        quiet = {
            "quiet": quiet_for((now_ms - since_ms) // 1_000, now_ms=now_ms),
            "use": used(now_ms),
            "gap": unknown(now_ms),
            "keep": quiet_for(0, now_ms=now_ms),
        }[seen]
        was_released = watch.released is not None
        watch, told = look(watch, quiet, now_ms)
        for event in told:
            if isinstance(event, IdleWarned):
                assert now_ms - since_ms >= 1_800_000
                warned_ms = now_ms
            if isinstance(event, IdleLeaseReleased):
                assert not was_released
                assert warned_ms is not None and now_ms - warned_ms >= 300_000


def test_of_several_rules_the_shortest_time_holds() -> None:
    long, short = IdleTerms(after_seconds=3_600), IdleTerms(after_seconds=600)
    assert strictest([None, long, short]) == short
    assert strictest([None]) is None


@pytest.mark.parametrize(
    "terms",
    [
        IdleTerms(after_seconds=299),
        IdleTerms(after_seconds=12 * 3_600 + 1),
        IdleTerms(after_seconds=600, busy_percent=101),
        IdleTerms(after_seconds=600, cpu_millicores=-1),
    ],
)
def test_a_rule_out_of_bounds_is_refused(terms: IdleTerms) -> None:
    with pytest.raises(IdleTermsOutOfRange):
        set_rule(None, rule_id=LEASE, of="bid", tenant_id=TENANT, terms=terms, now=instant_of(0))


def test_the_same_rule_again_changes_nothing() -> None:
    known = {"rule_id": LEASE, "tenant_id": TENANT, "now": instant_of(0) + timedelta(days=1)}
    assert set_rule(None, of="tenant", terms=None, **known) == []  # type: ignore[arg-type]
