"""An owner's machines in a journey: registered over HTTP, served by real agents."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from marketplace.sdk.client import Client
from marketplace.sdk.problems import Problem
from tests.journeys.installation import Installation, until
from tests.metering.agent.works import let_through, work_options

CONSUMER = "grace"
"""Who takes every lease in these journeys."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A host with an agent. region: one that no other journey uses, for bids to ask for."""

    market: Installation
    owner: str
    host_id: str
    region: str
    token: str
    state_dir: Path

    @property
    def process(self) -> str:
        """The name of the agent's process."""
        return f"agent-{self.region}"

    def start_agent(
        self,
        *options: str,
        environment: Mapping[str, str] | None = None,
        confined: bool = False,
    ) -> None:
        """Start the agent as a process. confined: it runs work in bubblewrap."""
        command = [
            sys.executable, "-m", "metering.agent", "run", "--server", self.market.url,
            "--state-dir", str(self.state_dir), "--hostname", self.region, *options,
            *work_options(confined=confined),
        ]  # fmt: skip
        let_through(self.state_dir.parent)
        given = {"OFFPEAK_AGENT_TOKEN": self.token, **(environment or {})}
        self.market.spawn(self.process, command, given)

    def retire(self) -> None:
        """Take the host off the market: end what is leased there, then its agent.

        An agent that ends leaves its work running, for the next one to take up.
        """
        with self.market.client(CONSUMER) as api:
            for lease in self._leases(api):
                self._end(api, lease["id"])
            until(lambda: not self._leases(api), why="what was leased did not end")
        until(lambda: not self._work_left(), why="the work outlives its lease")
        self.market.end(self.process)
        with self.market.client(self.owner) as api:
            api.post(f"hosts/{self.host_id}/retire")

    def _end(self, api: Client, lease_id: str) -> None:
        try:
            api.delete(f"leases/{lease_id}")
        except Problem as refused:
            if refused.code != "lease-over":  # it ended by itself since it was read
                raise

    def _leases(self, api: Client) -> list[dict[str, Any]]:
        """Return the leases on this host that are not over."""
        running = ",".join(("scheduled", "starting", "active", "reclaiming", "ending"))
        found = api.all("leases", state=running)
        return [lease for lease in found if self.host_id in lease["host_ids"]]

    def _work_left(self) -> bool:
        folder = self.state_dir / "leases"
        return any(not (each / "exit.json").exists() for each in folder.iterdir())

    def gpus(self) -> list[str]:
        """Return the GPUs that the agent has reported, once it has."""
        with self.market.client(self.owner) as api:
            told: dict[str, Any] = until(
                lambda: (host := api.get(f"hosts/{self.host_id}"))["gpus"] and host,
                why=f"see {self.process}.log",
            )
        return [gpu["uuid"] for gpu in told["gpus"]]

    def list_for(self, hours: int, *, floor: str, gpus: Sequence[str], **terms: object) -> str:
        """Publish an offer of some GPUs from now on; return its id."""
        now = datetime.now(UTC).replace(microsecond=0)
        window = {
            "starts_at": now.isoformat(),
            "ends_at": (now + timedelta(hours=hours)).isoformat(),
        }
        with self.market.client(self.owner) as api:
            made = api.post(
                "offers",
                {
                    "host_id": self.host_id,
                    "gpu_uuids": list(gpus),
                    "windows": [window],
                    "floor": floor,
                    "lease_min_seconds": 60,
                    **terms,
                },
            )
            api.get(f"offers/{made['id']}", after=made["position"])
        return str(made["id"])

    def spooled(self, lease_id: str) -> list[dict[str, Any]]:
        """Return the intervals of a lease as the agent wrote them down, in their order."""
        return [
            record["body"]
            for record in _records(self.state_dir / "spool")
            if record["t"] == "interval" and record["body"]["lease_id"] == lease_id
        ]

    def found(self, gpu_uuid: str) -> list[dict[str, Any]]:
        """Return what the agent wrote down of the state of a GPU, in its order."""
        return [
            record["body"]
            for record in _records(self.state_dir / "spool")
            if record["t"] == "health" and record["body"]["gpu_uuid"] == gpu_uuid
        ]


def register(market: Installation, owner: str, region: str, folder: Path) -> Machine:
    """Register a host over HTTP and get a token for its agent."""
    with market.client(owner) as api:
        host = api.post("hosts", {"title": f"host of {region}", "region": region})
        api.get(f"hosts/{host['id']}", after=host["position"])
        token = api.post(f"hosts/{host['id']}/tokens", {"title": "agent"})
    return Machine(
        market=market,
        owner=owner,
        host_id=host["id"],
        region=region,
        token=token["token"],
        state_dir=folder / f"agent-{region}",
    )


def _records(folder: Path) -> Iterator[dict[str, Any]]:
    for segment in sorted(folder.glob("*.log"), key=lambda path: int(path.stem)):
        for line in segment.read_text().splitlines():
            yield from json.loads(line.split(" ", 1)[1])
