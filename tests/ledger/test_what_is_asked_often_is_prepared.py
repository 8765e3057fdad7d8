"""The server reads and plans what is asked again and again once for each connection."""

from __future__ import annotations

import pytest
from django.db import connection

from ledger.eventstore.port import START
from ledger.eventstore.postgres import PostgresStore
from ledger.models import Checkpoint
from ledger.prepared import ask_for_all, tell_all
from tests.ledger.tallying import BY, counted

pytestmark = pytest.mark.django_db(transaction=True)


def prepared() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement FROM pg_prepared_statements")
        return [statement for (statement,) in cursor.fetchall()]


def times_prepared(of: str) -> int:
    return sum(of in statement for statement in prepared())


def test_questions_and_changes_are_planned_once() -> None:
    for number in range(3):
        ask_for_all("SELECT %s::int AS often", [number])
        tell_all([("SELECT set_config('offpeak.often', %s, false)", [str(number)])] * 2)

    assert times_prepared("AS often") == 1
    assert times_prepared("'offpeak.often'") == 1


def test_appends_and_readings_of_the_log_are_planned_once(committed_store: None) -> None:
    store = PostgresStore()
    for version in range(3):
        store.append("tally-a", [counted("tally-a", version)], expected=version, by=BY)
        store.read_all(after=START, limit=1)

    assert times_prepared("FROM es_append_one(") == 1
    assert times_prepared("FROM es_event WHERE position >") == 1


def test_texts_with_values_in_them_are_not_kept() -> None:
    before = len(prepared())
    for number in range(10):
        list(Checkpoint.objects.filter(position=number))

    assert len(prepared()) == before
