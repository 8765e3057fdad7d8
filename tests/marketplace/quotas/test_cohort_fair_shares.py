"""Fair shares hold at each level: between cohorts, then between who stands in them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from marketplace.domain.quotas.cohort_tree import around
from marketplace.domain.quotas.fair_share_order import LN2, Standings, parting, remembered

HALF_LIFE = 3_600_000
CLASSES = ("A100", "H100", "T4")
Used = dict[str, dict[str, float]]


@st.composite
def markets(draw: st.DrawFn) -> tuple[dict[str, str | None], Used, dict[str, int], dict[str, int]]:
    """Draw cohorts in cohorts, units in them or alone, their use, GPUs, and weights."""
    parents: dict[str, str | None] = {}
    for number in range(draw(st.integers(0, 5))):
        parents[f"cohort {number}"] = draw(st.sampled_from([None, *parents]))
    units = [f"unit {number}" for number in range(draw(st.integers(1, 8)))]
    cohorts = [*parents]
    for unit in units:
        parents[unit] = draw(st.sampled_from([None, *cohorts]))
    # Few amounts: so that many are as much as others.
    amounts = st.sampled_from([0.0, 1.0, 7.5, 3e9, 0.1, 0.2, 0.3, 1e15 / 7])
    used = {unit: draw(st.dictionaries(st.sampled_from(CLASSES), amounts)) for unit in units}
    capacity = {each: draw(st.integers(0, 9)) for each in CLASSES}
    weighed = st.sampled_from([0, 1, 500_000, 1_000_000, 3_000_000])
    weights = {node: draw(weighed) for node in parents if draw(st.booleans())}
    return parents, used, capacity, weights


def standings_of(
    parents: Mapping[str, str | None],
    used: Used,
    capacity: Mapping[str, int],
    weights: Mapping[str, int],
) -> Standings:
    return Standings(
        parents, used, capacity, lambda node: weights.get(node, 1_000_000), half_life=HALF_LIFE
    )


def flat(used: Used, capacity: Mapping[str, int], weights: Mapping[str, int]) -> list[str]:
    """Return the order of units that knows no cohorts, written down plainly."""

    def key(unit: str) -> tuple[bool, float, str]:
        most = 0.0
        for model, left in used[unit].items():
            if capacity.get(model, 0):
                most = max(most, left / (capacity[model] * HALF_LIFE / LN2))
        weight = weights.get(unit, 1_000_000)
        return (weight == 0, most if weight == 0 else most * 1_000_000 / weight, unit)

    return sorted(used, key=key)


def level_by_level(
    parents: Mapping[str, str | None],
    used: Used,
    capacity: Mapping[str, int],
    weights: Mapping[str, int],
) -> list[str]:
    """Return the order of units, found from the outside to the inside, as one would by hand."""

    def members(node: str) -> list[str]:
        below = [each for each, parent in parents.items() if parent == node]
        return [node] if node in used else [unit for each in below for unit in members(each)]

    def beside(parent: str | None) -> Iterator[str]:
        together: Used = {}
        for node, parent_of in parents.items():
            if parent_of == parent:
                of_all = [used[unit] for unit in members(node)]
                together[node] = {
                    model: math.fsum(each.get(model, 0.0) for each in of_all) for model in CLASSES
                }
        for node in flat(together, capacity, weights):
            yield from [node] if node in used else beside(node)

    return list(beside(None))


@given(markets())
def test_cohorts_come_in_turn_and_then_who_stands_in_them(market) -> None:  # type: ignore[no-untyped-def]
    parents, used, capacity, weights = market

    assert standings_of(*market).ordered() == level_by_level(parents, used, capacity, weights)


@given(markets(), st.integers(0, 3))
def test_units_that_all_stand_beside_each_other_come_as_ever(market, depth) -> None:  # type: ignore[no-untyped-def]
    _, used, capacity, weights = market
    around: dict[str, str | None] = {f"around {n}": f"around {n + 1}" for n in range(depth)}
    if depth:
        around[f"around {depth - 1}"] = None
    alone = {**around, **dict.fromkeys(used, "around 0" if depth else None)}

    ordered = standings_of(alone, used, capacity, weights).ordered()

    assert ordered == flat(used, capacity, weights)


@given(markets(), st.randoms(use_true_random=False))
def test_the_order_is_one_whatever_was_said_first(market, random: Random) -> None:  # type: ignore[no-untyped-def]
    parents, used, capacity, weights = market
    shuffled = [dict(random.sample([*each.items()], len(each))) for each in (parents, used)]

    first = standings_of(*market)
    again = standings_of(shuffled[0], shuffled[1], capacity, weights)

    assert first.ordered() == again.ordered()
    keys = [first.key(unit) for unit in first.units]
    assert len(set(keys)) == len(keys), "no two come in the same place"
    assert [first.key(unit) for unit in first.units] == [again.key(unit) for unit in first.units]


def test_members_add_up_alike_in_any_order() -> None:
    used = {"a": {"H100": 0.1}, "b": {"H100": 0.2}, "c": {"H100": 0.3}}
    parents = {"all": None} | dict.fromkeys(used, "all")

    first = standings_of(parents, used, {"H100": 1}, {}).share("all")
    again = standings_of(parents, dict(reversed(used.items())), {"H100": 1}, {}).share("all")

    assert first == again


@given(markets(), st.sampled_from([0.0, 1.0, 2e9]))
def test_who_joins_another_cohort_changes_nothing_within_this_one(market, joins) -> None:  # type: ignore[no-untyped-def]
    parents, used, capacity, weights = market
    before = standings_of(*market).ordered()
    for cohort in [node for node in parents if node not in used]:
        inside = [unit for unit in used if cohort in around(parents, unit)]
        elsewhere = [
            each
            for each in (None, *parents)
            if each not in used and each != cohort and cohort not in path_of(parents, each)
        ]
        for other in elsewhere:
            grown = {**parents, "newcomer": other}, {**used, "newcomer": {"H100": joins}}
            after = standings_of(*grown, capacity, weights).ordered()
            assert [unit for unit in after if unit in inside] == [
                unit for unit in before if unit in inside
            ]


def path_of(parents: Mapping[str, str | None], node: str | None) -> set[str]:
    found = set[str]()
    while node is not None:
        found.add(node)
        node = parents[node]
    return found


@given(markets(), st.integers(1, 63))
def test_use_split_over_two_units_leaves_the_cohort_where_it_is(market, part: int) -> None:  # type: ignore[no-untyped-def]
    parents, used, capacity, weights = market
    # Whole GPU-milliseconds: of these the sum of two parts is the whole to the last digit.
    whole = {unit: {m: float(round(left)) for m, left in of.items()} for unit, of in used.items()}
    unit = next(iter(whole))
    split = {**whole, unit: {}, "twin": {}}
    for model, left in whole[unit].items():
        split[unit][model] = float(int(left) * part // 64)
        split["twin"][model] = left - split[unit][model]

    before = standings_of(parents, whole, capacity, weights)
    after = standings_of({**parents, "twin": parents[unit]}, split, capacity, weights)

    for cohort in path_of(parents, parents[unit]):
        assert after.share(cohort) == before.share(cohort)
    others = [each for each in whole if parents[unit] not in path_of(parents, each)]
    if parents[unit] is not None:
        assert [each for each in after.ordered() if each in others] == [
            each for each in before.ordered() if each in others
        ]
        outside = [each for each in before.ordered() if each in (unit, *others)]
        assert [each for each in after.ordered() if each in (unit, *others)] == outside


def test_ten_units_do_not_get_ten_shares() -> None:
    crowd = [f"u{number}" for number in range(10)]
    parents = {"many": None, "one": None, "solo": "one"} | dict.fromkeys(crowd, "many")
    used = {unit: {"H100": 10.0} for unit in crowd} | {"solo": {"H100": 50.0}}
    capacity = {"H100": 8}

    assert standings_of(parents, used, capacity, {}).ordered() == ["solo", *sorted(crowd)]
    assert flat(used, capacity, {})[-1] == "solo", "alone it has most of all"


def test_a_weight_counts_among_those_beside_it_only() -> None:
    parents = {"left": None, "right": None, "a": "left", "b": "right"}
    used = {"a": {"H100": 2.0}, "b": {"H100": 3.0}}

    assert standings_of(parents, used, {"H100": 1}, {"b": 9_000_000}).ordered() == ["a", "b"]
    assert standings_of(parents, used, {"H100": 1}, {"right": 9_000_000}).ordered() == ["b", "a"]


def test_a_cohort_of_weight_0_comes_last_with_all_in_it() -> None:
    parents = {"left": None, "idle": "left", "busy": None, "more": None}
    used: Used = {"idle": {}, "busy": {"H100": 9e9}, "more": {"H100": 1e9}}
    weights = {"left": 0, "more": 0}

    assert standings_of(parents, used, {"H100": 1}, weights).ordered() == ["busy", "idle", "more"]


def test_where_two_ways_part_is_told_with_both_shares() -> None:
    parents = {"all": None, "left": "all", "a": "left", "b": "left", "c": "all"}
    used: Used = {"a": {"H100": 1.0}, "b": {"H100": 2.0}, "c": {}}
    standings = standings_of(parents, used, {"H100": 1}, {})

    level, one, other = parting(standings.path("a"), standings.path("c"))
    assert (level, one.node, other.node) == (1, "left", "c")
    level, one, other = parting(standings.path("a"), standings.path("b"))
    assert (level, one.node, other.node) == (2, "a", "b")


# --- turns within a pass ---------------------------------------------------------------------


@given(markets(), st.randoms(use_true_random=False))
def test_whoever_has_least_by_then_is_next(market, random: Random) -> None:  # type: ignore[no-untyped-def]
    parents, used, capacity, weights = market
    used = {unit: {m: float(round(left)) for m, left in of.items()} for unit, of in used.items()}
    waiting = {unit: [f"{unit} {n}" for n in range(random.randint(0, 4))] for unit in used}
    left = {unit: [*each] for unit, each in waiting.items()}
    standings = standings_of(parents, used, capacity, weights)
    plain = {unit: {**each} for unit, each in used.items()}

    for bid in standings.turns(waiting):
        ordered = level_by_level(parents, plain, capacity, weights)
        unit = next(each for each in ordered if left[each])
        assert bid == left[unit].pop(0)
        if random.random() < 0.6:
            gpus, millis = random.randint(1, 4), random.choice((60_000, 3_600_000))
            standings.add(unit, {"H100": gpus}, millis)
            more = gpus * round(remembered(1, 0, millis, at=millis, half_life=HALF_LIFE))
            plain[unit]["H100"] = plain[unit].get("H100", 0.0) + more
    assert not any(left.values())


def test_two_that_are_alike_take_turns() -> None:
    standings = standings_of({"a": None, "b": None}, {"a": {}, "b": {}}, {"H100": 4}, {})

    order = []
    for unit in standings.turns({"a": "aaa", "b": "bbb"}):
        order.append(unit)
        standings.add(unit, {"H100": 1}, HALF_LIFE)

    assert "".join(order) == "ababab"


def test_who_gets_nothing_does_not_lose_its_turn() -> None:
    standings = standings_of({"a": None, "b": None}, {"a": {}, "b": {}}, {"H100": 4}, {})

    assert "".join(standings.turns({"a": "aaa", "b": "bbb"})) == "aaabbb"


def test_what_was_granted_counts_as_at_its_end() -> None:
    standings = standings_of({"all": None, "a": "all"}, {"a": {}}, {"H100": 4}, {})

    standings.add("a", {"H100": 2}, HALF_LIFE)

    for node in ("a", "all"):
        expected = remembered(2, 0, HALF_LIFE, at=HALF_LIFE, half_life=HALF_LIFE)
        assert math.isclose(standings.share(node).gpu_millis, expected, rel_tol=1e-6)
