"""A page of work starves nobody behind it, and what fails alone fails for itself."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import OperationalError

from ledger.domain.refusal import Refusal
from ledger.eventstore.memory import MemoryStore
from ledger.turns import AWAY_IN_A_ROW_MAX, Turns, each_alone, turns_of


class Empty(Refusal):
    """There is nothing left."""


def pages(entries: list[int], turns: Turns[Any], *, limit: int, passes: int) -> list[list[int]]:
    def page(after: tuple[int] | None, most: int) -> list[tuple[int]]:
        return [(each,) for each in entries if after is None or each > after[0]][:most]

    return [[key for (key,) in turns.take(page, limit)] for _ in range(passes)]


def test_entries_that_stay_let_those_behind_them_have_their_turn() -> None:
    found = pages([1, 2, 3, 4, 5], Turns(), limit=2, passes=4)
    assert found == [[1, 2], [3, 4], [5], [1, 2]]


def test_a_list_that_ends_with_a_page_begins_anew_at_once() -> None:
    assert pages([1, 2, 3, 4], Turns(), limit=2, passes=3) == [[1, 2], [3, 4], [1, 2]]


def test_a_list_that_fits_a_page_is_looked_at_whole_each_time() -> None:
    assert pages([1, 2], Turns(), limit=3, passes=2) == [[1, 2], [1, 2]]
    assert pages([], Turns(), limit=3, passes=2) == [[], []]


def test_new_entries_at_the_head_wait_for_one_round_only() -> None:
    turns: Turns[Any] = Turns()
    assert pages([10, 20, 30], turns, limit=2, passes=1) == [[10, 20]]
    assert pages([1, 2, 10, 20, 30], turns, limit=2, passes=2) == [[30], [1, 2]]


def test_each_store_and_each_list_has_turns_of_its_own() -> None:
    first, second = MemoryStore(), MemoryStore()
    assert turns_of(first, "a") is turns_of(first, "a")
    assert turns_of(first, "a") is not turns_of(first, "b")
    assert turns_of(first, "a") is not turns_of(second, "a")


def done(entries: list[object]) -> tuple[int, list[object]]:
    asked: list[object] = []

    def act(entry: object) -> int:
        asked.append(entry)
        if isinstance(entry, Exception):
            raise entry
        return 1

    return each_alone(entries, act, event="stuck", told=lambda entry: {"entry": "x"}), asked


@pytest.mark.parametrize(
    "failure", [Empty(), AssertionError("a bug"), KeyError("a"), OperationalError("too long")]
)
def test_one_that_fails_stops_no_other_whatever_it_is(failure: Exception) -> None:
    entries = ["a", failure, "b", failure, "c"]
    count, asked = done(entries)
    assert (count, asked) == (3, entries)


def test_a_database_that_is_away_ends_the_pass() -> None:
    away = [OperationalError("gone")] * (AWAY_IN_A_ROW_MAX + 2)
    with pytest.raises(OperationalError):
        done(list(away))


def test_a_failure_that_is_no_entrys_own_ends_the_pass() -> None:
    asked: list[str] = []

    def ask(entry: str) -> int:
        asked.append(entry)
        raise TimeoutError if entry == "b" else ValueError

    with pytest.raises(TimeoutError):
        each_alone("abc", ask, event="stuck", told=lambda _: {}, ends=(TimeoutError,))
    assert asked == ["a", "b"]
