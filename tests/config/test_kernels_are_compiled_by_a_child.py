"""An engine decides at once, has a child compile its kernels, and goes over without a restart."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread

import pytest

from config.models import LoopRun
from config.operations.health import compiled_kernels
from config.processes import kernels as beside
from config.processes.kernels import COMPILED, Kernels
from config.processes.orphans import PARENT
from marketplace import kernels

PATIENCE_SECONDS = 30.0
COMPLETE = "import pathlib, sys; home = pathlib.Path(sys.argv[1]); (home / 'complete').touch()"
FAILS_ONCE = """
import pathlib, sys
home = pathlib.Path(sys.argv[1])
if not (home / "tried").exists():
    (home / "tried").touch()
    sys.exit("No space left on device")
(home / "complete").touch()
"""
IS_SLOW = """
import pathlib, sys, time
home = pathlib.Path(sys.argv[1])
with (home / "started").open("a") as started:
    started.write("once\\n")
while not (home / "go").exists():
    time.sleep(0.01)
(home / "complete").touch()
"""


class GivenUp(Exception):
    """A test has seen enough of what would be tried again for ever."""


@pytest.fixture(autouse=True)
def over(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Have nothing compiled here, whatever is; return the folders that this process goes over to.

    What loading and going over do to kernels is in `tests/marketplace/solver/test_compiling.py`.
    """
    went_over: list[Path] = []
    monkeypatch.setattr(kernels, "compiles", lambda: bool(went_over))
    monkeypatch.setattr(kernels, "are_complete", lambda at: (at / "complete").exists())
    monkeypatch.setattr(kernels, "progress", lambda at: (1, 3))
    monkeypatch.setattr(kernels, "load", lambda at: iter(["all of them"]))
    monkeypatch.setattr(kernels, "go_over", went_over.append)
    monkeypatch.setattr(beside, "LOOK_SECONDS", 0.02)
    return went_over


def made(home: Path, code: str, pause: Callable[[float], object] | None = None) -> Kernels:
    return Kernels(home, command=lambda: [sys.executable, "-c", code, str(home)], pause=pause)


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_child_compiles_and_the_engine_goes_over_between_two_passes(
    tmp_path: Path, over: list[Path]
) -> None:
    each = made(tmp_path / "kernels", COMPLETE)
    assert each.words.startswith("compiling")
    each.go_over()

    each.run()

    assert not over
    each.go_over()
    each.go_over()
    assert over == [tmp_path / "kernels"]
    assert each.words == COMPILED
    assert (tmp_path / "kernels").stat().st_mode & 0o077 == 0


def test_what_is_compiled_already_is_loaded_without_a_child(tmp_path: Path) -> None:
    (tmp_path / "complete").touch()

    each = made(tmp_path, "raise SystemExit('nobody starts this')")
    each.run()

    assert each.loaded.is_set()
    assert [entry.name for entry in tmp_path.iterdir()] == ["complete"]


def test_a_child_that_crashes_is_started_again_later(tmp_path: Path) -> None:
    said: list[tuple[float, str]] = []
    each = made(tmp_path, FAILS_ONCE, pause=lambda seconds: said.append((seconds, each.words)))

    each.run()

    assert said == [(beside.AGAIN_SECONDS, "failed: No space left on device")]
    assert each.loaded.is_set()


def test_pauses_grow_while_it_goes_on_failing(tmp_path: Path) -> None:
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise GivenUp

    with pytest.raises(GivenUp):
        made(tmp_path, "raise SystemExit(3)", pause).run()

    assert pauses == [10.0, 20.0, 40.0]


def test_where_nothing_can_be_written_it_says_so_and_decides_as_python(
    tmp_path: Path, over: list[Path]
) -> None:
    (tmp_path / "home").write_text("a file, where a folder would have to be")
    words: list[str] = []

    def pause(seconds: float) -> None:
        words.append(each.words)
        raise GivenUp

    each = made(tmp_path / "home" / "kernels", COMPLETE, pause)
    with pytest.raises(GivenUp):
        each.run()
    each.go_over()

    assert words[0].startswith("failed: [Errno")
    assert not over


def test_two_engines_in_one_home_have_one_child(tmp_path: Path) -> None:
    both = [made(tmp_path, IS_SLOW, pause=lambda seconds: time.sleep(0.01)) for _ in range(2)]
    threads = [Thread(target=each.run, daemon=True) for each in both]
    for thread in threads:
        thread.start()
    until(lambda: all(each.words == "compiling, 1 of 3" for each in both))
    until((tmp_path / "started").exists)

    (tmp_path / "go").touch()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)

    assert all(each.loaded.is_set() for each in both)
    assert (tmp_path / "started").read_text() == "once\n"


def test_the_child_knows_whom_to_end_with(tmp_path: Path) -> None:
    code = f"import os; open({str(tmp_path / 'parent')!r}, 'w').write(os.environ[{PARENT!r}])"

    made(tmp_path, f"{code}\n{COMPLETE}").run()

    assert (tmp_path / "parent").read_text() == str(os.getpid())


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("said", "ok", "told"),
    [
        ("compiled", True, ""),
        ("compiling, 12 of 103", True, "clearing: compiling, 12 of 103: "),
        ("failed: No space left on device", False, "clearing: failed: No space left on device: "),
    ],
)
def test_the_doctor_says_how_far_it_is(said: str, ok: bool, told: str) -> None:
    held_since = datetime(2026, 1, 5, tzinfo=UTC)
    LoopRun.objects.create(name="clearing", process="here", held_since=held_since, kernels=said)
    LoopRun.objects.create(name="projections", process="here", held_since=held_since)

    found = compiled_kernels()

    assert found.ok is ok
    assert found.detail.startswith(told)
    assert bool(found.detail) is bool(told)
