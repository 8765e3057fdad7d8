"""Behind a pooler in transaction mode no process starts; the refusal says what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest

from config.database.embedded import DATABASE
from tests.journeys.installation import Answered, Installation
from tests.outages.pooler import Pooler
from tests.outages.server import Server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.remove()


def test_the_stand_in_lends_one_connection_to_many(server: Server) -> None:
    with Pooler(server.socket, DATABASE) as pooler:
        one = psycopg.connect(pooler.url, autocommit=True, prepare_threshold=None)
        two = psycopg.connect(pooler.url, autocommit=True, prepare_threshold=None)
        with one, two:
            served = [each.execute("SELECT pg_backend_pid()").fetchone() for each in (one, two)]

    assert served[0] == served[1]


@pytest.fixture(scope="module")
def behind_pooler(
    server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[list[str]], Answered]]:
    """Return what runs `manage.py` behind a pooler."""
    home = tmp_path_factory.mktemp("home")
    with Pooler(server.socket, DATABASE, connections=3) as pooler:
        market = Installation(home, {"DATABASE_URL": pooler.url})
        (home / "logs").mkdir()
        yield lambda words: market.manage_anyway(*words)
        market.end_all()


@pytest.mark.parametrize("words", [["run", "lease-clock"], ["web"], ["run", "projections"]])
def test_a_process_behind_it_refuses_with_advice(
    behind_pooler: Callable[[list[str]], Answered], words: list[str]
) -> None:
    ended = behind_pooler(words)

    assert ended.code == 1, ended.err
    assert "pooler in transaction mode" in ended.err
    assert "pool_mode = session" in ended.err
