"""A newcomer's ten minutes: a folder is brought, runs on a stranger's host, and comes back."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.domain.money import nanos_of
from tests.journeys import books
from tests.journeys.conftest import FIRST_STORE
from tests.journeys.hosts import Machine, register
from tests.journeys.installation import Answered, Installation

REGION = "newcomers"
TRAIN = """
import json, os, pathlib, sys

data = [float(line) for line in open("data/points.txt")]
weight = 0.0
for step in range(1, 4):
    weight += float(os.environ["RATE"]) * (sum(data) / len(data) - weight)
    print(f"step {step}: weight {weight}", flush=True)
print("converging", file=sys.stderr)
pathlib.Path("out").mkdir()
json.dump({"weight": weight}, open("out/model.json", "w"))
sys.exit(int(os.environ.get("CODE", "0")))
"""


@pytest.fixture
def machine(market: Installation, tmp_path: Path) -> Iterator[Machine]:
    """Ada's host with one GPU, listed, its agent at work."""
    machine = register(market, "ada", REGION, tmp_path)
    machine.start_agent("--simulate", "L4:1")
    machine.list_for(2, floor="0.50", gpus=machine.gpus())
    yield machine
    machine.retire()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a small training program and its data."""
    folder = tmp_path / "train"
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "points.txt").write_text("1\n2\n3\n")
    (folder / "train.py").write_text(TRAIN)
    return folder


def run(market: Installation, *words: str) -> Answered:
    """Run `offpeak run …` as Grace, as people see it."""
    asked = ["--needs", f"region={REGION}", "--for", "10m", "--max", "2"]
    return offpeak(market, "run", *asked, *words)


def offpeak(market: Installation, *words: str) -> Answered:
    """Run a command as Grace."""
    known = {"OFFPEAK_SERVER": market.url, "OFFPEAK_TOKEN": market.tokens["grace"]}
    return market.run([sys.executable, "-m", "marketplace.sdk", *words], known)


@pytest.mark.parametrize("market", FIRST_STORE, indirect=True)
def test_a_folder_runs_on_a_strangers_host_and_what_it_made_comes_home(
    market: Installation, machine: Machine, folder: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    options = ["--env", "RATE=0.5", "--keep", "out/", "--to", str(home)]

    done = run(market, str(folder), *options, "--", "python3", "train.py")

    assert done.code == 0, done.err
    assert done.out.splitlines() == [
        "step 1: weight 1.0",
        "step 2: weight 1.5",
        "step 3: weight 1.75",
    ]
    assert "converging" in done.err and "Ended with exit code 0" in done.err
    assert json.loads((home / "out" / "model.json").read_text()) == {"weight": 1.75}

    with market.client("grace") as api:
        (lease, *_) = api.get("leases", state="closed")["data"]
    assert machine.host_id in lease["host_ids"]
    assert f"It is in {home}, and kept" in done.err and "files down" not in done.err
    for number, words in enumerate(
        (
            ("files", "down", "--lease", lease["id"], "--to", "HERE"),
            ("cp", "-r", f"lease:{lease['id']}/out", "HERE/out"),
        )
    ):
        again = tmp_path / f"again-{number}"
        again.mkdir()
        taken = offpeak(market, *(each.replace("HERE", str(again)) for each in words))
        assert taken.code == 0, taken.err
        assert json.loads((again / "out" / "model.json").read_text()) == {"weight": 1.75}
    use = books.final_use(market, "grace", lease["id"])
    assert nanos_of(use["charged"]) == books.charge_of(lease, use["granted_ms"]).nanos > 0

    failed = run(
        market, str(folder), "--env", "RATE=1", "--env", "CODE=7", "--", "python3", "train.py"
    )

    assert failed.code == 7
    assert "Ended with exit code 7" in failed.err
