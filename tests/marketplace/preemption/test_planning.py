"""Who is interrupted: the fewest that are needed, lawfully, and only where it helps."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.domain.ids import LeaseId
from marketplace.domain.quotas.cohort_tree import Quota, Tree, Usage
from marketplace.domain.quotas.reclaim_candidates import Planner, Running

PARENTS = {"lab": None, "a": "lab", "b": "lab", "c": "lab"}


def lease(number: int, node: str, gpus: int, **terms: int | bool) -> Running:
    given_terms: dict[str, int | bool] = {"priority": 0, "firm": False, "since": number, **terms}
    return Running(LeaseId(UUID(int=number)), node, gpus, **given_terms)  # type: ignore[arg-type]


def planner(*running: Running, **quotas: int) -> Planner:
    usage = Usage(Tree(PARENTS, {node: Quota(nominal) for node, nominal in quotas.items()}))
    for each in running:
        usage.take(each.lease_id, each.node, each.gpus)
    return Planner(usage, running)


def numbers(plan: object) -> list[int]:
    return sorted(victim.lease_id.int for victim in plan.victims)  # type: ignore[attr-defined]


def test_what_was_borrowed_is_taken_back_by_whom_it_belongs_to() -> None:
    plans = planner(lease(1, "b", 4), lease(2, "b", 4), a=4, b=4)
    plan = plans.plan("new", "a", 4, priority=0, now=10)
    assert plan is not None and numbers(plan) == [2], "the newest goes"
    assert plan.verdict.outcome == "nominal"


def test_nobody_is_interrupted_for_what_would_be_borrowed() -> None:
    plans = planner(lease(1, "b", 6), a=2, b=4)
    assert plans.plan("new", "a", 4, priority=9, now=10) is None
    assert plans.usage.used("b") == 6


def test_nobody_loses_what_is_within_its_own_quota() -> None:
    plans = planner(lease(1, "b", 4), lease(2, "c", 4), a=4, b=4, c=0)
    plan = plans.plan("new", "a", 4, priority=0, now=10)
    assert plan is not None and numbers(plan) == [2]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (lease(1, "b", 2), lease(2, "b", 2, firm=True)),
        (lease(1, "b", 2), lease(2, "b", 2, priority=5)),
        (lease(2, "b", 2), lease(1, "b", 2)),
        (lease(1, "b", 2), lease(2, "b", 2, protected_until=99)),
    ],
    ids=["interruptible before firm", "lower priority", "newer", "beyond its minimum runtime"],
)
def test_who_goes_first(first: Running, second: Running) -> None:
    plans = planner(first, second, a=2, b=2)
    plan = plans.plan("new", "a", 2, priority=0, now=10)
    assert plan is not None and numbers(plan) == [first.lease_id.int]


def test_two_candidates_never_take_one_victim() -> None:
    plans = planner(lease(1, "c", 2), lease(2, "c", 2), a=2, b=2)
    one = plans.plan("one", "a", 2, priority=0, now=10)
    two = plans.plan("two", "b", 2, priority=0, now=10)
    assert one is not None and two is not None
    assert not set(numbers(one)) & set(numbers(two))
    assert plans.plan("three", "a", 1, priority=0, now=10) is None
    assert plans.usage.used("lab") == plans.usage.tree.subtree["lab"]


def test_without_a_place_nobody_is_interrupted() -> None:
    plans = planner(lease(1, "b", 4), a=4)
    assert plans.plan("new", "a", 4, priority=0, now=10, placeable=lambda gone: False) is None
    assert plans.usage.used("b") == 4
    assert plans.plan("new", "a", 4, priority=0, now=10) is not None, "nothing was consumed"


def test_more_go_than_the_quota_needs_where_the_place_needs_them() -> None:
    plans = planner(lease(1, "b", 1), lease(2, "b", 1), a=2, b=0)
    plan = plans.plan(
        "new", "a", 1, priority=0, now=10, placeable=lambda gone: LeaseId(UUID(int=1)) in gone
    )
    assert plan is not None and numbers(plan) == [1]


def test_in_its_own_unit_only_what_matters_less_goes() -> None:
    plans = planner(lease(1, "a", 2, priority=5), lease(2, "a", 2, priority=1), a=4)
    assert plans.plan("new", "a", 2, priority=1, now=10) is None
    plan = plans.plan("new", "a", 2, priority=2, now=10)
    assert plan is not None and numbers(plan) == [2]


RUNNING = st.lists(
    st.tuples(
        st.sampled_from("abc"), st.integers(1, 4), st.integers(0, 3), st.booleans(), st.booleans()
    ),
    max_size=8,
)


@given(
    RUNNING,
    st.tuples(*[st.integers(0, 6)] * 3),
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 6), st.integers(0, 3)), max_size=4),
)
def test_plans_are_lawful_minimal_and_never_over_admit(
    running: list[tuple[str, int, int, bool, bool]],
    nominal: tuple[int, ...],
    asked: list[tuple[str, int, int]],
) -> None:
    plans = planner(**dict(zip("abc", nominal, strict=True)))
    usage, known = plans.usage, {}
    for number, (node, gpus, priority, firm, safe) in enumerate(running, 1):
        one = lease(
            number, node, gpus, priority=priority, firm=firm, protected_until=99 if safe else 0
        )
        if usage.fits(node, gpus).fits:
            usage.take(one.lease_id, node, gpus)
            plans.started(one)
            known[one.lease_id] = one
    taken: set[LeaseId] = set()
    for name, (node, gpus, priority) in enumerate(asked):
        before = usage.copy()
        plan = plans.plan(f"new {name}", node, gpus, priority=priority, now=10)
        if plan is None:
            assert before._used == usage._used, "refused means nothing changed"
            continue
        gone = [known[victim.lease_id] for victim in plan.victims]
        assert not taken & {each.lease_id for each in gone}
        taken |= {each.lease_id for each in gone}
        assert usage.used("lab") <= usage.tree.subtree["lab"]
        for each, victim in zip(gone, plan.victims, strict=True):
            assert each.protected_until <= 10
            if each.node == node:
                assert each.priority < priority and victim.ground == "own-unit"
            else:
                assert victim.ground == "cohort" and before.borrowed(each.node)
                assert usage.used(node) <= usage.tree.subtree[node]
            fewer = before.copy()
            for other in gone:
                if other is not each:
                    fewer.release(other.lease_id)
            within = fewer.used(node) + gpus <= usage.tree.subtree[node]
            others = {other.ground for other in plan.victims if other is not victim}
            assert not fewer.fits(node, gpus).fits or (not within and "cohort" in others)
