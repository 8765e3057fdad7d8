"""The programs of the chapter come to the same end however often they are interrupted."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import partial
from hashlib import sha256
from pathlib import Path

import pytest

from tests.metering.agent.works import until

CHAPTER = Path(__file__).parents[3] / "config" / "docs" / "checkpoints.md"
PROGRAM = re.compile(r"^```python\n# (\w+\.py)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PROGRAMS = dict(PROGRAM.findall(CHAPTER.read_text()))
WORDS = {"train.py": ("200", "0.01"), "render.py": ("12",)}
SAVING = "due(every=5)"
"""Here they save themselves at every step, so that it need not take long."""


def laid(folder: Path, name: str) -> list[str]:
    folder.mkdir()
    assert SAVING in PROGRAMS[name]
    (folder / name).write_text(PROGRAMS[name].replace(SAVING, "due(every=0)"))
    modules = ["-m", "marketplace.sdk", "modules", str(folder)]
    subprocess.run([sys.executable, *modules], cwd=CHAPTER.parents[2], check=True)
    return [sys.executable, name, *WORDS[name]]


def made(folder: Path, last_line: str) -> dict[str, str]:
    found = {
        str(path.relative_to(folder)): sha256(path.read_bytes()).hexdigest()
        for path in folder.glob("volumes/run/frames/*.pgm")
    }
    return {**found, "said": last_line}


def run(command: list[str], folder: Path) -> dict[str, str]:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return made(folder, done.stdout.splitlines()[-1])


def saved(folder: Path) -> int:
    found = folder.glob("volumes/run/*/0*")
    return max((int(each.name) for each in found if each.is_dir()), default=0)


def has_saved_twice(folder: Path, before: int) -> bool:
    return saved(folder) > before + 1


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_killed_and_asked_to_end_they_come_to_the_same_end(name: str, tmp_path: Path) -> None:
    expected = run(laid(tmp_path / "whole", name), tmp_path / "whole")
    folder = tmp_path / "interrupted"
    command = laid(folder, name)
    for how in ("kill", "terminate"):
        before = saved(folder)
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL) as work:
            until(partial(has_saved_twice, folder, before), why="it does not save itself")
            getattr(work, how)()
        assert work.returncode == (143 if how == "terminate" else -9)

    assert run(command, folder) == expected
    assert set(WORDS) == set(PROGRAMS)
