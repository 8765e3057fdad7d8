"""One host that leaves: work comes to it, is taken away in the ways planned, and is followed."""

from __future__ import annotations

import json
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from ledger.domain.ids import BidId
from marketplace.domain.leases.renewals import next_id
from marketplace.sdk.client import Client
from marketplace.sdk.problems import Problem
from tests.departures.chain import Chain
from tests.departures.ground import (
    CHEAP,
    GRACE_SECONDS,
    HOURS,
    NOTICE_SECONDS,
    OWNER,
    STAYS,
    Ground,
)
from tests.departures.plan import Planned, Stint
from tests.departures.work import OF_HOST, PROGRAM
from tests.journeys.hosts import CONSUMER, Machine
from tests.metering.agent.works import PYTHON, let_through

PAUSE_SECONDS = 0.4
UP_SECONDS_MAX = 240.0
"""Within this a host is leased again: a minute's proof, and a busy machine."""
SWITCH_SECONDS = 10
"""In so long a host is free after the kill switch: the agent's chapter says so."""
LATE_SECONDS = 15.0
"""So long after its deadline it is looked whether work went on."""
LINKS_MAX = 4
HOLDING = "starting,active,reclaiming,ending"
OVER = ("closed", "failed")
T = TypeVar("T")


class NotDeparted(Exception):
    """Something else went wrong before a host left: this departure did not take place."""


class Host:
    """One of the hosts that leave. Each has a thread of its own; so hosts leave independently.

    stay_seconds: how long work runs where it went on, until it is done.
    """

    def __init__(self, ground: Ground, machine: Machine, *, stay_seconds: float = 1.0) -> None:
        self._ground, self._machine = ground, machine
        self._stay_seconds = stay_seconds
        self._next_gpu = 0

    def stint(self, stint: Stint, departed: Callable[[Chain], object]) -> None:
        """Be up, leave as planned, and come back.

        departed: called with each work once it went on elsewhere, or will not.
        Raises: NotDeparted, where some of the departures did not take place.
        """
        self._is_up()
        offer = self._offer(len(stint.departures))
        chains = [self._place(planned) for planned in stint.departures]
        try:
            self._run(chains)
            self._take_away(chains)
        finally:
            self._come_back(chains)
            for chain in chains:
                if chain.left_at:
                    departed(chain)
                else:
                    self._drop(chain)
            with self._api(OWNER) as api:
                api.post(f"offers/{offer}/withdraw")
            self._mend()
        if any(not chain.left_at for chain in chains):
            raise NotDeparted(f"{self._machine.region}: not all of {stint.departures} took place")

    def _api(self, person: str) -> Client:
        return self._ground.market.client(person)

    # --- before ------------------------------------------------------------------------------

    def _is_up(self) -> None:
        """Wait until the market leases the host: one that was silent proves itself first."""
        asked = self._ground.agent_of
        _until(
            lambda: asked(self._machine)["standing"] == "healthy" or None,
            why=f"{self._machine.region} is not leased again",
        )

    def _offer(self, count: int) -> str:
        conditions = self._ground.agent_of(self._machine)["gpus"]
        gpus = self._ground.gpus[self._machine.region]
        turned = [*gpus[self._next_gpu :], *gpus[: self._next_gpu]]
        chosen = [uuid for uuid in turned if conditions.get(uuid, "healthy") == "healthy"][:count]
        self._next_gpu = (gpus.index(chosen[-1]) + 1) % len(gpus)
        return self._machine.list_for(
            HOURS,
            floor=CHEAP,
            gpus=chosen,
            notice_seconds=NOTICE_SECONDS,
            grace_seconds=GRACE_SECONDS,
        )

    def _place(self, planned: Planned) -> Chain:
        pace, volume = self._ground.pace, self._ground.name()
        folder = self._ground.folder / f"work-{volume}"
        let_through(folder)
        folder.chmod(0o777)
        with self._api(CONSUMER) as api:
            api.post("volumes", {"name": volume, "size_gib": 1})
            placed = datetime.now(UTC)
            deadline = placed + timedelta(seconds=pace.duration_seconds + pace.slack_seconds)
            asked = {
                "query": f"gpu=L4 region={self._machine.region},{STAYS}",
                "gpus": 1,
                "duration_seconds": pace.duration_seconds,
                "deadline": deadline.isoformat(),
                "limit": "1",
                "service_class": "on-demand",
                "resume": True,
                "workload": {
                    "kind": "training",
                    "command": [PYTHON, "-c", PROGRAM, str(folder), volume],
                    "volumes": [{"name": volume}],
                },
            }
            bid_id = str(api.post("bids", asked)["id"])
        return Chain(
            planned=planned,
            host=self._machine,
            bid_id=bid_id,
            volume=volume,
            folder=folder,
            deadline=deadline.timestamp(),
            placed_at=placed.timestamp(),
        )

    def _run(self, chains: Sequence[Chain]) -> None:
        """Wait until all of it runs here."""
        with self._api(CONSUMER) as api:
            for chain in chains:
                self._is_running(api, chain)

    def _is_running(self, api: Client, chain: Chain) -> None:
        troubles = self._ground.market.troubles
        chain.lease = _until(lambda: _active(api, chain.bid_id), why=troubles)
        if chain.lease["host_ids"] != [self._machine.host_id]:
            raise NotDeparted(f"bid {chain.bid_id} came to another host")
        lease_id = chain.lease["id"]
        steps = _until(lambda: chain.steps(lease_id) or None, why=f"lease {lease_id} does nothing")
        chain.ready_at = steps[0][1] + chain.planned.run_seconds
        threading.Thread(target=_watch, args=[chain], daemon=True).start()

    # --- departures --------------------------------------------------------------------------

    def _take_away(self, chains: Sequence[Chain]) -> None:
        """Have all of them leave, each when it is time, and follow it until it is settled."""
        with self._api(CONSUMER) as api:
            while not all(_is_followed(chain) for chain in chains):
                for chain in chains:
                    if not chain.left_at:
                        if self._is_time(api, chain, chains):
                            self._depart(chain)
                    elif chain.resumed_at is None and not chain.is_given_up:
                        self._look_for_next(api, chain)
                    elif chain.resumed_at is not None and not chain.is_finished:
                        self._finish(chain)
                time.sleep(PAUSE_SECONDS)

    def _is_time(self, api: Client, chain: Chain, chains: Sequence[Chain]) -> bool:
        if time.time() < chain.ready_at:
            return False
        if chain.kind in OF_HOST:
            # What takes the whole host would end the others' leases, too.
            others = [each for each in chains if each is not chain]
            if not all(each.left_at for each in others):
                return False
            if not all(_lease(api, each.lease["id"])["state"] in OVER for each in others):
                return False
        if _lease(api, chain.lease["id"])["state"] != "active":
            raise NotDeparted(f"{chain.kind}: lease {chain.lease['id']} ended by itself")
        if time.time() > chain.ready_at + UP_SECONDS_MAX:
            raise NotDeparted(f"{chain.kind}: no version of {chain.volume} is kept")
        version: int = api.get(f"volumes/{chain.volume}")["version"]
        return version > 0

    def _depart(self, chain: Chain) -> None:
        chain.room = self._room_taken()
        machine, lease_id = self._machine, chain.lease["id"]
        chain.left_at = time.time()
        match chain.kind:
            case "notice":
                with self._api(OWNER) as api:
                    api.post(f"leases/{lease_id}/reclaim", {})
                    said = api.get(f"leases/{lease_id}")
                chain.free_by = datetime.fromisoformat(said["stop_at"]).timestamp()
            case "kill-switch":
                self._ground.of_agent(machine, "release", "--now")
                chain.free_by = chain.left_at + SWITCH_SECONDS
            case "power":
                self._ground.cut_power(machine)
            case "silence":
                self._ground.market.signal(machine.process, signal.SIGSTOP)
            case "gpu-lost" | "xid":
                self._fail(chain)
        if chain.kind in ("power", "silence"):
            heard = self._ground.agent_of(machine)["last_seen_at"]
            chain.last_word_at = datetime.fromisoformat(heard).timestamp()

    def _room_taken(self) -> float:
        with self._api(OWNER) as api:
            leases = api.all("leases", state=HOLDING)
            stays = self._ground.stays.host_id
            return sum(stays in each["host_ids"] for each in leases) / self._ground.room

    def _fail(self, chain: Chain) -> None:
        """Take the GPU off the bus under work that dies of it, or let work hang on an XID."""
        (gpu,) = self._ground.spools.uses()[chain.lease["id"]]
        number, what = (79, "dies") if chain.kind == "gpu-lost" else (119, "hangs")
        self._say_faults({**self._faults(), gpu: number})
        # Not before the agent can have seen it: a card that is gone is gone before its work.
        time.sleep(0.6)
        (chain.folder / f"{chain.lease['id']}.fails").write_text(what)

    def _faults(self) -> dict[str, int]:
        path = self._machine.state_dir / "simulated-faults.json"
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def _say_faults(self, faults: dict[str, int]) -> None:
        path = self._machine.state_dir / "simulated-faults.json"
        made = path.with_suffix(".new")
        made.write_text(json.dumps(faults))
        made.rename(path)

    # --- after -------------------------------------------------------------------------------

    def _look_for_next(self, api: Client, chain: Chain) -> None:
        """See if it runs elsewhere, in the next bid or in one after that which failed to start."""
        bid_id = BidId(UUID(chain.bid_id))
        for link in range(1, LINKS_MAX + 1):
            bid_id = next_id(bid_id)
            leases = api.get("leases", bid_id=str(bid_id))["data"]
            for lease in leases:
                if steps := chain.steps(lease["id"]):
                    chain.following, chain.links = lease["id"], link
                    chain.next_from = datetime.fromisoformat(lease["starts_at"]).timestamp()
                    chain.ends_by = datetime.fromisoformat(lease["ends_at"]).timestamp()
                    chain.resumed_at = steps[0][1]
                    return
            if not leases or leases[0]["state"] not in OVER:
                break
        chain.is_given_up = time.time() > chain.deadline + LATE_SECONDS or _is_lapsed(api, bid_id)

    def _finish(self, chain: Chain) -> None:
        assert chain.resumed_at is not None
        if time.time() >= chain.resumed_at + self._stay_seconds:
            chain.finish(chain.following)
            chain.is_finished = True

    def _come_back(self, chains: Sequence[Chain]) -> None:
        for chain in chains:
            if not chain.left_at:
                continue
            match chain.kind:
                case "kill-switch":
                    self._ground.of_agent(self._machine, "resume")
                case "power":
                    self._ground.start(self._machine)
                case "silence":
                    self._ground.market.signal(self._machine.process, signal.SIGCONT)
                    chain.off.wait(UP_SECONDS_MAX)

    def _drop(self, chain: Chain) -> None:
        """Leave nothing of work that was not taken away."""
        with self._api(CONSUMER) as api:
            for path in (f"leases/{chain.lease.get('id')}", f"bids/{chain.bid_id}"):
                with suppress(Problem):
                    api.delete(path)

    def _mend(self) -> None:
        """Put good GPUs in the place of those that failed."""
        if self._faults():
            self._say_faults({})


def _is_followed(chain: Chain) -> bool:
    return bool(chain.left_at) and (chain.is_given_up or chain.is_finished)


def _active(api: Client, bid_id: str) -> dict[str, Any] | None:
    found: list[dict[str, Any]] = api.get("leases", bid_id=bid_id)["data"]
    return next((each for each in found if each["state"] == "active"), None)


def _lease(api: Client, lease_id: str) -> dict[str, Any]:
    told: dict[str, Any] = api.get(f"leases/{lease_id}")
    return told


def _is_lapsed(api: Client, bid_id: BidId) -> bool:
    """Tell if a bid waits no more and became no lease. One that is not placed yet may."""
    try:
        return api.get(f"bids/{bid_id}")["state"] in ("expired", "cancelled")
    except Problem:
        return False


def _watch(chain: Chain) -> None:
    """Note when the work is off the card that it came to first."""
    try:
        process = os.pidfd_open(chain.first_process())
    except ProcessLookupError:
        chain.free_at = time.time()
    else:
        select.select([process], [], [])
        chain.free_at = time.time()
        os.close(process)
    chain.off.set()


def _until(ask: Callable[[], T | None], *, why: str | Callable[[], object]) -> T:
    ends = time.monotonic() + UP_SECONDS_MAX
    while (answer := ask()) is None:
        if time.monotonic() > ends:
            raise NotDeparted(why if isinstance(why, str) else str(why()))
        time.sleep(PAUSE_SECONDS)
    return answer
