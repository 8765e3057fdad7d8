"""Web and loops start, start again and end as one, however their supervisor goes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 60.0
# Children that only note what they are and watch their supervisor, as those of `up` do.
SUPERVISOR = """
import json, os, pathlib, random, signal, sys, threading, time
from functools import partial
from config.processes.orphans import end_with_supervisor
from config.processes.supervisor import Supervisor

folder = pathlib.Path(sys.argv[1])
made_once = time.monotonic_ns()

def note(name):
    proc, opened, title = pathlib.Path("/proc/self"), {}, ""
    if proc.exists():
        title = (proc / "cmdline").read_text().rstrip(chr(0))
        for number in os.listdir(proc / "fd"):
            try:
                opened[number] = os.readlink(proc / "fd" / number)
            except OSError:
                pass  # what the list was read by
    kept = {
        "process": os.getpid(),
        "made": made_once,
        "drawn": random.random(),
        "threads": threading.active_count(),
        "open": opened,
        "title": title,
    }
    draft = folder / f"{name}.draft"
    draft.write_text(json.dumps(kept))
    draft.rename(folder / name)

def work(name):
    note(name)
    end_with_supervisor()
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    print(f"{name} says password=geheim", flush=True)
    stop.wait()

def prepare():
    note("prepared")
    if code := int(sys.argv[2]):
        sys.exit(code)

supervisor = Supervisor(folder / "logs")
prepared = supervisor.step("prepare", prepare, must=True)
for name in ("one", "two"):
    supervisor.add(name, partial(work, name), after=prepared)
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda *_: supervisor.stop.set())
sys.exit(supervisor.run())
"""


class Tree:
    """A supervisor and its two children, as processes. code: what its first step ends with."""

    def __init__(self, folder: Path, *, code: int = 0) -> None:
        self.folder = folder
        self.supervisor = subprocess.Popen(
            [sys.executable, "-c", SUPERVISOR, str(folder), str(code)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )

    def child(self, name: str) -> int | None:
        return int(self.noted(name)["process"]) if (self.folder / name).exists() else None

    def noted(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / name).read_text())
        return found

    def log(self, name: str) -> str:
        log = self.folder / "logs" / f"{name}.log"
        return log.read_text() if log.exists() else ""

    def kill_and_wait(self, name: str) -> None:
        """Kill a child; wait until another has taken its place."""
        before = self.child(name)
        assert before is not None
        os.kill(before, signal.SIGKILL)
        wait_until(lambda: self.child(name) != before, f"{name} was not started again")


def wait_until(done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not done():
        assert time.monotonic() < deadline, what
        threading.Event().wait(0.02)


def is_alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        if Path("/proc").is_dir() and Path("/proc/self").exists():
            return False
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
        return True
    return state != "Z"


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    tree = Tree(tmp_path)
    wait_until(lambda: bool(tree.child("one") and tree.child("two")), "both children")
    yield tree
    tree.supervisor.kill()
    tree.supervisor.communicate()
    for name in ("one", "two"):
        process = tree.child(name)
        assert process is not None
        wait_until(lambda process=process: not is_alive(process), f"{name} outlived the test")  # type: ignore[misc]


def both(tree: Tree) -> list[int]:
    found = [tree.child("one"), tree.child("two")]
    return [process for process in found if process is not None]


def test_the_children_of_a_supervisor_killed_with_minus_nine_end(tree: Tree) -> None:
    children = both(tree)

    tree.supervisor.kill()

    wait_until(lambda: not any(map(is_alive, children)), "children outlived their supervisor")


def test_a_dead_child_is_started_again_and_the_others_go_on(tree: Tree) -> None:
    second = tree.child("two")

    tree.kill_and_wait("one")

    again = tree.child("one")
    assert again is not None and is_alive(again)
    assert second is not None and is_alive(second)
    assert tree.child("two") == second


def test_children_are_forks_of_their_supervisor_that_draw_lots_of_their_own(tree: Tree) -> None:
    tree.kill_and_wait("two")  # also one that comes later
    one, two = tree.noted("one"), tree.noted("two")

    assert one["made"] == two["made"], "what was made before is not theirs together"
    assert one["drawn"] != two["drawn"]
    if sys.platform == "linux":
        assert (one["title"], two["title"]) == ("offpeak: one", "offpeak: two")


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells what is open")
def test_a_child_has_nothing_of_its_supervisor_open_and_is_one_thread(tree: Tree) -> None:
    for name in ("one", "two", "two again"):
        if name == "two again":
            tree.kill_and_wait("two")
        noted = tree.noted(name.split()[0])
        assert sorted(map(int, noted["open"])) == [0, 1, 2]
        assert noted["open"]["1"] == noted["open"]["2"] != noted["open"]["0"] == "/dev/null"
        assert noted["threads"] == 1


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells what is open")
def test_a_supervisor_stays_clean_of_what_cannot_be_forked(tree: Tree) -> None:
    tree.kill_and_wait("one")
    itself = Path(f"/proc/{tree.supervisor.pid}")

    assert len(list((itself / "task").iterdir())) == 1
    opened = [os.readlink(each) for each in (itself / "fd").iterdir()]
    assert len([each for each in opened if each.startswith("socket:")]) == 2, "beside its own pair"


def test_what_children_say_goes_to_a_log_of_each(tree: Tree) -> None:
    wait_until(lambda: bool(tree.log("one") and tree.log("two")), "both logs")
    tree.kill_and_wait("one")
    wait_until(lambda: tree.log("one").count("\n") == 2, "the log goes on")

    assert tree.log("one") == "one says password=[hidden]\n" * 2
    assert tree.log("two") == "two says password=[hidden]\n"


def test_nothing_is_started_where_what_comes_first_fails(tmp_path: Path) -> None:
    tree = Tree(tmp_path, code=3)

    assert tree.supervisor.wait(PATIENCE_SECONDS) == 3
    tree.supervisor.communicate()
    assert tree.child("prepared") is not None
    assert tree.child("one") is None is tree.child("two")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_supervisor_that_is_asked_to_end_ends_all(tree: Tree, number: signal.Signals) -> None:
    children = both(tree)

    tree.supervisor.send_signal(number)

    assert tree.supervisor.wait(PATIENCE_SECONDS) == 0
    assert not any(map(is_alive, children))
