"""`offpeak.checkpoint`: a checkpoint is whole or is not there, and it says when it is time."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marketplace.sdk import checkpoint
from marketplace.sdk.checkpoint import BEING_SAVED, LIST, Checkpoints, CheckpointWrong, say_safe
from metering.agent.runtimes.saved import written_ms

MODULE = Path(checkpoint.__file__)
STEPS = ("mkdir", "fsync", "rename")
"""The calls of the operating system at which a save may be cut short."""


class PowerCut(BaseException):
    """The host is gone at this call."""


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {each: signal.getsignal(each) for each in (signal.SIGUSR1, signal.SIGTERM)}
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


def save(saves: Checkpoints, text: str, **about: Any) -> None:
    with saves.save(**about) as folder:
        (folder / "model").write_text(text)
        (folder / "deep").mkdir()
        (folder / "deep" / "state").write_text(text * 2)


def found(folder: Path) -> tuple[str, dict[str, Any]] | None:
    last = Checkpoints(folder).newest()
    if last is None:
        return None
    assert (last.folder / "deep" / "state").read_text() == (last.folder / "model").read_text() * 2
    return (last.folder / "model").read_text(), dict(last.about)


def test_work_begins_at_the_beginning_where_nothing_was_saved(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "run").newest() is None


def test_what_was_saved_last_is_found_by_the_next_work(tmp_path: Path) -> None:
    saves = Checkpoints(tmp_path)
    save(saves, "one", step=1)
    save(saves, "two", step=2)

    assert found(tmp_path) == ("two", {"step": 2})


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    saves = Checkpoints(tmp_path, keep=3)
    for step in range(7):
        save(saves, str(step))

    assert sorted(each.name for each in tmp_path.iterdir()) == ["00000005", "00000006", "00000007"]


def test_a_save_that_fails_leaves_the_one_before(tmp_path: Path) -> None:
    saves = Checkpoints(tmp_path)
    save(saves, "one")

    with pytest.raises(ZeroDivisionError), saves.save() as folder:
        (folder / "model").write_text("half")
        raise ZeroDivisionError

    assert found(tmp_path) == ("one", {})
    assert not list(tmp_path.glob(f"{BEING_SAVED}*"))


def cut_at(place: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Have the host gone at the call of that number; return how to learn how many there were."""
    calls = 0

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def instead(*args: Any, **more: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls >= place:
                raise PowerCut
            return call(*args, **more)

        return instead

    for name in STEPS:
        monkeypatch.setattr(os, name, counted(getattr(os, name)))
    monkeypatch.setattr(shutil, "rmtree", counted(shutil.rmtree))
    return lambda: calls


def test_a_host_that_dies_at_any_call_leaves_a_whole_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        calls = cut_at(1_000, patch)
        saves = Checkpoints(tmp_path / "whole", keep=1)
        save(saves, "one")
        save(saves, "two")
        places = calls()
    assert places > 10
    seen = []
    for place in range(1, places + 1):
        folder = tmp_path / str(place)
        with monkeypatch.context() as patch:
            cut_at(place, patch)
            with pytest.raises(PowerCut):
                saves = Checkpoints(folder, keep=1)
                save(saves, "one")
                save(saves, "two")
        seen.append(found(folder))
        save(Checkpoints(folder), "three")
        assert found(folder) == ("three", {})
        assert not list(folder.glob(f"{BEING_SAVED}*"))
    assert [*dict.fromkeys(each and each[0] for each in seen)] == [None, "one", "two"]


@given(st.sampled_from(["model", "deep/state", LIST]), st.integers(0, 10_000), st.data())
def test_one_that_is_damaged_anywhere_is_passed_over(name: str, at: int, data: Any) -> None:
    with TemporaryDirectory() as made:
        folder = Path(made)
        saves = Checkpoints(folder)
        save(saves, "the first of them", step=1)
        save(saves, "the other", step=2)
        path = folder / "00000002" / name
        held = bytearray(path.read_bytes())
        how = data.draw(st.sampled_from(["flipped", "cut", "gone"]))
        if how == "gone":
            path.unlink()
        elif how == "cut":
            path.write_bytes(held[: at % len(held)])
        else:
            held[at % len(held)] ^= 0xFF
            path.write_bytes(held)

        assert found(folder) == ("the first of them", {"step": 1})


def test_what_is_no_file_is_refused_in_words(tmp_path: Path) -> None:
    saves = Checkpoints(tmp_path)

    with pytest.raises(CheckpointWrong, match="neither a file nor a folder"), saves.save() as made:
        (made / "link").symlink_to("/etc/passwd")
    with pytest.raises(CheckpointWrong, match="no JSON"), saves.save(step={1, 2}):
        pass
    with pytest.raises(CheckpointWrong, match="name of the list"), saves.save() as made:
        (made / LIST).write_text("mine")
    with pytest.raises(CheckpointWrong, match="at least one"):
        Checkpoints(tmp_path, keep=0)

    assert saves.newest() is None


def test_the_host_hears_since_when_the_work_is_safe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = tmp_path / "checkpoint"
    said.touch()
    monkeypatch.setenv("OFFPEAK_CHECKPOINT", str(said))
    saves = Checkpoints(tmp_path / "run")
    before = datetime.now(UTC)
    with saves.save():
        begun = datetime.now(UTC)
        assert said.read_text() == ""

    since_ms = written_ms(said, now_ms=0)

    assert since_ms is not None
    assert before.timestamp() * 1000 - 1 <= since_ms <= begun.timestamp() * 1000


def test_a_moment_takes_the_place_of_whatever_stood_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = tmp_path / "checkpoint"
    said.write_text("x" * 100)
    monkeypatch.setenv("OFFPEAK_CHECKPOINT", str(said))

    say_safe(datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC))

    assert said.read_text() == "2026-05-04T03:02:01.000000+00:00\n"


def test_it_is_time_after_so_many_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    saves = Checkpoints(tmp_path)

    assert not saves.due(every=60)
    now += 60
    assert saves.due(every=60)
    save(saves, "one")
    assert not saves.due(every=60)


def test_it_is_time_once_when_the_owner_gives_notice_and_once_at_the_end(tmp_path: Path) -> None:
    saves = Checkpoints(tmp_path)
    os.kill(os.getpid(), signal.SIGUSR1)

    assert (saves.noticed, saves.ending) == (True, False)
    assert saves.due(every=3_600)
    save(saves, "one")
    assert not saves.due(every=3_600)

    os.kill(os.getpid(), signal.SIGTERM)

    assert saves.ending
    assert saves.due(every=3_600)
    save(saves, "two")
    assert not saves.due(every=3_600)


def test_a_notice_that_comes_while_it_saves_has_it_save_once_more(tmp_path: Path) -> None:
    saves = Checkpoints(tmp_path)
    with saves.save():
        os.kill(os.getpid(), signal.SIGUSR1)

    assert saves.due(every=3_600)


def test_the_notice_tells_how_long_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notice = tmp_path / "notice.json"
    monkeypatch.setenv("OFFPEAK_NOTICE", str(notice))
    monkeypatch.setattr(time, "time", lambda: 1_000.0)
    saves = Checkpoints(tmp_path / "run")
    assert saves.seconds_left is None

    notice.write_text(json.dumps({"stop_at": "…", "stop_at_ms": 1_090_000}))

    assert saves.noticed and saves.seconds_left == 90.0
    notice.write_text("half")
    assert saves.seconds_left is None


def test_the_file_works_by_itself(tmp_path: Path) -> None:
    """In an image without the client: one file, the standard library, nothing else."""
    (tmp_path / "checkpoint.py").write_bytes(MODULE.read_bytes())
    program = """
import checkpoint
with checkpoint.Checkpoints("run").save(step=3) as folder:
    (folder / "model").write_text("m")
print(checkpoint.Checkpoints("run").newest().about)
"""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, '.')\n{program}"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (done.stdout, done.stderr) == ("{'step': 3}\n", "")
