"""A commit is named in a bid, fetched on a stranger's host, run there, and told; by its command."""

from __future__ import annotations

import base64
import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from metering.agent.runtimes import egress
from tests.git_server.server import FILE, SUBMODULE, Repository, here
from tests.journeys.conftest import FIRST_STORE
from tests.journeys.hosts import Machine, register
from tests.journeys.installation import Answered, Installation, until
from tests.metering.agent.sources import Forge, forge
from tests.metering.agent.works import ROOT

REGION = "fetchers"
TOKEN = "token-of-the-forge-51c7"
pytestmark = [
    ROOT,
    pytest.mark.skipif(not here(), reason="git and its server are not installed"),
    pytest.mark.skipif(
        any(shutil.which(each) is None for each in ("bwrap", "slirp4netns")),
        reason="bubblewrap or slirp4netns is not installed",
    ),
    pytest.mark.skipif(egress.find(open_=True)[0] is None, reason="no packet filter can be set"),
]


@dataclass
class Place:
    """A host whose owner lets work reach one forge."""

    machine: Machine
    forge: Forge
    repository: Repository

    def start(self) -> None:
        """Start its agent."""
        self.machine.start_agent(
            *("--simulate", "L4:1", "--work-network", "allow"),
            *("--allow-egress", self.forge.place),
            environment={"SSL_CERT_FILE": str(self.forge.authority)},
            confined=True,
        )


@pytest.fixture
def place(market: Installation, tmp_path: Path) -> Iterator[Place]:
    (tmp_path / "lab").mkdir()
    repository = Repository(tmp_path / "lab" / "train.git")
    with forge(tmp_path, tmp_path) as served:
        place = Place(register(market, "ada", REGION, tmp_path), served, repository)
        place.start()
        place.machine.list_for(2, floor="0.50", gpus=place.machine.gpus())
        yield place
        served.held.set()
        place.machine.retire()


def offpeak(market: Installation, *words: str) -> Answered:
    """Run a command as Grace."""
    known = {"OFFPEAK_SERVER": market.url, "OFFPEAK_TOKEN": market.tokens["grace"]}
    return market.run([sys.executable, "-m", "marketplace.sdk", *words], known)


def bid(market: Installation, **workload: Any) -> str:
    """Place a bid by the API; return its id."""
    with market.client("grace") as api:
        placed = api.post(
            "bids",
            {
                "query": f"region={REGION}",
                "gpus": 1,
                "duration_seconds": 600,
                "limit": "2",
                "service_class": "on-demand",
                "workload": {"kind": "other", **workload},
            },
        )
    return str(placed["id"])


def lease_of(market: Installation, bid_id: str, *states: str) -> dict[str, Any]:
    """Wait until a bid's lease is in one of these states."""

    def look() -> dict[str, Any]:
        with market.client("grace") as api:
            found = api.get(f"leases?bid_id={bid_id}")["data"]
            lease: dict[str, Any] = api.get(f"leases/{found[0]['id']}") if found else {}
        return lease if lease.get("state") in states else {}

    return until(look, why=f"the lease of {bid_id} is not {states}")


@pytest.mark.parametrize("market", FIRST_STORE, indirect=True)
def test_a_commit_that_a_bid_names_runs_on_the_host_and_is_told(
    market: Installation, place: Place
) -> None:
    own = place.repository
    code = own.blob(b"import pathlib; print(pathlib.Path('words').read_text())")
    words = (FILE, "words", own.blob(b"fetched there"))
    commit = own.commit(own.tree((FILE, "run.py", code), (SUBMODULE, "sub", "a" * 40), words))
    address = f"git+{place.forge.address}/lab/train.git"

    done = offpeak(
        market, "run", f"{address}@main", "--fetch-there", "--needs", f"region={REGION}",
        "--for", "10m", "--max", "2", "--", "python3", "run.py",
    )  # fmt: skip

    assert done.code == 0, done.err
    assert done.out.splitlines() == ["fetched there"]
    assert f"It runs commit {commit}." in done.err and "Left out: sub: a submodule" in done.err
    with market.client("grace") as api:
        (closed, *_) = api.get("leases", state="closed")["data"]
    assert closed["fetch"] == f"{address}@main"
    assert f"It runs commit {commit}." in offpeak(market, "leases", "show", closed["id"]).err

    # The agent is killed while the next one is fetched, which needs a token besides.
    with market.client("grace") as api:
        api.put("secrets/FORGE", {"value": TOKEN})
    place.forge.needs = "Basic " + encoded(f"x-access-token:{TOKEN}")
    place.forge.held.clear()
    place.forge.heard.clear()
    second = bid(market, command=["python3", "run.py"], fetch=address, fetch_secret="FORGE")
    until(place.forge.heard.is_set, why="nothing was fetched")
    market.kill(place.machine.process)
    place.start()
    place.forge.held.set()
    lease = lease_of(market, second, "closed")
    assert [(each["commit"], each["exit_code"]) for each in lease["attempts"]] == [(commit, 0)]

    lost = lease_of(market, bid(market, command=["true"], fetch=f"{address}@gone"), "failed")
    assert [each["reason"] for each in lost["attempts"]] == [
        "its source: its server knows no such repository, or asks who we are"
    ]
    with market.client("grace") as api:
        assert api.get(f"leases/{lost['id']}/usage")["cost"] in ("0", "0.00", "0.000000000")
    for path in place.machine.state_dir.rglob("*"):
        assert not path.is_file() or TOKEN.encode() not in path.read_bytes(), path
    assert json.dumps(lease).count(TOKEN) == 0


def encoded(text: str) -> str:
    """Return text in base64."""
    return base64.b64encode(text.encode()).decode()
