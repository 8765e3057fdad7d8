"""A log that grows: by offsets, within bounds, by any number of writers, and read meanwhile."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from uuid import uuid4

import pytest

from marketplace.storage.closed_logs import ClosedLog, compressed
from marketplace.storage.logs import LogKey, OpenLogs, dropped_bytes

KEY = LogKey(uuid4(), uuid4(), 1, "stdout")


@pytest.fixture
def logs(tmp_path: Path) -> OpenLogs:
    logs = OpenLogs(tmp_path / "logs", head_bytes=100, tail_bytes=300)
    logs.begin(KEY)
    return logs


def everything(log: OpenLogs | ClosedLog, most: int = 40) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    offset = 0
    while True:
        if isinstance(log, ClosedLog):
            start, data = log.read(offset, most)
        else:
            start, data = log.read(KEY, offset, most)
        if not data:
            return found
        found.append((start, data))
        offset = start + len(data)


def text(log: OpenLogs | ClosedLog) -> bytes:
    return b"".join(data for _, data in everything(log))


def test_bytes_are_added_where_the_log_ends(logs: OpenLogs) -> None:
    assert logs.append(KEY, 0, b"one\n") == ("taken", 4)
    assert logs.append(KEY, 4, b"two\n") == ("taken", 8)

    assert text(logs) == b"one\ntwo\n"


def test_what_is_known_is_left_out(logs: OpenLogs) -> None:
    logs.append(KEY, 0, b"one\ntwo\n")

    assert logs.append(KEY, 0, b"one\ntwo\n") == ("taken", 8)
    assert logs.append(KEY, 4, b"two\nthree\n") == ("taken", 14)

    assert text(logs) == b"one\ntwo\nthree\n"


def test_bytes_after_a_gap_are_not_taken(logs: OpenLogs) -> None:
    logs.append(KEY, 0, b"one\n")

    assert logs.append(KEY, 9, b"three\n") == ("ahead", 4)

    assert text(logs) == b"one\n"


def test_a_gap_of_which_the_host_has_nothing_is_kept_as_one(logs: OpenLogs) -> None:
    logs.append(KEY, 0, b"one\n")

    assert logs.append(KEY, 9, b"three\n", skipped=True) == ("taken", 15)

    assert everything(logs) == [(0, b"one\n"), (9, b"three\n")]
    assert dropped_bytes(logs.parts(KEY)) == 5


def test_head_and_tail_are_kept(logs: OpenLogs) -> None:
    sent = os.urandom(2_000)
    for at in range(0, 2_000, 70):
        logs.append(KEY, at, sent[at : at + 70])

    found = everything(logs)

    kept = sum(len(data) for _, data in found)
    assert logs.size(KEY) == 2_000
    assert 300 <= kept <= 400
    assert dropped_bytes(logs.parts(KEY)) == 2_000 - kept
    assert text(logs).startswith(sent[:100])
    assert text(logs).endswith(sent[-200:])
    assert all(sent[start:].startswith(data) for start, data in found)


def test_nothing_is_added_after_the_end(logs: OpenLogs) -> None:
    logs.append(KEY, 0, b"one\n", ended=True)

    assert logs.final_size(KEY) == 4
    assert logs.append(KEY, 0, b"one\n", ended=True) == ("taken", 4)
    assert logs.append(KEY, 4, b"more\n") == ("closed", 4)


def test_a_log_that_was_not_begun_takes_nothing(logs: OpenLogs) -> None:
    other = LogKey(uuid4(), uuid4(), 1, "stdout")

    assert logs.append(other, 0, b"one\n") == ("closed", 0)
    assert logs.size(other) is None


def test_writers_at_the_same_time_double_nothing(logs: OpenLogs) -> None:
    sent = b"".join(b"%04d\n" % number for number in range(60))

    def write() -> None:
        at = 0
        while at < len(sent):
            _, at = logs.append(KEY, at, sent[at : at + 7])

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert text(logs) == sent


def test_a_blob_of_a_log_reads_the_same_at_every_offset(logs: OpenLogs) -> None:
    sent = os.urandom(1_500)
    logs.append(KEY, 0, sent)
    parts = logs.parts(KEY)
    before = everything(logs)

    closed = ClosedLog(compressed(logs, KEY, parts))

    assert everything(closed) == before
    for offset in (0, 99, 100, 700, 1_499, 1_500, 3):
        start, data = closed.read(offset, 10)
        assert (start, data) == logs.read(KEY, offset, 10)


def test_a_log_is_followed_while_somebody_says_so(logs: OpenLogs) -> None:
    assert not logs.is_followed(KEY.lease_id)

    logs.follow(KEY.lease_id)

    assert logs.is_followed(KEY.lease_id)


def test_a_log_that_is_removed_leaves_nothing(logs: OpenLogs, tmp_path: Path) -> None:
    logs.append(KEY, 0, b"one\n", ended=True)
    logs.follow(KEY.lease_id)
    assert list(logs.known()) == [KEY]

    logs.remove(KEY)

    assert list(logs.known()) == []
    assert [each.name for each in (tmp_path / "logs").iterdir()] == ["locks"]
