"""What one lease wrote to a volume the next finds on another host, though the agent was killed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.conftest import FIRST_STORE
from tests.journeys.hosts import Machine, register
from tests.journeys.installation import Installation, until
from tests.metering.agent.works import PYTHON, let_through

REGIONS = ("volumes-one", "volumes-two")
WRITES = """
import pathlib, sys, time

folder, data = pathlib.Path(sys.argv[1]), pathlib.Path("volumes/data")
seed = (data / "raw/seed.bin").read_bytes()
(data / "made/deep").mkdir(parents=True)
(data / "made/deep/model.bin").write_bytes(seed[::-1] * 3)
(data / "raw/notes.txt").write_text("seen")
(folder / "written").touch()
while not (folder / "finish").exists():
    time.sleep(0.02)
sys.exit(3)
"""
READS = """
import hashlib, json, pathlib

root = pathlib.Path("somewhere/else")
named = {
    str(each.relative_to(root)): hashlib.sha256(each.read_bytes()).hexdigest()
    for each in root.rglob("*")
    if each.is_file()
}
print(json.dumps(named))
"""
AGENT = ("--simulate", "L4:1")


@pytest.fixture
def machines(market: Installation, tmp_path: Path) -> Iterator[list[Machine]]:
    """Two of Ada's hosts, each with one GPU, listed, its agent at work."""
    machines = [register(market, "ada", region, tmp_path) for region in REGIONS]
    for machine in machines:
        machine.start_agent(*AGENT)
        machine.list_for(2, floor="0.50", gpus=machine.gpus())
    yield machines
    for machine in machines:
        machine.retire()


def bid(market: Installation, machine: Machine, *command: str, **mount: Any) -> str:
    workload = {"kind": "other", "command": [PYTHON, "-c", *command], "volumes": [mount]}
    return market.bid("grace", f"region={machine.region}", [], workload=workload)


def cp(market: Installation, *words: str) -> None:
    done = market.cli("grace", "cp", *words)
    assert done.code == 0, done.err


def files_of(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("market", FIRST_STORE, indirect=True)
def test_a_volume_goes_from_a_lease_to_the_next_on_another_host(
    market: Installation, machines: list[Machine], tmp_path: Path
) -> None:
    one, two = machines
    seed = tmp_path / "seed.bin"
    seed.write_bytes(os.urandom(3 * 2**20))
    folder = tmp_path / "work"
    let_through(folder)
    folder.chmod(0o777)
    with market.client("grace") as api:
        made = api.post("volumes", {"name": "data", "size_gib": 1})
        api.get("volumes/data", after=made["position"])
    cp(market, str(seed), "volume:data/raw/seed.bin")

    writing = bid(market, one, WRITES, str(folder), name="data")
    until(lambda: (folder / "written").exists(), why=market.log(one.process)[-2000:])
    market.kill(one.process)
    (folder / "finish").touch()
    until(lambda: list(one.state_dir.glob("leases/*/exit.json")), why="the work goes on")
    one.start_agent(*AGENT)
    lease = market.lease_of("grace", writing, state="closed")

    with market.client("grace") as api:
        until(
            lambda: api.get("volumes/data")["version"] == 2,
            why=f"no second version: {api.get('volumes/data')}\n{market.log(one.process)[-2000:]}",
        )
        shown = api.get("volumes/data")
        until(lambda: not api.get("volumes/data")["leases"], why="it is still written to")
        assert api.get(f"leases/{lease['id']}")["outputs_failed"] == []
    expected = {
        "raw/seed.bin": sha256(seed.read_bytes()).hexdigest(),
        "made/deep/model.bin": sha256(seed.read_bytes()[::-1] * 3).hexdigest(),
        "raw/notes.txt": sha256(b"seen").hexdigest(),
    }
    assert shown["size_bytes"] == 3 * 2**20 * 4 + len("seen")

    reading = bid(market, two, READS, name="data", path="somewhere/else", writable=False)
    second = market.lease_of("grace", reading, state="closed")

    said = market.cli("grace", "logs", "-f", second["id"])  # until all of it is there
    told = [json.loads(line).get("text", "") for line in said.out.splitlines()]
    assert json.loads("".join(told)) == expected, said
    cp(market, "-r", "volume:data", str(tmp_path / "home"))
    assert files_of(tmp_path / "home") == expected
    until(
        lambda: not any(list(each.state_dir.rglob("*.bin")) for each in machines),
        why="what was leased stays on a host",
    )
    for machine in machines:
        assert list((machine.state_dir / "volumes").iterdir()) == []
    with market.client("grace") as api:
        assert api.get("volumes/data")["version"] == 2
        api.delete("volumes/data")
