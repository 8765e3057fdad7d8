"""The rule by which work in a cloud moves home."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bursting.domain.capacity import InstancePrice
from bursting.domain.home_moves import (
    BY_THE_HOUR,
    BY_THE_SECOND,
    GIB,
    SECOND,
    Billing,
    HomeMoves,
    HomeRules,
    InCloud,
    Plan,
    ask,
    plan,
)
from bursting.domain.instances import instance_of
from ledger.domain.ids import LeaseId
from ledger.domain.money import Rate
from tests.bursting.bids_and_offers import NOON, PLATFORM
from tests.bursting.market import BID, TENANT

HOUR = timedelta(hours=1)
RULES = HomeRules()
NOW = NOON + 2 * HOUR
WORK = InCloud(
    gpus=1,
    price=Rate(800_000_000),
    limit=Rate(2_000_000_000),
    starts_at=NOON,
    ends_at=NOON + 12 * HOUR,
    deadline=NOON + 48 * HOUR,
    safe_at=NOW,
    resumes=True,
    is_free=True,
    grace=timedelta(seconds=15),
    hourly=InstancePrice(800_000_000),
    billing=BY_THE_SECOND,
    launched_at=NOON,
)

works = st.builds(
    lambda gpus, price, ran, rest, ago, more, step: replace(
        WORK,
        gpus=gpus,
        price=Rate(price),
        limit=Rate(price * 2),
        starts_at=NOW - ran,
        launched_at=NOW - ran - timedelta(minutes=5),
        ends_at=NOW + rest,
        safe_at=NOW - min(ago, ran),
        deadline=NOW + rest + more,
        hourly=InstancePrice(price * gpus),
        billing=Billing(step_seconds=step),
    ),
    st.integers(1, 8),
    st.integers(1, 10**11),
    st.timedeltas(timedelta(), timedelta(days=5)),
    st.timedeltas(SECOND, timedelta(days=5)),
    st.timedeltas(timedelta(), timedelta(days=1)),
    st.timedeltas(timedelta(), timedelta(days=3)),
    st.sampled_from([1, 60, 3_600]),
)
rules = st.builds(
    HomeRules,
    margin_ppm=st.integers(0, 1_000_000),
    lead_seconds=st.integers(5, 600),
    move_seconds=st.integers(0, 3_600),
    egress_nanos_per_gib=st.integers(0, 10**9),
)


@given(works, rules)
def test_whoever_moves_saves_the_margin_at_any_price_up_to_the_limit(
    work: InCloud, rule: HomeRules
) -> None:
    decided = plan(work, None, rules=rule, now=NOW)
    if not isinstance(decided, Plan):
        return
    assert decided.saved(decided.limit).nanos >= decided.margin.nanos
    assert decided.limit <= work.limit


@given(works, rules)
def test_the_lesser_of_what_consumer_and_cloud_would_save_is_what_counts(
    work: InCloud, rule: HomeRules
) -> None:
    decided = plan(work, None, rules=rule, now=NOW)
    if not isinstance(decided, Plan):
        return
    left = (work.ends_at - decided.starts_at) // timedelta(milliseconds=1)
    assert decided.cloud.nanos <= work.price.charge(left * work.gpus).nanos


@given(works, rules)
def test_what_moves_has_time_for_all_its_rest_before_its_deadline(
    work: InCloud, rule: HomeRules
) -> None:
    decided = plan(work, None, rules=rule, now=NOW)
    if not isinstance(decided, Plan):
        return
    assert work.safe_at is not None
    span = decided.seconds * SECOND
    assert span >= work.ends_at - work.safe_at + rule.move_seconds * SECOND
    assert decided.starts_at + span + rule.spare_seconds * SECOND <= work.deadline
    assert decided.starts_at >= NOW + work.grace
    assert decided.again_seconds >= 0


@given(works, rules, st.integers(1, 10**9))
def test_a_dearer_move_is_never_more_willing(work: InCloud, rule: HomeRules, more: int) -> None:
    cheap = plan(replace(work, volume_bytes=GIB), None, rules=rule, now=NOW)
    dear = plan(
        replace(work, volume_bytes=GIB),
        None,
        rules=replace(rule, egress_nanos_per_gib=rule.egress_nanos_per_gib + more),
        now=NOW,
    )
    if isinstance(dear, Plan):
        assert isinstance(cheap, Plan)
        assert dear.limit <= cheap.limit


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"resumes": False}, "not-resumed"),
        ({"is_free": False}, "not-running"),
        ({"safe_at": None}, "no-checkpoint"),
        ({"starts_at": NOW - timedelta(minutes=10)}, "too-soon"),
        ({"ends_at": NOW + timedelta(minutes=9)}, "rest-too-short"),
        ({"deadline": NOW + 10 * HOUR + timedelta(minutes=15)}, "deadline"),
        ({"volume_bytes": 1_000 * GIB}, "no-gain"),
    ],
)
def test_work_stays_and_why(changed: dict[str, object], why: str) -> None:
    rule = replace(RULES, egress_nanos_per_gib=90_000_000)
    work = replace(WORK, **changed)  # type: ignore[arg-type]  # fields by name

    assert plan(work, None, rules=rule, now=NOW) == why


def test_nothing_moves_where_it_is_switched_off() -> None:
    assert plan(WORK, None, rules=replace(RULES, is_on=False), now=NOW) == "off"


def test_an_hour_that_has_begun_is_paid_for_and_so_not_saved() -> None:
    work = replace(WORK, ends_at=NOW + timedelta(minutes=55), deadline=NOW + 9 * HOUR)
    by_hour = replace(work, launched_at=NOW, billing=BY_THE_HOUR)

    assert isinstance(plan(replace(work, launched_at=NOW), None, rules=RULES, now=NOW), Plan)
    assert plan(by_hour, None, rules=RULES, now=NOW) == "no-gain"


def test_after_a_try_it_waits_for_a_later_checkpoint_and_a_while() -> None:
    decided = plan(WORK, None, rules=RULES, now=NOW)
    assert isinstance(decided, Plan)
    (asked,) = ask(
        None,
        decided,
        lease_id=LeaseId(UUID(int=9)),
        instance_id=instance_of(BID.bid_id, 1),
        tenant_id=TENANT,
        owner_id=PLATFORM,
        price=Rate(1),
        now=NOW,
    )
    tries = HomeMoves.evolve(None, asked)

    later = NOW + timedelta(minutes=5)
    assert plan(WORK, tries, rules=RULES, now=later) == "checkpoint-known"
    newer = replace(WORK, safe_at=later)
    assert plan(newer, tries, rules=RULES, now=later) == "too-soon"
    assert isinstance(plan(newer, tries, rules=RULES, now=later + HOUR), Plan)


@given(st.timedeltas(timedelta(), timedelta(days=9)), st.integers(1, 7_200), st.integers(0, 7_200))
def test_a_cloud_bills_no_less_than_what_ran_and_no_step_too_many(
    span: timedelta, step: int, least: int
) -> None:
    billed = Billing(step_seconds=step, seconds_min=least).billed(span)

    assert billed >= max(span, least * SECOND)
    assert billed < max(span, least * SECOND) + (step + 1) * SECOND
