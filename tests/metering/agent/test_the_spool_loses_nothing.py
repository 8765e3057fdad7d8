"""The agent's memory on disk, cut at every byte, filled up, and damaged."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metering.agent.spool import Record, Spool, SpoolFull


def head() -> Record:
    return {"t": "head"}


def opened(folder: Path, **options: int) -> Spool:
    spool = Spool(folder, **options)  # type: ignore[arg-type]  # sizes only
    list(spool.replay())
    spool.begin(head)
    return spool


def kept(folder: Path) -> list[int]:
    spool = Spool(folder)
    return [record["n"] for _, record in spool.replay() if record["t"] != "head"]


def entry(n: int) -> Record:
    return {"t": "x", "n": n, "text": "ünïcode\n" * 3}


def test_a_kill_at_any_byte_leaves_all_earlier_lines(tmp_path: Path) -> None:
    spool = opened(tmp_path / "whole")
    for n in range(5):
        spool.append([entry(2 * n), entry(2 * n + 1)])
    spool.close()
    (path,) = (tmp_path / "whole").iterdir()
    whole = path.read_bytes()
    lines = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
    cut = tmp_path / "cut"
    cut.mkdir()

    for length in range(len(whole) + 1):
        (cut / path.name).write_bytes(whole[:length])

        # The first line is the head; every whole line after it holds two entries.
        complete = max(0, sum(length >= end for end in lines) - 1)
        assert kept(cut) == list(range(2 * complete))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_damaged_byte_costs_its_own_line_only(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("spool")
    spool = opened(folder)
    for n in range(4):
        spool.append([entry(n)])
    spool.close()
    (path,) = folder.iterdir()
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)

    left = kept(folder)

    # A damaged newline joins two lines, so that two can be lost; never one that is whole.
    assert len(left) >= 2
    assert left == sorted(set(left)) and set(left) <= set(range(4))


def test_a_new_run_never_writes_behind_a_torn_line(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    spool.append([entry(0)])
    spool.append([entry(1)])
    spool.close()
    (path,) = tmp_path.iterdir()
    os.truncate(path, path.stat().st_size - 3)

    again = opened(tmp_path)
    again.append([entry(2)])
    again.close()

    assert kept(tmp_path) == [0, 2]


def test_the_bound_holds_and_urgent_records_have_a_reserve(tmp_path: Path) -> None:
    spool = opened(tmp_path, bytes_max=2_000, segment_bytes=500)

    with pytest.raises(SpoolFull, match="bound"):
        for n in range(100):
            spool.append([entry(n)])
    spool.append([entry(100)], urgent=True)
    spool.close()

    assert spool.bytes_used < 2_500
    assert kept(tmp_path)[-1] == 100


def test_segments_are_dropped_but_never_the_current_one(tmp_path: Path) -> None:
    spool = opened(tmp_path, segment_bytes=300)
    segments = [spool.append([entry(n)]) for n in range(10)]

    spool.drop_before(segments[7])
    assert kept(tmp_path) == [n for n in range(10) if segments[n] >= segments[7]]
    spool.drop_before(10**6)

    assert len(list(tmp_path.iterdir())) == 1
    spool.close()


class Disk:
    """Takes `room` bytes, then none."""

    def __init__(self, room: int) -> None:
        self.room = room

    def write(self, file: int, data: bytes) -> int:
        if self.room <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        part = data[: self.room]
        self.room -= len(part)
        return os.write(file, part)


def test_a_full_disk_keeps_nothing_of_a_line_and_works_again_with_room(tmp_path: Path) -> None:
    disk = Disk(room=260)
    spool = Spool(tmp_path, write=disk.write)
    spool.begin(head)
    spool.append([entry(0)])

    with pytest.raises(SpoolFull, match="No space left"):
        for n in range(1, 9):
            spool.append([entry(n)])
    written = kept(tmp_path)
    disk.room = 10_000
    spool.append([entry(9)])
    spool.close()

    assert kept(tmp_path) == [*written, 9]
    again = Spool(tmp_path)
    list(again.replay())
    assert again.damaged_lines == 0


def test_a_disk_full_at_the_start_is_tried_again(tmp_path: Path) -> None:
    disk = Disk(room=0)
    spool = Spool(tmp_path, write=disk.write)
    with pytest.raises(SpoolFull):
        spool.begin(head)
    assert list(tmp_path.iterdir()) == []

    disk.room = 10_000
    spool.append([entry(1)])
    spool.close()

    assert kept(tmp_path) == [1]
