"""Behind a pooler in transaction mode no process starts; the refusal says what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from config.database.embedded import DATABASE
from tests.outages.pooler import Pooler
from tests.outages.server import Server

ROOT = Path(__file__).resolve().parents[2]


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


@pytest.mark.parametrize("words", [["run", "lease-clock"], ["web"], ["run", "projections"]])
def test_a_process_behind_it_refuses_with_advice(
    server: Server, tmp_path: Path, words: list[str]
) -> None:
    with Pooler(server.socket, DATABASE, connections=3) as pooler:
        ended = subprocess.run(
            [sys.executable, "manage.py", *words],
            cwd=ROOT,
            env={
                **os.environ,
                "DJANGO_SETTINGS_MODULE": "config.settings",
                "OFFPEAK_HOME": str(tmp_path),
                "DATABASE_URL": pooler.url,
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    assert ended.returncode == 1, ended.stderr
    assert "pooler in transaction mode" in ended.stderr
    assert "pool_mode = session" in ended.stderr
