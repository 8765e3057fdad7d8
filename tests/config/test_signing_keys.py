"""Processes that sign with different keys are found, and only the one that came later is held."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from config.examination import examine
from config.operations.health import findings
from config.security.signing_keys import ALIVE_SECONDS, digest_of, disagreement, tell_key

pytestmark = pytest.mark.django_db
FIRST, SECOND = "a" * 48, "b" * 48


@pytest.fixture(autouse=True)
def nobody_has_told() -> None:
    """Forget servers that other tests started on this database: they count for a minute."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM site_signing_key")


def tell(settings: Any, key: str) -> None:
    settings.SECRET_KEY = key
    tell_key()


def let_pass(seconds: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE site_signing_key SET first_seen_at = first_seen_at - make_interval(secs => %s),"
            " last_seen_at = last_seen_at - make_interval(secs => %s)",
            [seconds, seconds],
        )


def test_one_key_is_fine_however_many_tell_it(settings: Any) -> None:
    for _ in range(3):
        tell(settings, FIRST)

    assert disagreement() == ("", False)


def test_the_process_that_came_with_another_key_is_not_ready(settings: Any) -> None:
    tell(settings, FIRST)
    let_pass(10)
    tell(settings, SECOND)

    told, at_fault = disagreement()
    [found] = [each for each in findings() if each.name == "session key"]

    assert at_fault and not found.ok
    assert "OFFPEAK_SECRET_KEY" in told and told == found.detail


def test_the_process_that_was_there_first_goes_on_and_says_so(settings: Any) -> None:
    tell(settings, FIRST)
    let_pass(10)
    tell(settings, SECOND)
    settings.SECRET_KEY = FIRST

    told, at_fault = disagreement()
    [found] = [each for each in findings() if each.name == "session key"]

    assert told and not at_fault and found.ok and found.detail == told
    assert not all(each.ok for each in examine(whole=False) if each.name == "one session key")


def test_a_doctor_with_a_key_of_its_own_is_told(settings: Any) -> None:
    tell(settings, FIRST)
    settings.SECRET_KEY = SECOND

    assert disagreement()[1]


def test_a_key_is_changed_once_the_old_processes_are_gone(settings: Any) -> None:
    tell(settings, FIRST)
    let_pass(ALIVE_SECONDS + 1)
    tell(settings, SECOND)

    assert disagreement() == ("", False)


def test_a_key_that_comes_back_was_not_there_first(settings: Any) -> None:
    tell(settings, FIRST)
    let_pass(ALIVE_SECONDS + 1)
    tell(settings, SECOND)
    let_pass(10)
    tell(settings, FIRST)

    assert disagreement()[1]


def test_a_digest_gives_no_key_away() -> None:
    assert FIRST not in digest_of(FIRST)
    assert digest_of(FIRST) != digest_of(SECOND)
