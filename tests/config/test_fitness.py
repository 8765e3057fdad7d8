"""Older code refuses newer data, and every process a pooler that lends its connections around."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from uuid import uuid4

import pytest
from django.core.management.base import CommandError
from django.db import connection, connections

from config.models import Wrote
from config.processes import fitness, starting
from config.processes.starting import refuse_unfit
from tests.conftest import NOON
from tests.journeys.installation import until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def migrated() -> Iterator[None]:
    yield
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE name = '0999_later'")


def test_data_of_this_version_is_no_reason_to_refuse() -> None:
    fitness.note_version(NOON)
    fitness.note_version(NOON + timedelta(hours=1))

    assert fitness.newer_data() == ""
    [row] = Wrote.objects.all()
    assert (row.first_at, row.last_at) == (NOON, NOON + timedelta(hours=1))


def test_tables_of_a_later_version_are_refused_by_name_and_writer(migrated: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO django_migrations (app, name, applied)"
            " VALUES ('ledger', '0999_later', now())"
        )
    Wrote.objects.create(version="0.9.0 (abc)", kinds={}, first_at=NOON, last_at=NOON)

    with pytest.raises(CommandError) as refused:
        refuse_unfit()

    assert "migration ledger.0999_later" in str(refused.value)
    assert "0.9.0 (abc) wrote last, 05 Jan 2026 12:00 UTC" in str(refused.value)


@pytest.mark.parametrize(
    ("name", "newest"), [("market.unheard-of", 1), ("listings.offer-withdrawn", 99)]
)
def test_events_of_a_later_version_are_refused(
    committed_store: None, name: str, newest: int
) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT es_append('offer-x', 0, ARRAY[%s]::uuid[], ARRAY[%s], ARRAY[%s]::int[],"
            " ARRAY[''::bytea], ''::bytea)",
            [uuid4(), name, newest],
        )

    assert f"{name} version {newest}" in fitness.newer_data()


def test_what_a_later_version_could_have_written_and_has_not_is_no_reason(
    committed_store: None,
) -> None:
    later = {**fitness.kinds(), "market.unheard-of": 1}
    Wrote.objects.create(version="0.9.0 (abc)", kinds=later, first_at=NOON, last_at=NOON)

    assert fitness.newer_data() == ""


def test_a_server_of_ones_own_is_not_taken_for_a_pooler() -> None:
    assert fitness.pooler() == ""


def test_a_process_that_is_shared_between_two_connections_is_a_pooler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fitness, "_served_by", lambda connected: 7)

    assert "transaction mode" in fitness.pooler()


def test_a_process_that_changes_between_two_transactions_is_a_pooler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served = iter(range(100))
    monkeypatch.setattr(fitness, "_served_by", lambda connected: next(served))

    assert "pool_mode = session" in fitness.pooler()


def test_a_database_that_is_away_is_waited_for_and_not_called_unfit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from django.db import OperationalError

    tries: list[int] = []

    def away_twice() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise OperationalError("away")
        return ""

    monkeypatch.setattr(fitness, "newer_data", away_twice)
    monkeypatch.setattr(starting, "WAIT_SECONDS", 0.01)

    refuse_unfit(stop=threading.Event())

    assert len(tries) == 3


def test_loops_that_stand_by_cost_their_process_one_connection() -> None:
    from config.processes.loops import InLine, _hold

    names = [f"standby-{number}" for number in range(6)]
    for name in names:
        assert _hold(name)
    before = _connections()
    in_line = InLine()
    for _ in range(3):
        for name in names:
            assert not in_line.is_free(name)

    assert len(_connections() - before) == 1

    for name in names:
        in_line.leave(name)
    # The server notices a moment later that a connection was closed.
    until(lambda: _connections() <= before, why="the connection is not given back")
    connections["default"].close()


def _connections() -> set[int]:
    """Return whom the server has connected, by its own processes."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid FROM pg_stat_activity"
            " WHERE datname = current_database() AND backend_type = 'client backend'"
        )
        return {pid for (pid,) in cursor.fetchall()}


def test_processes_name_themselves_to_the_server() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SHOW application_name")
        row = cursor.fetchone()

    assert row is not None
    assert row[0].startswith("offpeak")
