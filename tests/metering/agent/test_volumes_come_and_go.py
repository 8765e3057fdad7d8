"""A volume comes whole, and what work made of it goes whole, whatever is in the way."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marketplace.sdk import checkpoint as sdk_checkpoint
from metering.agent.clock import ManualClock
from metering.agent.files import outputs, volume_sending
from metering.agent.files.fetching import FetchFailed
from metering.agent.files.transit import OutOfTime, Patience
from metering.agent.files.volume_fetching import FetchVolume, base_of
from metering.agent.files.volume_sending import SendVolume
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
from tests.metering.agent.storehouse import Cut, away, cut_at, name_of
from tests.metering.agent.volumehouse import VolumeHouse

LEASE = UUID(int=7)
FOLDER = "volumes/data"


@pytest.fixture
def house() -> VolumeHouse:
    return VolumeHouse()


def held(**how: Any) -> VolumeHouse:
    house = VolumeHouse(**how)
    house.hold(FILES, **MORE)
    return house


def patience(*, seconds: float = 3_600) -> Patience:
    clock = ManualClock(START_MS)
    stop: threading.Event = NoPause(clock)
    return Patience(clock, stop, until_ms=START_MS + int(seconds * 1000))


def fetch(house: VolumeHouse, folder: Path, **how: Any) -> Path:
    return FetchVolume(LEASE, folder / "came", house, patience(**how), name="data").run()


def mount(house: VolumeHouse, folder: Path) -> Path:
    """Bring the volume to where a work finds it, as a runtime does; return that place."""
    place = folder / "work" / FOLDER
    place.parent.mkdir(parents=True)
    os.rename(fetch(house, folder), place)
    return place


def send(house: VolumeHouse, folder: Path, **how: Any) -> str:
    last, fetched = patience(), folder / "came"
    return SendVolume(
        LEASE, folder / "work", (), None, house, patience(**how), last,
        name="data", path=FOLDER, fetched=fetched,
    ).run()  # fmt: skip


def reasons(house: VolumeHouse) -> list[str]:
    return [each.reason for each in house.told]


# --- it comes --------------------------------------------------------------------------------


def test_the_newest_version_comes_and_its_number_is_noted(tmp_path: Path) -> None:
    house = held()
    house.hold({"new": b"newer"})

    assert files_of(fetch(house, tmp_path)) == {"new": b"newer"}
    base = base_of(tmp_path / "came")
    assert base is not None and base.version == 2


def test_a_volume_without_a_version_is_an_empty_folder(house: VolumeHouse, tmp_path: Path) -> None:
    assert files_of(fetch(house, tmp_path)) == {}
    base = base_of(tmp_path / "came")
    assert base is not None and base.version == 0


def test_a_fetch_that_is_cut_at_each_call_goes_on_where_it_was(tmp_path: Path) -> None:
    whole = held()
    fetch(whole, tmp_path / "whole")
    for place in range(1, len(whole.calls) + 1):
        house = held(fault=cut_at(place))
        with pytest.raises(Cut):
            fetch(house, tmp_path / str(place))
        house.fault = cut_at(1_000)

        assert files_of(fetch(house, tmp_path / str(place))) == FILES
        assert os.readlink(tmp_path / str(place) / "came" / "files" / "latest") == "data/deep"


def test_a_newer_version_that_comes_at_any_moment_is_taken_whole(tmp_path: Path) -> None:
    """Of two versions never some files of the one and some of the other."""
    newer = {"data/a.bin": b"A" * 5_000, "data/other": b"o"}
    whole = held()
    fetch(whole, tmp_path / "whole")
    for place in range(1, len(whole.calls) + 1):
        house = held()

        def comes(_what: str, number: int, house: VolumeHouse = house, at: int = place) -> None:
            if number == at:
                house.hold(newer)

        house.fault = comes
        came = files_of(fetch(house, tmp_path / str(place)))

        base = base_of(tmp_path / str(place) / "came")
        assert base is not None
        assert came == {1: FILES, 2: newer}[base.version]


def test_a_newer_version_after_a_kill_takes_the_place_of_what_had_come(tmp_path: Path) -> None:
    house = held(fault=cut_at(5))
    with pytest.raises(Cut):
        fetch(house, tmp_path)
    house.fault = cut_at(1_000)
    house.hold({"new": b"newer"})

    assert files_of(fetch(house, tmp_path)) == {"new": b"newer"}


def killed(what: str, folder: Path, place: int) -> int:
    """Do it in a process that is killed at a call; return how that process ended."""
    code = f"""
from pathlib import Path
from tests.metering.agent.storehouse import killed_at
from tests.metering.agent.test_volumes_come_and_go import fetch, held, send
folder, house = Path({str(folder)!r}), held()
house.fault = killed_at({place})
{what}(house, folder)
"""
    return subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode


def test_a_fetch_survives_kill_9_and_asks_only_for_the_rest(tmp_path: Path) -> None:
    assert killed("fetch", tmp_path, 5) == -signal.SIGKILL
    noted = (tmp_path / "came" / "done").read_text().split()[1:]
    house = held()

    assert files_of(fetch(house, tmp_path)) == FILES
    assert not set(noted) & set(house.read)


@pytest.mark.parametrize("which", [is_first, is_every_second])
def test_a_server_or_storage_that_is_away_is_waited_for(
    which: Callable[[str, int], bool], tmp_path: Path
) -> None:
    house = held(fault=away(which))
    place = mount(house, tmp_path)
    assert files_of(place) == FILES
    leave(place, {"more": b"1"})

    assert send(house, tmp_path) == "kept"
    assert house.files() == {**FILES, "more": b"1"}


def test_a_fetch_ends_with_a_reason_in_time(tmp_path: Path) -> None:
    with pytest.raises(OutOfTime, match="the line is cut"):
        fetch(held(fault=away(lambda *_: True)), tmp_path, seconds=120)


def test_a_part_that_stays_wrong_or_is_gone_fails_with_a_reason(tmp_path: Path) -> None:
    wrong, gone = held(), held()
    wrong.damaged.add(name_of(FILES["data/a.bin"]))
    del gone.blobs[name_of(FILES["data/b.bin"])]

    with pytest.raises(FetchFailed, match="the files of volume data are damaged"):
        fetch(wrong, tmp_path / "wrong")
    with pytest.raises(FetchFailed, match="the files of volume data are lost"):
        fetch(gone, tmp_path / "gone")
    assert not list(tmp_path.rglob("files"))


def test_a_volume_that_the_lease_may_not_have_fails_with_the_code(tmp_path: Path) -> None:
    def not_yours(what: str, _number: int) -> None:
        if what == "volume":
            raise Refused(404, "no such volume", "volume-unknown")

    with pytest.raises(FetchFailed, match="the files of volume data are refused: volume-unknown"):
        fetch(held(fault=not_yours), tmp_path)


# --- what the work made of it goes ------------------------------------------------------------


def test_what_the_work_changed_is_the_next_version_and_only_that_is_sent(tmp_path: Path) -> None:
    house = held()
    place = mount(house, tmp_path)
    leave(place, {"data/a.bin": b"changed", "data/new/d.bin": b"d"})
    (place / "train.py").unlink()

    assert send(house, tmp_path) == "kept"

    expected = {**FILES, "data/a.bin": b"changed", "data/new/d.bin": b"d"}
    del expected["train.py"]
    assert house.files() == expected
    assert (len(house.versions), house.bases, house.told) == (2, [1], [])
    sent = b"".join(house.blobs[each] for each in house.sent if each not in house.versions)
    assert b"changed" in sent and FILES["data/b.bin"] not in sent


def test_where_nothing_changed_there_is_no_new_version(tmp_path: Path) -> None:
    house = held()
    mount(house, tmp_path)

    house.fault = away(is_every_second)

    assert send(house, tmp_path) == "kept"
    assert len(house.versions) == 1 and house.sent == [] and house.told == []
    assert house.released == 1, "others may write at once"


def test_a_volume_that_stays_empty_has_an_empty_version(house: VolumeHouse, tmp_path: Path) -> None:
    mount(house, tmp_path)

    assert send(house, tmp_path) == "kept"
    assert len(house.versions) == house.released == 1 and house.files() == {}


def test_a_volume_that_the_work_emptied_is_empty_then(tmp_path: Path) -> None:
    house = held()
    place = mount(house, tmp_path)
    for each in place.iterdir():
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each)
        else:
            each.unlink()

    assert send(house, tmp_path) == "kept"
    assert len(house.versions) == 2 and house.files() == {}


def test_a_mode_and_a_link_alone_make_a_version(tmp_path: Path) -> None:
    house = held()
    place = mount(house, tmp_path)
    (place / "train.py").chmod(0o755)
    (place / "latest").unlink()
    (place / "latest").symlink_to("data")

    assert send(house, tmp_path) == "kept"
    body = json.loads(house.blobs[house.versions[-1]])
    assert [file["path"] for file in body["files"] if file.get("executable")] == ["train.py"]
    assert body["links"] == [{"path": "latest", "to": "data"}]


def changed(folder: Path, house: VolumeHouse) -> dict[str, bytes]:
    """Bring the volume and change it; return what is to be kept."""
    place = mount(house, folder)
    news = {"big": os.urandom(2**20), "data/a.bin": b"changed", "small": b"1"}
    leave(place, news)
    return {**FILES, **news}


def test_sending_that_is_cut_at_each_call_makes_one_version(tmp_path: Path) -> None:
    whole = held()
    changed(tmp_path / "whole", whole)
    whole.calls.clear()
    assert send(whole, tmp_path / "whole") == "kept"
    for place in range(1, len(whole.calls) + 1):
        house, folder = held(), tmp_path / str(place)
        expected = changed(folder, house)
        house.calls.clear()
        house.fault = cut_at(place)
        with pytest.raises(Cut):
            send(house, folder)
        house.fault = cut_at(1_000)

        assert send(house, folder) == "kept"
        assert house.files() == expected and len(house.versions) == 2
        assert len(house.sent) == len(set(house.sent)), "nothing is sent twice"


def test_an_agent_that_is_killed_after_the_version_was_kept_makes_no_second(
    tmp_path: Path,
) -> None:
    house = held()
    expected = changed(tmp_path, house)

    assert (send(house, tmp_path), send(house, tmp_path)) == ("kept", "kept")
    assert len(house.versions) == 2 and house.files() == expected
    assert house.bases == [1, 1] and house.told == []


def test_sending_survives_kill_9(tmp_path: Path) -> None:
    house = held()
    expected = changed(tmp_path, house)
    assert killed("send", tmp_path, 2) == -signal.SIGKILL

    assert send(house, tmp_path) == "kept"
    assert house.files() == expected


def test_a_full_volume_is_said_once_and_waited_for(tmp_path: Path) -> None:
    house = held(room=100)
    expected = changed(tmp_path, house)

    def grows(_what: str, number: int) -> None:
        if number > 40:
            house.room = 2**40

    house.fault = grows

    assert send(house, tmp_path) == "kept"
    assert house.files() == expected
    assert [each.final for each in house.told] == [False]
    assert "volume data has no room for it: make it larger" in house.told[0].reason


def test_a_volume_that_stays_full_stays_as_it_was_and_that_is_said(tmp_path: Path) -> None:
    house = held(room=100)
    changed(tmp_path, house)

    assert send(house, tmp_path, seconds=600) == "lost"
    assert len(house.versions) == 1 and house.files() == FILES
    assert house.told[-1].final
    assert "volume data has no room for it; it stays at version 1" in house.told[-1].reason


def test_a_conflict_ends_it_and_is_said(tmp_path: Path) -> None:
    house = held(written=True)
    changed(tmp_path, house)

    assert send(house, tmp_path) == "lost"
    assert house.files() == FILES
    assert reasons(house) == [
        "what the work changed is not kept: the market refuses it: volume-conflict; "
        "it stays at version 1"
    ]


def test_storage_that_is_away_for_long_is_given_up_and_that_is_said(tmp_path: Path) -> None:
    house = held()
    changed(tmp_path, house)
    house.fault = away(lambda what, _: what == "send")

    assert send(house, tmp_path, seconds=600) == "lost"
    assert house.told[-1].final and "the line is cut" in house.told[-1].reason
    assert house.files() == FILES


@pytest.mark.parametrize("by", ["removed", "file", "link", "above"])
def test_a_folder_that_the_work_took_away_leaves_the_volume_as_it_was(
    by: str, tmp_path: Path
) -> None:
    house, secret = held(), tmp_path / "secret"
    place = mount(house, tmp_path)
    leave(secret / "data", {"token": b"s3cret"})
    shutil.rmtree(place)
    match by:
        case "file":
            place.write_bytes(b"no folder")
        case "link":
            place.symlink_to(secret / "data")
        case "above":
            place.parent.rmdir()
            place.parent.symlink_to(secret)

    assert send(house, tmp_path) == "lost"
    assert house.files() == FILES and b"s3cret" not in b"".join(house.blobs.values())
    assert len(house.told) == 1 and "it stays at version 1" in house.told[0].reason


def test_links_out_and_what_is_no_file_are_left_out_and_said(tmp_path: Path) -> None:
    house = held()
    place = mount(house, tmp_path)
    (place / "away").symlink_to("/etc/passwd")
    os.mkfifo(place / "pipe")

    assert send(house, tmp_path) == "kept"
    assert house.files() == FILES
    assert len(house.told) == 1 and house.told[0].final
    assert "away left out: a link that leads out" in reasons(house)[0]
    assert "pipe left out: no file" in reasons(house)[0]


def test_a_file_that_changes_while_it_is_read_makes_no_torn_version(tmp_path: Path) -> None:
    house = held()
    expected = changed(tmp_path, house)
    place = tmp_path / "work" / FOLDER
    turns = iter(range(1_000))

    def changes(what: str, _number: int) -> None:
        if what == "missing" and next(turns) < 2:
            (place / "small").write_bytes(os.urandom(1))

    house.fault = changes
    (place / "small").write_bytes(b"x")

    assert send(house, tmp_path) == "kept"
    assert house.files() == {**expected, "small": (place / "small").read_bytes()}

    def changes_always(what: str, _number: int) -> None:
        if what == "missing":
            (place / "small").write_bytes(os.urandom(8))

    house.fault = changes_always
    (tmp_path / "came" / "about").write_text(
        json.dumps({"version": 2, "manifest": house.versions[-1]})
    )
    (place / "small").write_bytes(b"again")

    assert send(house, tmp_path) == "lost"
    assert len(house.versions) == 2 and "changes while it is read" in reasons(house)[-1]


def test_a_host_that_does_not_know_what_the_work_found_keeps_nothing(tmp_path: Path) -> None:
    house = held()
    changed(tmp_path, house)
    (tmp_path / "came" / "about").unlink()

    assert send(house, tmp_path) == "lost"
    assert house.files() == FILES and volume_sending.UNKNOWN_BASE in reasons(house)[0]


names = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3).map("/".join)
trees = st.dictionaries(names, st.binary(max_size=40), max_size=8).map(
    lambda tree: {
        name: data
        for name, data in tree.items()
        if not any(other.startswith(f"{name}/") for other in tree)
    }
)


@given(history=st.lists(trees, min_size=1, max_size=4))
def test_each_version_is_what_its_work_left_and_is_found_by_the_next(
    history: list[dict[str, bytes]],
) -> None:
    """Small limits make packs, cut files and blobs used twice of a few bytes."""
    house = VolumeHouse()
    kept: dict[str, bytes] = {}
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        for module in (outputs, volume_sending):
            patch.setattr(module, "PACKED_BELOW", 10)
        patch.setattr(outputs, "BLOB_BYTES_MAX", 2**20)
        for number, tree in enumerate(history):
            at = Path(folder) / str(number)
            place = mount(house, at)
            assert files_of(place) == kept
            shutil.rmtree(place)
            place.mkdir()
            leave(place, tree)
            before = list(house.versions)

            assert send(house, at) == "kept"

            assert (house.versions == before) == (bool(before) and tree == kept)
            kept = tree
        assert house.told == []


# --- while the work runs ----------------------------------------------------------------------


def checkpoint(house: VolumeHouse, folder: Path, **how: Any) -> str:
    return SendVolume(
        LEASE, folder / "work", (), None, house, patience(**how), patience(),
        name="data", path=FOLDER, fetched=folder / "came", last=False,
    ).run()  # fmt: skip


def test_a_checkpoint_is_a_version_and_the_next_goes_on_from_it(tmp_path: Path) -> None:
    house = held()
    place = mount(house, tmp_path)
    leave(place, {"00000001/model": b"one"})
    assert checkpoint(house, tmp_path) == "kept"
    assert house.files() == {**FILES, "00000001/model": b"one"}
    assert house.released == 0, "the work still writes"
    shutil.rmtree(place / "00000001")
    leave(place, {"00000002/model": b"two"})
    assert checkpoint(house, tmp_path) == "kept"
    leave(place, {"00000003/model": b"three"})

    assert send(house, tmp_path) == "kept"

    assert house.files() == {**FILES, "00000002/model": b"two", "00000003/model": b"three"}
    assert (house.bases, house.released) == ([1, 2, 3], 1)


def test_what_is_being_saved_is_left_out_without_a_word(tmp_path: Path) -> None:
    house = held()
    place = mount(house, tmp_path)
    leave(place, {"run/.offpeak-saving-7-2/model": b"half", "run/00000001/model": b"one"})

    assert (checkpoint(house, tmp_path), send(house, tmp_path)) == ("kept", "kept")

    assert house.files() == {**FILES, "run/00000001/model": b"one"}
    assert house.told == []
    assert volume_sending.BEING_SAVED == sdk_checkpoint.BEING_SAVED


def test_an_agent_that_is_cut_at_any_call_of_a_checkpoint_loses_none(tmp_path: Path) -> None:
    whole = held()
    leave(mount(whole, tmp_path / "whole"), {"one": b"1"})
    whole.calls.clear()
    assert checkpoint(whole, tmp_path / "whole") == "kept"
    for place in range(1, len(whole.calls) + 1):
        house, folder = held(), tmp_path / str(place)
        here = mount(house, folder)
        leave(here, {"one": b"1"})
        house.calls.clear()
        house.fault = cut_at(place)
        with pytest.raises(Cut):
            checkpoint(house, folder)
        house.fault = cut_at(1_000)
        leave(here, {"two": b"2"})

        assert checkpoint(house, folder) == "kept"
        assert house.files() == {**FILES, "one": b"1", "two": b"2"}
        (here / "one").unlink()
        assert send(house, folder) == "kept"
        assert house.files() == {**FILES, "two": b"2"} and house.told == []


def test_an_agent_that_is_killed_before_it_noted_a_checkpoint_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = held()
    place = mount(house, tmp_path)
    leave(place, {"one": b"1"})
    with monkeypatch.context() as patch:
        patch.setattr(volume_sending, "go_on_from", lambda *_: (_ for _ in ()).throw(Cut))
        with pytest.raises(Cut):
            checkpoint(house, tmp_path)
    assert house.files() == {**FILES, "one": b"1"}
    leave(place, {"two": b"2"})

    assert (checkpoint(house, tmp_path), send(house, tmp_path)) == ("kept", "kept")

    assert house.files() == {**FILES, "one": b"1", "two": b"2"}
    assert house.bases == [1, 1, 3] and house.told == []


def test_a_checkpoint_that_cannot_be_kept_is_said_and_the_work_still_writes(tmp_path: Path) -> None:
    house = held(room=100)
    leave(mount(house, tmp_path), {"big": os.urandom(2**20)})

    assert checkpoint(house, tmp_path, seconds=60) == "lost"

    assert house.told and not any(each.final for each in house.told)
    assert house.files() == FILES
    house.room = 2**40
    assert send(house, tmp_path) == "kept"
