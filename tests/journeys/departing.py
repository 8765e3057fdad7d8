"""Work that saves itself, hosts that leave in each way there is, and what became of both.

Three hosts leave and a fourth stays, each with an agent of its own and simulated GPUs; work is real
processes, which save themselves on a volume. What is told is measured from outside: what the
work wrote down of its steps, which of its processes live, what the agents spooled, and what the
market charged.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from ledger.domain.ids import BidId
from ledger.domain.money import nanos_of
from marketplace.domain.leases.renewals import next_id
from marketplace.sdk import checkpoint
from tests.journeys import books
from tests.journeys.hosts import CONSUMER, Machine, register
from tests.journeys.installation import PAUSE_SECONDS, Installation, until
from tests.journeys.saving_work import (
    CHECKPOINT_SECONDS,
    PROGRAM,
    STEP_SECONDS,
    Chain,
    Kind,
    overlap,
    processes_of,
)
from tests.metering.agent.works import FIRST_UID, PYTHON, let_through

REASONS: dict[Kind, int] = {
    "notice": 201,
    "kill-switch": 201,
    "power": 505,
    "silence": 505,
    "gpu-lost": 507,
    "xid": 509,
}
"""With which reason a lease ends at each. A host without power is silent until it is back."""

SETTINGS = {
    "OFFPEAK_HOST_GONE_SECONDS": "20",
    "OFFPEAK_ROUND_SECONDS": "1",
    "OFFPEAK_METER_GRACE_SECONDS": "60",
}
GPUS = 64
OWNER = "ada"
NOTICE_SECONDS, GRACE_SECONDS = 8, 3
SWITCH_SECONDS = 10
"""In so long a host is free after the kill switch: the agent's chapter says so."""
AWAY_SECONDS_MAX = 240.0
"""Silence, the minute that a host proves itself, and a busy machine."""
LOOKED_SECONDS = 0.1
MILLI = timedelta(milliseconds=1)
WORKERS = 16


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one departure. Times in seconds, granted and charged in milliseconds.

    resumed_after: None where it did not go on. is_free_in_time: None where the owner asked for
    nothing. lost: work that was done and had to be done again; requeue: all that was done.
    """

    kind: Kind
    reason: int
    resumed_after: float | None
    is_elsewhere: bool
    is_free_in_time: bool | None
    free_after: float | None
    lost: float
    requeue: float
    twice_ms: int
    unbilled_ms: int
    is_charged_right: bool


class Scene:
    """The hosts, and rounds of departures from them."""

    def __init__(self, market: Installation, folder: Path, *, seed: int = 0) -> None:
        self.market, self._folder = market, folder
        self._draw = random.Random(seed)
        self._used: dict[str, int] = {}
        self._volumes = 0
        (folder / "library").mkdir(mode=0o755)
        shutil.copy(str(checkpoint.__file__), folder / "library" / "checkpoint.py")
        (folder / "library" / "checkpoint.py").chmod(0o644)
        names = ("departs-one", "departs-two", "departs-three", "stays")
        self.machines = [register(market, OWNER, name, folder) for name in names]
        for machine in self.machines:
            self.start(machine)
        self.gpus = {machine.region: machine.gpus() for machine in self.machines}

    def start(self, machine: Machine) -> None:
        """Start the agent of a machine."""
        number = self.machines.index(machine)
        first = FIRST_UID + os.getpid() % 10_000 * 64 + number * WORKERS
        users = ["--work-users", f"{first}-{first + WORKERS - 1}"]
        command = [
            sys.executable, "-m", "metering.agent", "run", "--server", self.market.url,
            "--state-dir", str(machine.state_dir), "--hostname", machine.region,
            "--simulate", f"L4:{GPUS}", "--checkpoint-seconds", str(CHECKPOINT_SECONDS),
            "--access", "off", "--confine", "off",
            *(users if os.geteuid() == 0 else ["--trust-work"]),
        ]  # fmt: skip
        let_through(machine.state_dir.parent)
        self.market.spawn(machine.process, command, {"OFFPEAK_AGENT_TOKEN": machine.token})

    def round(self, *, kinds: Sequence[Kind], seconds: tuple[float, float]) -> list[Outcome]:
        """Let work run, take each host away under it in its way, and follow it to its end.

        seconds: least and most that work runs before.
        """
        self._all_are_back()
        one, two, three, stays = self.machines
        homes = {"power": two, "silence": three}
        wanted = {kind: homes.get(kind, one) for kind in kinds}
        offers = [
            self._offer(machine, sum(1 for each in wanted.values() if each is machine))
            for machine in dict.fromkeys(wanted.values())
        ]
        chains = [self._place() for _ in kinds]
        for chain in chains:
            self._is_running(chain)
        self._name(chains, wanted)
        offers.append(self._offer(stays, len(kinds)))
        with self._seen(chains):
            self._leave(chains, seconds)
            self._follow(chains)
            self._come_back(chains)
        outcomes = [self._outcome(chain) for chain in chains]
        with self.market.client(OWNER) as api:
            for offer in offers:
                api.post(f"offers/{offer}/withdraw")
        return outcomes

    def _leave(self, chains: Sequence[Chain], seconds: tuple[float, float]) -> None:
        for chain in sorted(chains, key=lambda each: each.kind == "kill-switch"):
            # The kill switch ends all that its host has, so the others go before.
            if chain.kind == "kill-switch":
                for other in (each for each in chains if each.host is chain.host):
                    if other is not chain:
                        self._closed(other)
            least, most = seconds
            ready = chain.steps(chain.lease["id"])[0][1] + self._draw.uniform(least, most)
            until(lambda ready=ready: time.time() >= ready, seconds=AWAY_SECONDS_MAX)  # type: ignore[misc]
            self._has_version(chain)
            self._depart(chain)

    @contextmanager
    def _seen(self, chains: Sequence[Chain]) -> Iterator[None]:
        """Note of each work when the last of its processes was gone where it ran first."""
        over = threading.Event()

        def look() -> None:
            while not over.wait(LOOKED_SECONDS):
                for chain in chains:
                    if chain.left_at and chain.free_at is None and chain.is_gone():
                        chain.free_at = time.time()

        looking = threading.Thread(target=look, name="looking")
        looking.start()
        try:
            yield
        finally:
            over.set()
            looking.join()

    # --- before ------------------------------------------------------------------------------

    def _offer(self, machine: Machine, gpus: int) -> str:
        first = self._used.get(machine.region, 0)
        self._used[machine.region] = first + gpus
        chosen = [self.gpus[machine.region][number % GPUS] for number in range(first, first + gpus)]
        terms = {"notice_seconds": NOTICE_SECONDS, "grace_seconds": GRACE_SECONDS}
        return machine.list_for(2, floor="0.10", gpus=chosen, **terms)

    def _place(self) -> Chain:
        self._volumes += 1
        volume, folder = f"departs-{self._volumes}", self._folder / f"work-{self._volumes}"
        let_through(folder)
        folder.chmod(0o777)
        workload = {
            "kind": "training",
            "command": [PYTHON, "-c", PROGRAM, str(folder), volume],
            "volumes": [{"name": volume}],
        }
        with self.market.client(CONSUMER) as api:
            made = api.post("volumes", {"name": volume, "size_gib": 1})
            api.get(f"volumes/{volume}", after=made["position"])
        deadline = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        terms: dict[str, Any] = {"resume": True, "deadline": deadline, "limit": "1"}
        bid_id = self.market.bid(
            CONSUMER, "gpu=L4", [], duration_seconds=900, workload=workload, **terms
        )
        return Chain(bid_id, volume, folder)

    def _is_running(self, chain: Chain) -> None:
        chain.lease = self.market.lease_of(CONSUMER, chain.bid_id, state="active")
        (host_id,) = chain.lease["host_ids"]
        chain.machine = next(each for each in self.machines if each.host_id == host_id)
        until(
            lambda: chain.steps(chain.lease["id"]),
            why=lambda: self.market.cli(CONSUMER, "logs", chain.lease["id"]),
        )

    def _name(self, chains: Sequence[Chain], wanted: dict[Kind, Machine]) -> None:
        """Give each work a departure of the host that it came to."""
        open_kinds = dict(wanted)
        for chain in chains:
            chain.kind = next(kind for kind, at in open_kinds.items() if at is chain.host)
            del open_kinds[chain.kind]

    def _has_version(self, chain: Chain) -> None:
        with self.market.client(CONSUMER) as api:
            until(
                lambda: api.get(f"volumes/{chain.volume}")["version"] > 0,
                why=lambda: f"no checkpoint is kept: {self.market.log(chain.host.process)[-2000:]}",
            )

    # --- departures --------------------------------------------------------------------------

    def _depart(self, chain: Chain) -> None:
        machine, lease_id = chain.host, chain.lease["id"]
        chain.left_at = time.time()
        match chain.kind:
            case "notice":
                said = self.market.cli(OWNER, "leases", "reclaim", lease_id).json
                chain.free_by = datetime.fromisoformat(said["stop_at"]).timestamp()
            case "kill-switch":
                words = ["release", "--now", "--state-dir", str(machine.state_dir)]
                chain.free_by = chain.left_at + SWITCH_SECONDS
                done = self.market.run([sys.executable, "-m", "metering.agent", *words])
                assert done.code == 0, done
            case "power":
                self._cut_power(machine)
                self._read_spools(chain)  # the next agent keeps only what is not delivered
            case "silence":
                self.market.signal(machine.process, signal.SIGSTOP)
            case "gpu-lost" | "xid":
                self._fail(chain)

    def _fail(self, chain: Chain) -> None:
        """Take the GPU off the bus under work that dies of it, or let work hang on an XID."""
        path = chain.host.state_dir / "simulated-faults.json"
        (gpu,) = self._gpus_of(chain)
        known = json.loads(path.read_text()) if path.exists() else {}
        number, what = (79, "dies") if chain.kind == "gpu-lost" else (119, "hangs")
        made = path.with_suffix(".new")
        made.write_text(json.dumps({**known, gpu: number}))
        made.rename(path)
        # Not before the agent can have seen it: a card that is gone is gone before its work.
        time.sleep(0.6)
        (chain.folder / f"{chain.lease['id']}.fails").write_text(what)

    def _gpus_of(self, chain: Chain) -> list[str]:
        spooled = until(lambda: chain.host.spooled(chain.lease["id"]), why="nothing is spooled")
        return sorted({each["gpu_uuid"] for each in spooled})

    def _cut_power(self, machine: Machine) -> None:
        """Kill agent, keepers and work of a host, all of them at once."""
        while found := processes_of(machine.state_dir):
            for number in (signal.SIGSTOP, signal.SIGKILL):
                for process in found:
                    with suppress(ProcessLookupError):
                        os.kill(process, number)
            self.market.forget(machine.process)

    # --- after -------------------------------------------------------------------------------

    def _closed(self, chain: Chain) -> None:
        """Wait until the first lease of a work is over."""
        with self.market.client(CONSUMER) as api:
            until(lambda: self._is_over(api.get, chain.lease["id"]), seconds=AWAY_SECONDS_MAX)
            chain.lease = api.get(f"leases/{chain.lease['id']}")

    def _is_over(self, get: Callable[..., Any], lease_id: str) -> bool:
        return get(f"leases/{lease_id}")["state"] in ("closed", "failed")

    def _follow(self, chains: Sequence[Chain]) -> None:
        """Wait until all of it runs elsewhere and its first place is free."""
        with self.market.client(CONSUMER) as api:
            ends = time.monotonic() + AWAY_SECONDS_MAX
            waiting = list(chains)
            while waiting and time.monotonic() < ends:
                for chain in waiting:
                    if chain.resumed_at is None:
                        self._look_for_next(api.get, chain)
                is_open = [each for each in waiting if each.resumed_at is None]
                waiting = [
                    each
                    for each in waiting
                    if each in is_open or (each.free_at is None and each.kind != "silence")
                ]
                time.sleep(PAUSE_SECONDS)

    def _look_for_next(self, get: Callable[..., Any], chain: Chain) -> None:
        following = next_id(BidId(UUID(chain.bid_id)))
        for lease in get("leases", bid_id=str(following))["data"]:
            if steps := chain.steps(lease["id"]):
                chain.next_lease, chain.resumed_at = lease["id"], steps[0][1]

    def _come_back(self, chains: Sequence[Chain]) -> None:
        """Bring back what left, let all work finish, and see the market trust its hosts again."""
        for chain in chains:
            match chain.kind:
                case "kill-switch":
                    words = ["resume", "--state-dir", str(chain.host.state_dir)]
                    done = self.market.run([sys.executable, "-m", "metering.agent", *words])
                    assert done.code == 0, done
                case "power":
                    self.start(chain.host)
                case "silence":
                    self.market.signal(chain.host.process, signal.SIGCONT)
                    until(lambda chain=chain: chain.free_at)  # type: ignore[misc]
        for chain in chains:
            (chain.folder / "finish").touch()

    def _all_are_back(self) -> None:
        """Wait until the market leases of every host: one that was silent proves itself first."""
        with self.market.client(OWNER) as api:
            until(
                lambda: all(
                    seen["standing"] == "healthy"
                    for seen in api.get("agents")["data"]
                    if seen["host_id"] in {each.host_id for each in self.machines}
                ),
                seconds=AWAY_SECONDS_MAX,
                why=lambda: api.get("agents"),
            )

    def _outcome(self, chain: Chain) -> Outcome:
        self._closed(chain)
        first = chain.lease["id"]
        leases = [first, *([chain.next_lease] if chain.next_lease else [])]
        if chain.next_lease:
            with self.market.client(CONSUMER) as api:
                until(lambda: self._is_over(api.get, chain.next_lease))
        closed_at = datetime.fromisoformat(chain.lease["closed_at"]).timestamp()
        done = max(step for step, at in chain.steps(first) if at <= closed_at)
        began = chain.steps(chain.next_lease)[0][0] if chain.next_lease else 0
        uses = [books.final_use(self.market, CONSUMER, lease) for lease in leases]
        self._read_spools(chain)
        spans = [self._proved(chain, lease) for lease in leases]
        with self.market.client(CONSUMER) as api:
            told = [api.get(f"leases/{lease}") for lease in leases]
        proved = sum(end - start for each in spans for start, end in each)
        billed = sum(use["granted_ms"] for use in uses)
        is_free = None
        if chain.free_by is not None:
            is_free = chain.free_at is not None and chain.free_at <= chain.free_by
        elsewhere = bool(chain.next_lease) and told[-1]["host_ids"] != chain.lease["host_ids"]
        return Outcome(
            kind=chain.kind,
            reason=chain.lease["close_reason"]["code"],
            resumed_after=None if chain.resumed_at is None else chain.resumed_at - chain.left_at,
            is_elsewhere=elsewhere,
            is_free_in_time=is_free,
            free_after=None if chain.free_at is None else chain.free_at - chain.left_at,
            lost=max(0, done - began) * STEP_SECONDS,
            requeue=done * STEP_SECONDS,
            twice_ms=max(0, billed - proved) + overlap(spans),
            unbilled_ms=max(0, proved - billed),
            is_charged_right=all(
                nanos_of(use["charged"]) == books.charge_of(lease, use["granted_ms"]).nanos
                for use, lease in zip(uses, told, strict=True)
            ),
        )

    def _read_spools(self, chain: Chain) -> None:
        for lease_id in (chain.lease["id"], chain.next_lease):
            chain.spooled.setdefault(lease_id, set()).update(
                (each["start_ms"], each["end_ms"], each["gpu_uuid"])
                for machine in self.machines
                for each in machine.spooled(lease_id)
            )

    def _proved(self, chain: Chain, lease_id: str) -> list[tuple[int, int]]:
        """Return the spans that agents spooled of a lease, up to when the right to them ended."""
        with self.market.client(CONSUMER) as api:
            events = {each["name"]: each for each in api.get(f"leases/{lease_id}/events")["data"]}
            lease = api.get(f"leases/{lease_id}")
        spooled = chain.spooled[lease_id]
        ends = [lease["ends_at"]]
        match lease["close_reason"]["code"]:
            case 505:
                ends.append(events["marketplace.lease-ending"]["at"])
            case 507 | 509:
                (gpu,) = {uuid for _, _, uuid in spooled}
                ends += [each["at"] for m in self.machines for each in m.found(gpu)][:1]
        last = min(_millis(each) for each in ends)
        return [(start, min(end, last)) for start, end, _ in sorted(spooled) if start < last]

    def end(self) -> None:
        """Leave nothing running on these hosts."""
        for machine in self.machines:
            self._cut_power(machine)


def _millis(text: str) -> int:
    """Return a moment in whole milliseconds since 1970, as meters have it."""
    return (datetime.fromisoformat(text) - datetime(1970, 1, 1, tzinfo=UTC)) // MILLI
