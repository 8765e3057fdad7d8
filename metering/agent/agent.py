"""The agent of one host: makes what runs equal to what is leased, and measures it.

`tick` does what needs only this host, `exchange` what needs the server; neither waits for the
other, so that work ends on time and is measured without gap whatever the server does. Everything
that happened is in the spool before anybody is told. After a restart the agent goes on from the
spool and from what it finds running.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

from . import VERSION, checkpoints, heartbeats, lost
from .abilities import abilities_of
from .acting import Acting
from .cleaning import Cleaning
from .clock import Clock
from .courier import Courier
from .diagnosing.diagnostics import Diagnostics
from .diagnosing.levels import Level
from .diagnosing.port import Prober
from .files.carrier import Carrier
from .files.port import VolumesUplink
from .filler import Filler, FillerCommand, idle_cards
from .gpus.port import Gpus
from .hand.shown import Account, account_of
from .hand.switch import Switch
from .instances import Instances
from .inventory import Inventory
from .memory import Memory, report
from .reconcile import (
    TIME_IS_OVER,
    Held,
    Kill,
    Terminate,
    Terms,
    next_due_ms,
    reconcile,
)
from .runtimes.inside import Enterable, Inside, NoWayIn
from .runtimes.port import Runtime, Work
from .runtimes.users import make_passable
from .sampler import Finding, Sampler
from .shipping import Shipper, printing
from .single import lock_of
from .spool import BYTES_MAX, Spool
from .state import LeaseState, ended_record, terms_record
from .uplink import Uplink
from .wire import Enforced, Registration, ReportKind, Taking

log = logging.getLogger(__name__)

TICK_MS = 500
"""How often the GPUs are looked at: the driver tells only a process's latest period, up to 1 s."""
STOPPING_TICK_MS = 100
FINDINGS_MAX = 1_000
ROUNDS_PER_TICK_MAX = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """state_dir: where the spool and the leases' folders are. hostname: as shown to the owner.

    abilities: what it can do by how it was started, such as `access`. filler: what the owner runs
    on cards that no lease has. diagnostics: how thoroughly cards are probed between leases.
    """

    state_dir: Path
    hostname: str
    spool_bytes_max: int = BYTES_MAX
    tick_ms: int = TICK_MS
    abilities: tuple[str, ...] = ()
    filler: FillerCommand | None = None
    checkpoint_ms: int = checkpoints.EVERY_MS
    diagnostics: Level = "off"


class Agent:
    """One agent. Several may live in one process, each with its own state directory."""

    def __init__(
        self,
        config: AgentConfig,
        *,
        gpus: Gpus,
        runtime: Runtime,
        uplink: Uplink,
        clock: Clock,
        spool: Spool | None = None,
        files: VolumesUplink | None = None,
        prober: Prober | None = None,
    ) -> None:
        make_passable(config.state_dir)
        self._single = lock_of(config.state_dir / "agent.lock")
        self._config = config
        self._gpus, self._runtime, self._clock = gpus, runtime, clock
        self._lock = threading.RLock()
        kept, most = config.state_dir / "spool", config.spool_bytes_max
        self._memory = Memory(spool or Spool(kept, bytes_max=most))
        self.state = self._memory.state
        self._instances = Instances(gpus, config.state_dir / "instances.json")
        self._filler = Filler(config.state_dir, config.filler)
        self._diagnostics = Diagnostics(gpus, prober, clock, config.diagnostics, config.state_dir)
        self._cleaning = Cleaning(gpus, runtime, self._instances, self._diagnostics)
        of, dirty, own = self._instances.device_of, self._cleaning.unclean, self._is_own
        self._sampler = Sampler(gpus, runtime, clock, device_of=of, is_own=own, unclean=dirty)
        self._findings: deque[tuple[int, Finding]] = deque(maxlen=FINDINGS_MAX)
        self._inventory = Inventory(gpus, self._instances)
        self._cut_ms = clock.now_ms()
        self._seen: Mapping[UUID, Work] = {}
        self.switch = Switch(config.state_dir)
        self.shipper = Shipper(uplink)
        self.courier = Courier(
            uplink,
            self.state,
            keep=self._memory.keep,
            lock=self._lock,
            clock=self._clock,
            refused=config.state_dir / "refused.jsonl",
            holds_back=self.shipper.holds_back,
        )
        known, every = self.state.leases, config.checkpoint_ms
        self._files = Carrier(config.state_dir, files, clock=clock, known=known, every_ms=every)
        self._acting = Acting(
            memory=self._memory,
            runtime=runtime,
            courier=self.courier,
            shipper=self.shipper,
            sampler=self._sampler,
            instances=self._instances,
            inventory=self._inventory,
            files=self._files,
            clock=clock,
            filler=self._filler,
            cleaning=self._cleaning,
        )
        self._account = Account(config.state_dir)
        for lease_id, lease in known.items():
            if lease.ends is not None:
                self._sampler.open(lease_id, lease.ends, ends_ms=lease.terms.ends_ms, fresh=False)

    def run_once(self) -> None:
        """Ask the server, act and measure once, and deliver."""
        self.courier.exchange()
        self.tick()
        self.shipper.turn()
        self.courier.exchange()

    def run(self, stop: threading.Event) -> None:
        """Go on until `stop` is set. Work that runs then goes on running, for the next agent."""
        carrier = threading.Thread(target=self._carry, args=[stop], name="courier")
        shipping = threading.Thread(target=self.shipper.run, args=[stop], name="shipper")
        carrier.start()
        shipping.start()
        try:
            while not stop.is_set():
                self.tick()
                stop.wait(self._pause_ms() / 1000)
            with self._lock:
                self._measure(self._clock.now_ms(), self._works(), all_due=True)
        finally:
            stop.set()
            self.shipper.wake()
            carrier.join()
            shipping.join()
        self.courier.exchange()

    def tick(self) -> None:
        """Measure, and start, warn and stop what is due. Needs no server."""
        with self._lock:
            now_ms = self._clock.now_ms()
            self._instances.settle()
            self._heed()
            self._register(now_ms)
            self._take_terms()
            works = self._works()
            self._take_up(works)
            self._tidy()
            due = now_ms - self._cut_ms >= self.courier.sample_seconds * 1000
            self._measure(now_ms, works, all_due=due)
            self._fill(works)
            for _ in range(ROUNDS_PER_TICK_MAX):
                actions = reconcile(self._held(works), now_ms=self._clock.now_ms())
                if not actions:
                    break
                for action in actions:
                    self._acting.do(action)
                works = self._works()
                self._take_up(works)
                self._tidy()
                if not any(isinstance(action, Terminate | Kill) for action in actions):
                    break
            self._seen = works
            self._acting.limit(self._held(works))
            self.shipper.know(printing(self._runtime, self.state.leases, works))
            self._files.send(works, self.state.leases, self._runtime, keep=self._memory.keep)
            self._account.keep(lambda: self.status(works), now_ms)

    def heed(self, taking: Taking, *, stated_grace: bool = False) -> None:
        """Take the owner's word, and act on it before returning.

        Raises: OSError: it holds until the agent is started anew.
        """
        with self._lock:
            try:
                self.switch.say(taking, now_ms=self._clock.now_ms(), stated_grace=stated_grace)
            finally:
                self.tick()

    def status(self, works: Mapping[UUID, Work] | None = None) -> dict[str, Any]:
        """Return how the host stands, for its owner; works: as they were just looked at."""
        with self._lock:
            return account_of(
                self._config.hostname,
                self._clock.now_ms(),
                state=self.state,
                leases=self._held(self._works() if works is None else works),
                registration=self.courier.registration,
                gpus=self._inventory.gpus,
                faulty=self._sampler.faulty(),
                kept_ms=self._sampler.kept_ms,
                filler=self._filler,
                switch=self.switch,
                courier=self.courier,
                spool_bytes=self._memory.bytes_used,
            )

    def inside(self, lease_id: UUID) -> Inside:
        """Return how to enter the work of a lease, for who may.

        Raises: NoWayIn.
        """
        with self._lock:
            lease = self.state.leases.get(lease_id)
            if not isinstance(self._runtime, Enterable):
                raise NoWayIn("work on this host cannot be entered")
            if lease is None or lease.ended:
                raise NoWayIn("no work of this lease runs here")
            return self._runtime.inside(lease_id)

    def count_in(self, lease_id: UUID, pid: int) -> None:
        """Take a process, and all below it, for a lease's own: what it uses, the lease uses."""
        with self._lock:
            if isinstance(self._runtime, Enterable):
                self._runtime.count_in(lease_id, pid)

    def close(self) -> None:
        """Let go of the spool, the driver and the state directory; stops no work."""
        with self._lock:
            self._filler.close()
            self._diagnostics.stop()
            self._files.close()
            self._memory.close()
            self._gpus.close()
            if self._single >= 0:
                os.close(self._single)
                self._single = -1

    def _is_own(self, pid: int) -> bool:
        return self._filler.owns(pid) or self._diagnostics.owns(pid)

    # --- measuring -------------------------------------------------------------------------------

    def _works(self) -> dict[UUID, Work]:
        return {work.lease_id: work for work in self._runtime.works()}

    def _take_up(self, works: Mapping[UUID, Work]) -> None:
        """Finish the leases whose work ended, and meter work found running without a meter."""
        if self.courier.desired is not None:
            for unknown in works.keys() - self.state.leases.keys():
                # Its terms are lost (the spool was removed) and the server does not name it.
                self._runtime.kill(unknown)
                self._runtime.forget(unknown)
        for lease_id, lease in self.state.leases.items():
            work = works.get(lease_id)
            if lease.ended or (work is None and lease.ends is None):
                continue
            if work is None:
                self._finish(lease_id, lease, None)
                continue
            if work.lost and not work.started_ms and lease.ends is None:
                self._acting.close_unstarted(lease_id, "failed", work.detail)
                continue
            if lease.ends is None:
                self._acting.begin(work, lease, fresh=False)
            if work.state == "ended":
                self._finish(lease_id, lease, work)
            elif saved := self._files.news(work, lease):
                self._memory.keep(saved)

    def _measure(self, now_ms: int, works: Mapping[UUID, Work], *, all_due: bool) -> None:
        """Look at the GPUs; keep the intervals that are due and what was found."""
        # A lease is accounted only up to a moment after which its work was seen alive.
        frozen = {
            lease_id
            for lease_id in self.state.leases
            if (work := works.get(lease_id)) is None or work.state != "running"
        }
        found = self._sampler.look(now_ms, idle=self._inventory.uuids, frozen=frozen)
        for finding in found:
            log.warning("%s: %s: %s", finding.gpu_uuid or "driver", finding.kind, finding.detail)
            if finding.kind == "recovered":
                self._inventory.look_again()
                self._diagnostics.want([finding.gpu_uuid or ""])
            self._findings.append((now_ms, finding))
        cuts = self._sampler.cuts(now_ms, all_due=all_due, frozen=frozen)
        records = self._memory.samples(cuts, self._findings)
        if not records or self._memory.keep(records, urgent=False, sync=True):
            self._sampler.kept(cuts)
            self._sampler.count(cuts)
            self._cleaning.heed(cuts)
            self._findings.clear()
            if all_due:
                self._cut_ms = now_ms

    def _finish(self, lease_id: UUID, lease: LeaseState, work: Work | None) -> None:
        """Keep the last intervals, the report and the end of a lease, all in one line."""
        if lease.ends is None:
            return  # its beginning could not be kept yet
        ended_ms = None if work is None else work.ended_ms
        cuts = self._sampler.closing(lease_id, ended_ms)
        at_ms = ended_ms if ended_ms is not None else max(lease.ends.values())
        stopped = lease.stopping_ms is not None or (work is not None and work.stopped)
        what: ReportKind = "stopped" if stopped else "exited"
        detail = lease.stopping_reason or (TIME_IS_OVER if stopped else "")
        by_owner = self.switch.ended(lease, at_ms, stopped=work is not None and work.stopped)
        if by_owner:
            what, detail = "stopped", by_owner
        elif work is None or work.lost:
            what, detail = "failed", lost.why(lease, work)
        code = None if work is None else work.exit_code
        records = [
            *self._memory.samples(cuts, self._findings),
            *checkpoints.news(None if work is None else work.saved_ms, lease, at_end=True),
            *heartbeats.news(work, lease, at_end=True),
            report(
                lease.terms, what, at_ms, exit_code=code, detail=detail, reclaimed=bool(by_owner)
            ),
            ended_record(lease_id, at_ms, None if what == "stopped" else code),
        ]
        if self._memory.keep(records, sync=True):
            self._findings.clear()
            self._sampler.count(cuts)
            self._sampler.close(lease_id)
            self._cleaning.freed(lease_id, lease.terms.gpu_uuids, self._clock.now_ms(), cuts)

    def _tidy(self) -> None:
        """Remove the MIG instances of leases that are over, and look at what they leave."""
        held = {lease_id for lease_id, lease in self.state.leases.items() if not lease.ended}
        for device in self._instances.tidy(held):
            self._sampler.drop(device)
        now_ms = self._clock.now_ms()
        self._findings += self._cleaning.turn(now_ms, self.state.leases, self._inventory.gpus)

    # --- acting ----------------------------------------------------------------------------------

    def _take_terms(self) -> None:
        """Keep what the server last said, before acting on it."""
        for lease_id, assignment in (self.courier.desired or {}).items():
            terms = Terms.of(assignment)
            lease = self.state.leases.get(lease_id)
            if lease is None or lease.terms != terms:
                self._memory.keep([terms_record(terms)], sync=True)
                self._sampler.limit(lease_id, ends_ms=terms.ends_ms)

    def _held(self, works: Mapping[UUID, Work]) -> list[Held]:
        desired, trusted, held = self.courier.desired, self._runtime.trusts_work, list[Held]()
        for lease_id, lease in self.state.leases.items():
            work = works.get(lease_id)
            running = work is not None and not lease.ended
            held.append(
                self.switch.over(
                    Held(
                        terms=lease.terms,
                        listed=self.courier.lists(lease_id),
                        work="ended" if lease.ended else "running" if running else "none",
                        startable=desired is not None and lease_id in desired,
                        noticed_ms=lease.noticed_ms,
                        stopping_ms=lease.stopping_ms,
                        apart=trusted or self._runtime.separates(lease.terms.gpu_uuids),
                        over=self._sampler.over_share(lease_id),
                    )
                )
            )
        return held

    def _fill(self, works: Mapping[UUID, Work]) -> None:
        """Run the owner's filler where no lease is, or is about to be."""
        if self.switch.taking == "released":
            self._filler.clear(self._filler.cards)
            self._diagnostics.stop()
            return
        if self._filler.command:
            now_ms = self._clock.now_ms()
            idle = idle_cards(self._inventory.gpus, self._held(works), now_ms=now_ms)
            probing = self._diagnostics.probing
            self._filler.turn([card for card in idle if card not in probing], now_ms)

    def _heed(self) -> None:
        """Take in what the owner said, here or on the market, before acting on anything."""
        self.switch.market = self.courier.taking
        self.switch.look()
        known = self.courier.registration
        if known is not None and known.taking != self.switch.word.taking:
            self.courier.registration = replace(known, taking=self.switch.word.taking)

    def _register(self, now_ms: int) -> None:
        """Tell the server what this host has, when that is looked at again."""
        gpus = self._inventory.look(now_ms)
        if gpus is not None:
            sandbox = self._runtime.sandbox
            self.courier.registration = Registration(
                agent_version=VERSION,
                boot_id=self.state.boot_id,
                hostname=self._config.hostname,
                gpus=gpus,
                measures=self._inventory.measures,
                sandbox=sandbox.level,
                enforces=tuple(Enforced(what=what, by=by) for what, by in sandbox.enforces),
                abilities=abilities_of(self._runtime, self._config.abilities),
                taking=self.switch.word.taking,
            )

    def _pause_ms(self) -> int:
        with self._lock:
            now_ms, held = self._clock.now_ms(), self._held(self._seen)
            due_ms = next_due_ms(held, now_ms=now_ms)
        pause_ms = self._config.tick_ms
        if any(each.work == "running" and each.stopping_ms is not None for each in held):
            pause_ms = min(pause_ms, STOPPING_TICK_MS)  # the next lease may wait for its GPU
        return pause_ms if due_ms is None else max(1, min(pause_ms, due_ms - now_ms))

    def _carry(self, stop: threading.Event) -> None:
        while not stop.wait(min(self._config.tick_ms, 1_000) / 1000):
            self.courier.exchange()
