"""Use is forgotten by half in each half-life, exactly, and nothing is lost on the way."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from marketplace.domain.quotas.fair_share_order import (
    LN2,
    Decayed,
    FairShare,
    fair_share,
    remembered,
)

HOUR = 3_600_000
WEEK = 168 * HOUR

USES = st.lists(
    st.tuples(st.integers(1, 64), st.integers(0, 10**9), st.integers(1, 10**9)), max_size=30
)


def share_of(
    node: str,
    used: dict[str, Decayed],
    capacity: dict[str, int],
    *,
    weight_ppm: int = 1_000_000,
) -> FairShare:
    left = {gpu_class: each.gpu_millis for gpu_class, each in used.items()}
    half_life = max((each.half_life for each in used.values()), default=WEEK)
    return fair_share(node, left, capacity, half_life=half_life, weight_ppm=weight_ppm)


def test_after_a_half_life_half_is_left() -> None:
    once = Decayed(WEEK).plus(1, 0, HOUR, at=HOUR)
    assert math.isclose(once.carried(HOUR + WEEK).gpu_millis, once.gpu_millis / 2, rel_tol=1e-12)


def test_using_everything_for_ever_comes_to_a_share_of_one() -> None:
    used = Decayed(HOUR).plus(8, 0, 100 * HOUR, at=100 * HOUR)
    share = share_of("a", {"H100": used}, {"H100": 8})
    assert math.isclose(share.share, 1, rel_tol=1e-12)


@given(USES)
def test_carrying_forward_equals_the_closed_form(uses: list[tuple[int, int, int]]) -> None:
    uses = sorted(uses, key=lambda use: use[1] + use[2])
    carried, at = Decayed(WEEK), 0
    for gpus, starts, length in uses:
        at = starts + length
        carried = carried.plus(gpus, starts, at, at=at)
    closed = math.fsum(remembered(n, s, s + d, at=at, half_life=WEEK) for n, s, d in uses)
    assert math.isclose(carried.gpu_millis, closed, rel_tol=1e-9, abs_tol=0)


def test_a_hundred_thousand_steps_do_not_drift() -> None:
    carried = Decayed(WEEK)
    for step in range(100_000):
        carried = carried.plus(1, step * 1_000, (step + 1) * 1_000, at=(step + 1) * 1_000)
    whole = remembered(1, 0, 100_000_000, at=100_000_000, half_life=WEEK)
    assert math.isclose(carried.gpu_millis, whole, rel_tol=1e-9)


def test_the_smallest_use_counts() -> None:
    tiny = Decayed(WEEK).plus(1, 0, 1, at=1)
    assert math.isclose(tiny.gpu_millis, 1, rel_tol=1e-9)
    shares = [
        share_of("b", {"any": tiny}, {"any": 100_000}),
        share_of("z", {"any": Decayed(WEEK)}, {"any": 100_000}),
    ]
    assert [each.node for each in sorted(shares, key=lambda each: each.key)] == ["z", "b"]


def test_a_weight_of_zero_never_comes_first() -> None:
    busy = Decayed(WEEK).plus(8, 0, WEEK, at=WEEK)
    none = share_of("a", {}, {"any": 8}, weight_ppm=0)
    most = share_of("b", {"any": busy}, {"any": 8}, weight_ppm=1)
    assert min((none, most), key=lambda each: each.key) is most
    assert "goes last" in none.in_words()


def test_twice_the_weight_is_half_the_share() -> None:
    used = {"H100": Decayed(WEEK).plus(2, 0, HOUR, at=HOUR)}
    once = share_of("a", used, {"H100": 4})
    twice = share_of("a", used, {"H100": 4}, weight_ppm=2_000_000)
    assert math.isclose(once.share, 2 * twice.share)


def test_the_dominant_class_is_the_one_a_unit_had_most_of() -> None:
    many = Decayed(WEEK).plus(10, 0, HOUR, at=HOUR)
    few = Decayed(WEEK).plus(2, 0, HOUR, at=HOUR)
    share = share_of("a", {"T4": many, "H100": few}, {"T4": 100, "H100": 4})
    assert share.dominant == "H100"
    assert math.isclose(share.fraction * 4 * WEEK / LN2, few.gpu_millis)
