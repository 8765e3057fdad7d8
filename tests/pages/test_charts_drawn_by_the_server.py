"""Pictures are exact about what they are given, and say so when there is nothing to show."""

from __future__ import annotations

from config.site.parts.charts import (
    CROSSING_HEIGHT,
    CROSSING_WIDTH,
    DEPTH_HEIGHT,
    Level,
    Slot,
    crossing,
    depth,
    hours,
    sparkline,
)
from config.site.shell import navigation_for

CENT = 10_000_000


def test_nothing_to_show_is_no_picture() -> None:
    assert sparkline([1.0]) is None
    assert depth([], []) is None
    assert hours([]) is None
    assert crossing([], []) is None


def test_a_trifle_is_drawn_as_a_level_line_and_a_doubling_as_high_as_the_box() -> None:
    trifle, doubled = sparkline([0.8, 0.8001]), sparkline([1.0, 2.0])

    assert trifle is not None
    assert doubled is not None
    assert trifle.line == "M0.0 31.0L240.0 30.7"
    assert doubled.line == "M0.0 31.0L240.0 3.0"


def test_what_does_not_move_is_no_line() -> None:
    flat = sparkline([0.8, 0.8, 0.8])

    assert flat is not None
    assert flat.is_flat
    assert flat.line == ""


def test_bars_have_an_axis_of_whole_gpus() -> None:
    picture = hours([Slot("10:00", 3, 1), Slot("10:30", 0, 0)])

    assert picture is not None
    assert [(tick.text, tick.at) for tick in picture.counts] == [
        ("0", 120.0),
        ("1", 90.0),
        ("2", 60.0),
        ("3", 30.0),
        ("4", 0.0),
    ]


def test_depth_cumulates_from_the_best_price_outwards() -> None:
    picture = depth(
        [Level(190 * CENT, 4), Level(200 * CENT, 4)], [Level(220 * CENT, 6), Level(210 * CENT, 2)]
    )

    assert picture is not None
    assert picture.bids.endswith(f"V8.0H0V{DEPTH_HEIGHT}Z")
    assert picture.asks.count("V") == 3
    assert [tick.text for tick in picture.counts] == ["2", "4", "6", "8"]
    assert all(189 * CENT <= float(tick.text) * 1e9 <= 222 * CENT for tick in picture.prices)


def test_supply_rises_and_demand_falls_over_the_gpus() -> None:
    picture = crossing(
        [Level(300 * CENT, 2), Level(100 * CENT, 1)],
        [Level(200 * CENT, 1), Level(400 * CENT, 3)],
        200 * CENT,
    )

    assert picture is not None
    width = CROSSING_WIDTH - 8
    assert [part.split("V")[0] for part in picture.supply.split("H")[1:]] == [
        f"{width / 4:.1f}",
        f"{width * 3 / 4:.1f}",
    ]
    assert picture.demand.endswith(f"H{width:.1f}")
    heights = [float(part.split("H")[0]) for part in picture.demand.split("V")[1:]]
    assert picture.mark == heights[-1]
    assert 0 < float(picture.demand[3:].split("H")[0]) < picture.mark < CROSSING_HEIGHT


def test_a_price_outside_all_limits_is_still_in_the_picture() -> None:
    picture = crossing([Level(100 * CENT, 1)], [], 500 * CENT)

    assert picture is not None
    assert picture.mark is not None
    assert 0 < picture.mark < CROSSING_HEIGHT
    assert picture.demand == ""


def test_a_flat_book_at_one_price_is_still_drawn() -> None:
    picture = depth([], [Level(0, 3)])

    assert picture is not None
    assert picture.bids == ""


def test_supply_stacks_leased_under_free() -> None:
    picture = hours([Slot("20:00", 6, 2, night=True), Slot("20:30", 0, 0)])

    assert picture is not None
    assert picture.most == 8
    first, second = picture.bars
    assert first.leased_y == first.free_y + first.free_height
    assert (second.free_height, second.leased_height) == (0, 0)
    assert first.text == "20:00: 6 free, 2 leased"


def test_navigation_shows_what_the_role_may_see_and_where_one_is() -> None:
    groups = navigation_for(frozenset({"finance"}), "/finance/2026-01")

    entries = [entry for group in groups for entry in group["places"]]
    assert [entry["place"].name for entry in entries] == [
        "Market", "Rounds", "Fair shares", "Invoices", "Payouts", "Spend", "Budgets", "Wallet",
        "Finance", "Disputes", "Burst", "Settings", "Docs",
    ]  # fmt: skip
    assert [entry["place"].name for entry in entries if entry["current"]] == ["Finance"]
