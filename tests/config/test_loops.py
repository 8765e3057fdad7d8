"""One process at a time holds a loop, and the next in line takes over when it is gone."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pytest
from django.db import connection, connections

from config.processes import loops
from config.processes.loops import Loop, run_loop
from ledger.eventstore.port import EventStore

pytestmark = pytest.mark.django_db(transaction=True)

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 60.0

HOLDER = """
import sys, threading
from django.conf import settings
settings.DATABASES["default"]["NAME"] = sys.argv[1]
import django
django.setup()
from config.processes.loops import Loop, run_loop
def say(store, now):
    print("pass", flush=True)
    return 0
run_loop(Loop("test-loop", 0.05, say), stop=threading.Event())
"""


@pytest.fixture
def holder(transactional_db: None) -> Iterator[subprocess.Popen[str]]:
    """Another process, which holds the loop."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(connection.settings_dict["NAME"])],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "DJANGO_SETTINGS_MODULE": "tests.settings"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    while "pass" not in process.stdout.readline():
        assert process.poll() is None
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


class Standing:
    """The same loop in this process, in a thread."""

    def __init__(self, run_once: Callable[[EventStore, datetime], int] | None = None) -> None:
        self.passed = threading.Event()
        self.stop = threading.Event()
        self._run_once = run_once
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def end(self) -> None:
        self.stop.set()
        self.thread.join(PATIENCE_SECONDS)
        assert not self.thread.is_alive()

    def _run(self) -> None:
        try:
            run_loop(Loop("test-loop", 0.05, self._pass), stop=self.stop)
        finally:
            connections.close_all()

    def _pass(self, store: EventStore, now: datetime) -> int:
        self.passed.set()
        return self._run_once(store, now) if self._run_once else 0


def test_a_loop_is_prepared_before_it_asks_for_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []
    stop = threading.Event()

    def once(store: EventStore, now: datetime) -> int:
        happened.append("pass")
        stop.set()
        return 0

    hold = loops._hold

    def turn(name: str) -> bool:
        happened.append("turn")
        return hold(name)

    monkeypatch.setattr(loops, "_hold", turn)
    run_loop(Loop("prepared", 1.0, once, prepare=lambda: happened.append("prepared")), stop=stop)

    assert happened == ["prepared", "turn", "pass"]


def test_the_next_in_line_takes_over_when_the_holder_is_killed(
    holder: subprocess.Popen[str],
) -> None:
    second = Standing()
    try:
        assert not second.passed.wait(loops.STANDBY_SECONDS * 1.5), "two held the loop at once"

        holder.kill()

        assert second.passed.wait(PATIENCE_SECONDS)
    finally:
        second.end()


def test_a_holder_that_lost_its_connection_stops_and_asks_for_the_lock_again(
    transactional_db: None,
) -> None:
    held: list[int] = []

    def backend(store: EventStore, now: datetime) -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            [process] = cursor.fetchone() or [0]
        if process not in held:
            held.append(process)
            came.set()
        return 0

    came = threading.Event()
    loop = Standing(backend)
    try:
        assert came.wait(PATIENCE_SECONDS)
        came.clear()
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s)", [held[0]])

        assert came.wait(PATIENCE_SECONDS), "it did not come back"
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pid FROM pg_locks"
                " WHERE locktype = 'advisory' AND granted AND pid = ANY(%s)",
                [held],
            )
            holders = [process for (process,) in cursor.fetchall()]
        assert holders == held[1:], "it went on without holding the lock"
    finally:
        loop.end()


def test_a_connection_that_was_replaced_under_the_loop_ends_its_passes(
    transactional_db: None,
) -> None:
    passes: list[bool] = []

    def lose_it_silently(store: EventStore, now: datetime) -> int:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_locks"
                " WHERE locktype = 'advisory' AND granted AND pid = pg_backend_pid()"
            )
            [locks] = cursor.fetchone() or [0]
        passes.append(locks > 0)
        if len(passes) == 1:
            connection.close()  # as a loop's own code may, after an error of the database
        elif len(passes) > 2:
            again.set()
        return 1

    again = threading.Event()
    loop = Standing(lose_it_silently)
    try:
        assert again.wait(PATIENCE_SECONDS)
    finally:
        loop.end()

    assert all(passes), "a pass ran without the lock"


def test_a_loop_that_fails_is_tried_again(transactional_db: None) -> None:
    tries: list[int] = []

    def fail_twice(store: EventStore, now: datetime) -> int:
        tries.append(1)
        if len(tries) < 3:
            raise ValueError("a fault of the loop")
        done.set()
        return 0

    done = threading.Event()
    loop = Standing(fail_twice)
    try:
        assert done.wait(PATIENCE_SECONDS)
    finally:
        loop.end()
