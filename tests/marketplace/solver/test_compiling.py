"""Kernels run as Python, are compiled by another process, and are taken from there at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from marketplace import kernels

ROOT = Path(__file__).resolve().parents[3]

TWO_KERNELS = """
import json, sys, types
from pathlib import Path
from numba.core import event
import marketplace.domain.kernels.jit as jit

jit._kernels.clear()
source = '''
from marketplace.domain.kernels.jit import compiled

STEP = %s

@compiled
def twice(number):
    return 2 * number + STEP

@compiled
def both(first, second):
    return twice(first) + twice(second)
'''
file = Path(sys.argv[2]) / "pair.py"
file.write_text(source % sys.argv[3])
pair, other = types.ModuleType("marketplace.pair"), types.ModuleType("marketplace.other")
pair.__file__ = str(file)
sys.modules.update({"marketplace.pair": pair, "marketplace.other": other})
exec(compile(file.read_text(), str(file), "exec"), vars(pair))
other.taken = pair.both
at = Path(sys.argv[2]) / "compiled"
if sys.argv[1] == "compile":
    jit.compile_into(at)
    told = [other.taken(1, 2)]
else:
    plain, made = other.taken, []
    with event.install_recorder("numba:compile") as seen:
        names = [name.rpartition(".")[2] for name in jit.load(at)]
        assert other.taken is plain
        jit.go_over(at)
        told = [names, plain(1, 2), other.taken(1, 2), pair.twice(4), other.taken is plain]
    told.append(len(seen.buffer))
print(json.dumps([jit.digest(), *told]))
"""


def run(*words: str) -> list[object]:
    said = subprocess.run(
        [sys.executable, "-c", TWO_KERNELS, *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
        text=True,
    )
    answer: list[object] = json.loads(said.stdout)
    return answer


def test_what_another_process_compiled_is_taken_without_compiling(tmp_path: Path) -> None:
    compiled_as, answer = run("compile", str(tmp_path), "1")

    loaded_as, names, plain, taken, twice, is_plain, compiles = run("load", str(tmp_path), "1")
    changed_as, *_ = run("load", str(tmp_path), "2")

    assert answer == plain == taken == 8
    assert names == ["twice", "both"]
    assert twice == 9
    assert not is_plain
    assert compiles == 0
    assert compiled_as == loaded_as != changed_as


def test_a_folder_that_others_may_write_in_is_not_run(tmp_path: Path) -> None:
    kernels.folder(tmp_path).mkdir()
    tmp_path.chmod(0o777)

    with pytest.raises(kernels.NotOurs, match="others may write"):
        next(kernels.load(tmp_path))
