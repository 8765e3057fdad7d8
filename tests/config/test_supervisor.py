"""Web and loops start, start again and end as one, however their supervisor goes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 60.0
# Children that only note their process and watch their supervisor, as those of `up` do.
CHILD = """
import os, pathlib, signal, sys, threading
sys.path.insert(0, sys.argv[1])
from config.orphans import end_with_supervisor
end_with_supervisor()
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())
note = pathlib.Path(sys.argv[2])
draft = note.with_suffix(".draft")
draft.write_text(str(os.getpid()))
draft.rename(note)
stop.wait()
"""
SUPERVISOR = """
import pathlib, signal, sys
from config.supervisor import Child, Supervisor
folder = pathlib.Path(sys.argv[1])
supervisor = Supervisor(folder / "logs")
for name in ("one", "two"):
    command = [sys.executable, "-c", sys.argv[2], sys.argv[3], str(folder / name)]
    supervisor._children.append(Child(name, command))
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda *_: supervisor.stop.set())
supervisor.run()
"""


class Tree:
    """A supervisor and its two children, as processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.supervisor = subprocess.Popen(
            [sys.executable, "-c", SUPERVISOR, str(folder), CHILD, str(ROOT)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        wait_until(lambda: bool(self.child("one") and self.child("two")), "both children")

    def child(self, name: str) -> int | None:
        note = self.folder / name
        return int(note.read_text()) if note.exists() else None


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
    first, second = both(tree)

    os.kill(first, signal.SIGKILL)

    wait_until(lambda: tree.child("one") not in (None, first), "it was not started again")
    again = tree.child("one")
    assert again is not None
    assert is_alive(again)
    assert tree.child("two") == second
    assert is_alive(second)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_supervisor_that_is_asked_to_end_ends_all(tree: Tree, number: signal.Signals) -> None:
    children = both(tree)

    tree.supervisor.send_signal(number)

    assert tree.supervisor.wait(PATIENCE_SECONDS) == 0
    assert not any(map(is_alive, children))
