"""Inputs come whole, what work leaves goes whole, whatever is cut, away, wrong or hostile."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from metering.agent.clock import ManualClock
from metering.agent.files import fetching
from metering.agent.files.fetching import Fetch, FetchFailed
from metering.agent.files.outputs import look
from metering.agent.files.sending import Send
from metering.agent.files.transit import OutOfTime, Patience, Stopped
from metering.agent.places import FOLDER
from metering.agent.uplink import Refused
from tests.metering.agent.leaving import (
    FILES,
    MORE,
    START_MS,
    NoPause,
    files_of,
    is_every_second,
    is_first,
    leave,
)
from tests.metering.agent.storehouse import (
    Cut,
    Storehouse,
    away,
    cut_at,
    manifest_of,
    name_of,
)

LEASE = UUID(int=7)


@pytest.fixture
def house() -> Storehouse:
    return Storehouse()


def patience(*, seconds: float = 3_600, stop: threading.Event | None = None) -> Patience:
    clock = ManualClock(START_MS)
    until_ms = START_MS + int(seconds * 1000)
    return Patience(clock, stop or NoPause(clock), until_ms=until_ms)


def fetch(house: Storehouse, folder: Path, **how: Any) -> Path:
    return Fetch(LEASE, folder / "in", house, patience(**how)).run()


def send(house: Storehouse, work: Path, *patterns: str, **how: Any) -> str:
    return Send(LEASE, work, patterns, 3, house, patience(**how), patience()).run()


def brought(house: Storehouse) -> Storehouse:
    house.bring(manifest_of(FILES, **MORE), *(data for data in FILES.values() if data))
    return house


def test_inputs_come_with_their_links_and_empty_folders(house: Storehouse, tmp_path: Path) -> None:
    there = fetch(brought(house), tmp_path)

    assert files_of(there) == FILES
    assert os.readlink(there / "latest") == "data/deep"
    assert (there / "out").is_dir()
    assert sorted(house.read) == sorted(house.blobs), "each part once"


def test_a_fetch_that_is_cut_at_each_call_goes_on_where_it_was(tmp_path: Path) -> None:
    whole = brought(Storehouse())
    fetch(whole, tmp_path / "whole")
    for place in range(1, len(whole.calls) + 1):
        house = brought(Storehouse(fault=cut_at(place)))
        with pytest.raises(Cut):
            fetch(house, tmp_path / str(place))
        before, house.fault, house.read = list(house.read), cut_at(1_000), []

        assert files_of(fetch(house, tmp_path / str(place))) == FILES

        again = set(house.read) & set(before)
        assert len(again) <= fetching.LINKS_MAX and len(house.read) <= len(house.blobs)
    done = fetch(whole, tmp_path / "whole")
    assert files_of(done) == FILES, "what is there is not fetched again"


def killed(what: str, folder: Path, place: int) -> int:
    """Do it in a process that is killed at a call; return how that process ended."""
    code = f"""
from pathlib import Path
from tests.metering.agent.storehouse import Storehouse, killed_at
from tests.metering.agent.test_files_come_and_go import brought, fetch, send
house, folder = Storehouse(fault=killed_at({place})), Path({str(folder)!r})
{what}
"""
    return subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode


def test_a_fetch_survives_kill_9_and_asks_only_for_the_rest(
    house: Storehouse, tmp_path: Path
) -> None:
    assert killed("fetch(brought(house), folder)", tmp_path, 5) == -signal.SIGKILL
    noted = (tmp_path / "in" / "done").read_text().split()[1:]

    assert files_of(fetch(brought(house), tmp_path)) == FILES
    assert not set(noted) & set(house.read)


def test_notes_of_another_boot_are_not_believed(
    house: Storehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Cut):
        fetch(brought(Storehouse(fault=cut_at(6))), tmp_path)
    monkeypatch.setattr(fetching, "kernel_boot_id", lambda: "another")

    assert files_of(fetch(brought(house), tmp_path)) == FILES
    assert {name_of(data) for data in FILES.values() if data} <= set(house.read)


@pytest.mark.parametrize("which", [is_first, is_every_second])
def test_storage_that_is_away_is_waited_for(
    which: Callable[[str, int], bool], tmp_path: Path
) -> None:
    coming = brought(Storehouse(fault=away(which)))
    leave(tmp_path / "work", FILES)
    going = Storehouse(fault=away(which))

    assert files_of(fetch(coming, tmp_path)) == FILES
    assert send(going, tmp_path / "work", "**") == "kept"
    assert going.left() == FILES


def test_a_fetch_ends_when_the_lease_is_about_to(tmp_path: Path) -> None:
    with pytest.raises(OutOfTime, match="the line is cut"):
        fetch(brought(Storehouse(fault=away(lambda *_: True))), tmp_path, seconds=120)


def test_a_fetch_that_is_not_wanted_stops(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()

    with pytest.raises(Stopped):
        Fetch(LEASE, tmp_path / "in", brought(Storehouse()), patience(stop=stop)).run()


def test_a_part_that_stays_wrong_fails_with_a_reason(house: Storehouse, tmp_path: Path) -> None:
    brought(house).damaged.add(name_of(FILES["data/a.bin"]))

    with pytest.raises(FetchFailed, match=r"damaged: part .* is not what its name says"):
        fetch(house, tmp_path)
    assert not (tmp_path / "in" / "files").exists()


def test_a_part_that_is_gone_and_a_lease_that_is_not_ours_fail_with_a_reason(
    house: Storehouse, tmp_path: Path
) -> None:
    del brought(house).blobs[name_of(FILES["data/b.bin"])]

    with pytest.raises(FetchFailed, match="not in storage any more"):
        fetch(house, tmp_path)
    with pytest.raises(FetchFailed, match="lease-unknown"):
        fetch(Storehouse(), tmp_path / "other")


def test_a_full_disk_is_said_before_anything_comes(
    house: Storehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("Usage", (), {"free": fetching.SPARE_BYTES + 10})
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)

    with pytest.raises(FetchFailed, match="no room: 12115 bytes to come, 10 free"):
        fetch(brought(house), tmp_path)
    assert name_of(FILES["data/a.bin"]) not in house.read


def test_what_leads_out_is_not_written(tmp_path: Path) -> None:
    for number, manifest in enumerate(
        (
            manifest_of({"../evil": b"x"}),
            manifest_of({"/etc/evil": b"x"}),
            manifest_of({"a/b": b"x"}, links=[{"path": "a", "to": "../.."}]),
            manifest_of({"x": b"x"}, links=[{"path": "a", "to": "/etc"}]),
        )
    ):
        house = Storehouse()
        house.bring(manifest, b"x")
        with pytest.raises(FetchFailed, match="cannot be used"):
            fetch(house, tmp_path / str(number))
    assert not list(tmp_path.rglob("evil"))


def test_what_work_leaves_goes_by_its_patterns(house: Storehouse, tmp_path: Path) -> None:
    left = {"out/a": b"1", "out/in/b": b"2", "m.pt": b"3", "in/m.pt": b"4", "x.log": b"5"}
    leave(tmp_path, {**left, "not.txt": b"6"})
    (tmp_path / "out" / "nothing").mkdir()

    assert send(house, tmp_path, "out/", "*.pt", "**/*.log") == "kept"

    assert house.left() == {name: left[name] for name in ("m.pt", "out/a", "out/in/b", "x.log")}
    assert house.kept[-1].exit_code == 3
    assert house.failed == []


def test_an_output_that_is_not_there_is_named_and_costs_no_other(
    house: Storehouse, tmp_path: Path
) -> None:
    leave(tmp_path, {"log": b"1"})

    assert send(house, tmp_path, "log", "model.pt") == "kept"
    assert house.left() == {"log": b"1"}
    assert [(each.reason, each.final) for each in house.failed] == [("nothing met model.pt", True)]


def test_work_that_left_nothing_is_said_so(house: Storehouse, tmp_path: Path) -> None:
    assert send(house, tmp_path, "out/") == "none"
    assert [each.reason for each in house.failed] == ["nothing met out/"]
    assert house.kept == []


def test_nothing_is_read_through_a_link_and_no_device(house: Storehouse, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    leave(secret, {"token": b"s3cret"})
    work = tmp_path / "work"
    leave(work, {"out/fine": b"1"})
    (work / "out" / "file").symlink_to(secret / "token")
    (work / "away").symlink_to(secret)
    (work / "out" / "near").symlink_to("fine")
    os.mkfifo(work / "out" / "pipe")

    assert send(house, work, "out/", "away/", "away/token") == "kept"

    assert house.left() == {"out/fine": b"1"}
    assert b"s3cret" not in b"".join(house.blobs.values())
    assert "out/file left out" in house.failed[0].reason


def test_a_folder_that_becomes_a_link_while_it_is_read_leads_nowhere(
    house: Storehouse, tmp_path: Path
) -> None:
    secret, work = tmp_path / "secret", tmp_path / "work"
    leave(secret, {"a": b"s3cret" * 10})
    leave(work, {"out/a": b"x" * 60, "other": b"2"})

    def swap(what: str, _number: int) -> None:
        if what == "missing" and not (work / "out").is_symlink():
            (work / "out").rename(work / "was")
            (work / "out").symlink_to(secret)

    house.fault = swap

    assert send(house, work, "out/", "other") == "kept"
    assert house.left() == {"other": b"2"}
    assert b"s3cret" not in b"".join(house.blobs.values())


def test_an_upload_that_is_cut_at_each_call_sends_only_the_rest(tmp_path: Path) -> None:
    work = tmp_path / "work"
    leave(work, {f"big{number}": os.urandom(2**20) for number in range(3)} | {"small": b"1"})
    whole = Storehouse()
    assert send(whole, work, "**") == "kept"
    for place in range(1, len(whole.calls) + 1):
        house = Storehouse(fault=cut_at(place))
        with pytest.raises(Cut):
            send(house, work, "**")
        house.fault = cut_at(1_000)

        assert send(house, work, "**") == "kept"
        assert len(house.sent) == len(set(house.sent)), "nothing is sent twice"
        assert house.left() == whole.left()


def test_an_upload_survives_kill_9(house: Storehouse, tmp_path: Path) -> None:
    work = tmp_path / "work"
    leave(work, FILES)
    assert killed("send(house, folder, '**')", work, 2) == -signal.SIGKILL

    assert send(house, work, "**") == "kept"
    assert house.left() == FILES


def test_no_room_is_said_once_and_waited_for(tmp_path: Path) -> None:
    leave(tmp_path, {"out": b"1"})

    def full(what: str, number: int) -> None:
        if what == "missing" and number < 6:
            raise Refused(413, "quota", "quota-used-up")

    house = Storehouse(fault=full)

    assert send(house, tmp_path, "out") == "kept"
    assert [each.final for each in house.failed] == [False]
    assert "no room" in house.failed[0].reason


def test_outputs_are_given_up_after_a_while_and_that_is_said(tmp_path: Path) -> None:
    leave(tmp_path, {"out": b"1"})
    house = Storehouse(fault=away(lambda what, _: what == "send"))

    assert send(house, tmp_path, "out", seconds=600) == "lost"
    assert house.failed[-1].final
    assert "could not be sent in time: the line is cut" in house.failed[-1].reason


def test_a_market_that_refuses_for_good_ends_it(tmp_path: Path) -> None:
    leave(tmp_path, {"out": b"1"})

    def late(what: str, _number: int) -> None:
        if what == "missing":
            raise Refused(409, "late", "outputs-too-late")

    house = Storehouse(fault=late)

    assert send(house, tmp_path, "out") == "lost"
    assert house.failed[-1].reason == "the market refuses it: outputs-too-late"


@pytest.mark.parametrize(
    ("pattern", "met"),
    [
        ("out", {"out/a.pt", "out/in/b.pt"}),
        ("out/*", {"out/a.pt", "out/in/b.pt"}),
        ("*.pt", {"c.pt"}),
        ("**/*.pt", {"c.pt", "out/a.pt", "out/in/b.pt"}),
        ("out/**/b.pt", {"out/in/b.pt"}),
        ("out/**", {"out/a.pt", "out/in/b.pt"}),
        ("out/?.pt", {"out/a.pt"}),
        ("[ab]*", set()),
        ("c.pt", {"c.pt"}),
    ],
)
def test_patterns_meet_what_they_say(pattern: str, met: set[str], tmp_path: Path) -> None:
    leave(tmp_path, dict.fromkeys(("c.pt", "out/a.pt", "out/in/b.pt", "x"), b"1"))
    root = os.open(tmp_path, FOLDER)
    try:
        found, unmet = look(root, [pattern])
    finally:
        os.close(root)

    assert {"/".join(file.names) for file in found.files} == met
    assert unmet == ([] if met else [pattern])
