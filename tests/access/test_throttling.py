"""A bucket per token, shared by all processes."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from ledger.rest.problems import TooManyRequests
from ledger.rest.throttling import take
from tests.access.conftest import Caller
from tests.conftest import NOON

PER_MINUTE = 30


def taken(seconds: float, caller: str = "token:a") -> bool:
    try:
        take(caller, per_minute=PER_MINUTE, now=NOON + timedelta(seconds=seconds))
    except TooManyRequests:
        return False
    return True


@pytest.mark.django_db
def test_a_bucket_holds_a_minute_and_fills_evenly() -> None:
    assert [taken(0) for _ in range(31)] == [True] * 30 + [False]
    assert [taken(1.9), taken(2), taken(2)] == [False, True, False]
    assert [taken(1_000) for _ in range(31)] == [True] * 30 + [False]
    assert taken(0, caller="token:b")


@pytest.mark.django_db
def test_a_clock_that_is_a_little_behind_fills_and_empties_nothing() -> None:
    for _ in range(30):
        assert taken(60)

    assert not taken(55)
    assert not taken(61.9)
    assert taken(62)


@pytest.mark.django_db
def test_nobody_waits_for_the_time_of_a_clock_that_was_far_ahead() -> None:
    for _ in range(30):
        assert taken(3_600)

    assert [taken(0) for _ in range(31)] == [True] * 30 + [False]
    assert [taken(1.9), taken(2)] == [False, True]


class Buckets(TestCase):
    """Whatever the times of the requests."""

    @given(st.lists(st.integers(0, 5_000), min_size=1, max_size=60))
    def test_no_more_pass_than_the_bucket_held_and_gained(self, gaps_millis: list[int]) -> None:
        """A caller gets at most a full bucket and what fills up meanwhile."""
        seconds, passed = 0.0, 0
        for gap in gaps_millis:
            seconds += gap / 1000
            passed += taken(seconds)

        self.assertLessEqual(passed, PER_MINUTE + seconds * PER_MINUTE / 60 + 1e-6)
        self.assertGreaterEqual(passed, min(len(gaps_millis), PER_MINUTE))


@pytest.mark.urls("tests.access.probe")
def test_a_caller_sees_what_is_left_and_when_to_come_back(
    ada: Caller, bob: Caller, monkeypatch: Any
) -> None:
    monkeypatch.setattr(settings, "ENV", replace(settings.ENV, throttle_per_minute=2))

    answers = [ada.get("/api/v1/notes") for _ in range(3)]

    assert [each.status_code for each in answers] == [200, 200, 429]
    assert answers[0]["RateLimit-Limit"] == "2"
    assert [each["RateLimit-Remaining"] for each in answers[:2]] == ["1", "0"]
    assert answers[1]["RateLimit-Reset"] == "60"
    assert answers[2]["Retry-After"] == "30"
    assert answers[2].json()["code"] == "too-many-requests"
    assert bob.get("/api/v1/notes").status_code == 200


@pytest.mark.django_db
def test_the_buckets_cost_no_write_to_disk() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relpersistence FROM pg_class WHERE oid = 'ledger_tokenbucket'::regclass"
        )
        assert cursor.fetchone() == ("u",)
