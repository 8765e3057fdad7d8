"""From the last byte of a log to the day it is forgotten, with a kill between any two steps."""

from __future__ import annotations

import os
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone

import marketplace.logs as keeping
from marketplace.logs import (
    Reader,
    begin_log,
    close_logs,
    forget_logs,
    logs_of,
)
from marketplace.models.logs import LogRow
from marketplace.storage.folder import FolderStorage
from marketplace.storage.logs import LogKey, OpenLogs
from marketplace.storage.port import StorageAway

pytestmark = pytest.mark.django_db
KEPT = timedelta(days=30)
TENANT = uuid4()


class Logs:
    """One log of a lease, and the storage beside it."""

    def __init__(self, folder: Path) -> None:
        self.logs = OpenLogs(folder / "open", head_bytes=100, tail_bytes=300)
        self.storage = FolderStorage(folder / "blobs")
        self.key = LogKey(uuid4(), uuid4(), 1, "stdout")
        self.now = timezone.now()
        begin_log(self.logs, self.key, TENANT, now=self.now)

    def age(self, **span: float) -> None:
        """Let the log have been written that long ago."""
        at = time.time() - timedelta(**span).total_seconds()
        for part in self.logs.parts(self.key):
            os.utime(self.logs.root / self.key.folder / f"stdout.{part.base}", (at, at))

    def close(self) -> int:
        return close_logs(self.storage, self.logs, kept=KEPT, now=timezone.now())

    def reader(self) -> Reader:
        return Reader(self.storage, self.logs, self.key)

    @property
    def row(self) -> LogRow:
        return LogRow.objects.get(lease_id=self.key.lease_id)


@pytest.fixture
def log(tmp_path: Path) -> Logs:
    return Logs(tmp_path)


def over(monkeypatch: pytest.MonkeyPatch, at: datetime | None) -> None:
    monkeypatch.setattr(keeping, "_ended_at", lambda lease_id: at)


def test_a_complete_log_is_put_away_and_reads_on(log: Logs) -> None:
    log.logs.append(log.key, 0, b"one\ntwo\n", ended=True)
    reader = log.reader()
    assert reader.read(0, 4) == (0, b"one\n")
    assert log.close() == 0  # a moment ago it was written

    log.age(seconds=10)
    assert log.close() == 1

    assert log.logs.size(log.key) is None
    assert reader.read(4, 100) == (4, b"")
    figures = reader.figures(now=timezone.now())
    assert (figures.size, figures.ended, figures.complete) == (8, True, True)
    assert reader.read(4, 100) == (4, b"two\n")
    assert (log.row.size_bytes, log.row.is_complete) == (8, True)


def test_nothing_is_begun_again_that_was_put_away(log: Logs) -> None:
    log.logs.append(log.key, 0, b"one\n", ended=True)
    log.age(seconds=10)
    log.close()

    assert not begin_log(log.logs, log.key, TENANT, now=timezone.now())
    assert log.logs.append(log.key, 4, b"more\n") == ("closed", 0)


def test_a_log_of_a_host_that_died_is_kept(log: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    log.logs.append(log.key, 0, b"the last it sent\n")
    over(monkeypatch, None)
    assert not log.reader().figures(now=timezone.now()).ended
    over(monkeypatch, timezone.now() - timedelta(days=2))
    log.age(hours=2)
    assert log.reader().figures(now=timezone.now()).ended
    assert log.close() == 0  # the rest of it may still come

    log.age(days=2)
    assert log.close() == 1

    figures = log.reader().figures(now=timezone.now())
    assert (figures.size, figures.ended, figures.complete) == (17, True, False)


def test_a_storage_that_is_away_loses_no_log(log: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    log.logs.append(log.key, 0, b"one\n", ended=True)
    log.age(seconds=10)

    def away(*_: object) -> None:
        raise StorageAway()

    with monkeypatch.context() as patch:
        patch.setattr(log.storage, "write", away)
        assert log.close() == 0
    assert log.reader().read(0, 9) == (0, b"one\n")

    assert log.close() == 1


@pytest.mark.parametrize("step", ["write", "remove"])
def test_a_kill_between_two_steps_loses_and_doubles_nothing(
    log: Logs, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    log.logs.append(log.key, 0, b"one\n", ended=True)
    log.age(seconds=10)

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    of = log.storage if step == "write" else log.logs
    with monkeypatch.context() as patch:
        patch.setattr(of, step, killed)
        with pytest.raises(KeyboardInterrupt):
            log.close()
    assert log.reader().read(0, 9) == (0, b"one\n")

    log.close()

    reader = log.reader()
    reader.figures(now=timezone.now())
    assert reader.read(0, 9) == (0, b"one\n")
    assert list(log.logs.known()) == []


def test_a_log_is_forgotten_when_its_time_is_over(log: Logs) -> None:
    log.logs.append(log.key, 0, b"one\n", ended=True)
    log.age(seconds=10)
    log.close()
    now = timezone.now()

    assert forget_logs(log.storage, now=now + timedelta(days=29)) == 0
    assert forget_logs(log.storage, now=now + timedelta(days=31)) == 1

    assert not LogRow.objects.exists()
    assert [path for path in log.storage.root.rglob("*") if path.is_file()] == []


def test_the_logs_of_a_lease_are_listed_as_they_are_now(log: Logs) -> None:
    log.logs.append(log.key, 0, b"one\n")
    log.logs.append(log.key, 10, b"two\n", skipped=True)

    (row,) = logs_of(log.logs, log.key.lease_id)

    assert (row.size_bytes, row.dropped_bytes, row.is_complete) == (14, 6, False)
