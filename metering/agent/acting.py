"""Does what `reconcile` decided: starts, warns, ends and forgets the work of leases.

Each action may fail and is decided again at the next tick, so nothing here waits or repeats.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

from .cleaning import Cleaning
from .clock import Clock, kernel_boot_id
from .courier import Courier
from .files.carrier import Carrier
from .filler import Filler
from .gpus.port import GpuFault, InstanceBusy, InstanceRefused
from .handing import names_of
from .instances import Instances
from .inventory import Inventory
from .memory import Memory, report
from .reconcile import (
    Action,
    Decline,
    Forget,
    GiveUp,
    Held,
    Kill,
    Notice,
    Start,
    Terminate,
    TurnAway,
    limit_ms,
)
from .runtimes.levels import short_of
from .runtimes.port import Coming, NotYet, Runtime, StartFailed, Work, WorkSpec
from .sampler import Sampler
from .shares import cards_of, is_mps
from .shipping import Shipper
from .state import LeaseState
from .wire import Assignment, ReportKind

COMING_SAID_MS = 10_000
"""What comes sooner than that is not worth a report."""

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Acting:
    """What the agent does to work, with all that it takes. Called under the agent's lock."""

    memory: Memory
    runtime: Runtime
    courier: Courier
    shipper: Shipper
    sampler: Sampler
    instances: Instances
    inventory: Inventory
    files: Carrier
    clock: Clock
    filler: Filler
    cleaning: Cleaning
    _said: dict[str, str] = field(default_factory=dict)
    _coming_ms: dict[UUID, int] = field(default_factory=dict)

    def do(self, action: Action) -> None:
        """Do it; what the host refuses (a full disk) is asked for again, the rest goes on."""
        try:
            self._do(action)
        except OSError as error:
            what = type(action).__name__
            self.say(f"{action.lease_id} {what}", f"lease {action.lease_id}: {what}: {error}")

    def begin(self, work: Work, lease: LeaseState, *, fresh: bool) -> None:
        """Meter work from its start on, and report that it runs, or what it still waits for."""
        if work.state == "starting":
            if work.coming:
                self._tell_coming(work.lease_id, work.coming)
            return
        ends = dict.fromkeys(lease.terms.gpu_uuids, work.started_ms)
        records = [
            {"t": "open", "lease": str(work.lease_id), "ends": ends, "kernel": kernel_boot_id()},
            report(
                lease.terms,
                "started",
                work.started_ms,
                commit=work.commit,
                left_out=work.left_out,
            ),
        ]
        if self.memory.keep(records, sync=True):
            self.sampler.open(work.lease_id, ends, ends_ms=lease.terms.ends_ms, fresh=fresh)

    def _tell_coming(self, lease_id: UUID, reason: str) -> None:
        """Report once that what work needs is on its way: the host is not idle."""
        lease, now_ms = self.memory.state.leases[lease_id], self.clock.now_ms()
        since_ms = self._coming_ms.setdefault(lease_id, now_ms)
        if not lease.fetching and now_ms - since_ms >= COMING_SAID_MS:
            told = report(lease.terms, "fetching", now_ms, detail=reason)
            self.memory.keep([told, {"t": "fetching", "lease": str(lease_id)}])

    def close_unstarted(
        self, lease_id: UUID, what: ReportKind, reason: str, *, reclaimed: bool = False
    ) -> None:
        """Report that there is no work of a lease, and never will be."""
        self.courier.handing.forget(lease_id)
        self._coming_ms.pop(lease_id, None)
        log.warning("lease %s: %s: %s", lease_id, what, reason)
        self.files.drop(lease_id)
        terms = self.memory.state.leases[lease_id].terms
        ended = report(terms, what, self.clock.now_ms(), detail=reason, reclaimed=reclaimed)
        self.memory.keep([ended, {"t": "closed", "lease": str(lease_id)}], sync=True)

    def say(self, about: str, text: str) -> None:
        """Log what stands in the way of something, once, though it is tried at each tick."""
        if self._said.get(about) != text:
            self._said[about] = text
            log.warning("%s", text)

    def limit(self, leases: Iterable[Held]) -> None:
        """Tell each keeper until when its work may run, should this be our last word."""
        for held in leases:
            if held.work == "running":
                lease_id, (stop_ms, kill_ms) = held.terms.lease_id, limit_ms(held)
                try:
                    self.runtime.limit(lease_id, stop_at_ms=stop_ms, kill_at_ms=kill_ms)
                except OSError as error:
                    text = f"lease {lease_id}: its deadline was not moved: {error}"
                    self.say(f"{lease_id} limit", text)

    def _do(self, action: Action) -> None:
        lease_id, name = action.lease_id, str(action.lease_id)
        match action:
            case Start():
                self._start(lease_id)
            case Notice():
                if self.runtime.notify(lease_id, stop_at_ms=action.stop_at_ms):
                    told = {"t": "notice", "lease": name, "stop_at_ms": action.stop_at_ms}
                    self.memory.keep([told])
            case Terminate():
                log.info("lease %s: stopping: %s", name, action.reason)
                at_ms = self.clock.now_ms()
                record = {"t": "stopping", "lease": name, "at_ms": at_ms, "reason": action.reason}
                if not self.memory.keep([record]):
                    # Not on disk, but the end of a lease does not wait for that.
                    self.memory.believe(record)
                self.runtime.terminate(lease_id)
            case Kill():
                self.runtime.kill(lease_id)
            case GiveUp():
                self.close_unstarted(lease_id, "stopped", action.reason)
                self.runtime.forget(lease_id)  # what was made ready for it
            case TurnAway():
                self.close_unstarted(lease_id, "failed", action.reason)
                self.runtime.forget(lease_id)
            case Decline():
                self.close_unstarted(lease_id, "stopped", action.reason, reclaimed=True)
                self.runtime.forget(lease_id)
            case Forget():
                if self.shipper.needs(lease_id) or not self.files.let_go(
                    self.memory.state.leases[lease_id]
                ):
                    return  # asked for again at the next tick
                self.runtime.forget(lease_id)
                self.memory.keep([{"t": "forgotten", "lease": name}])
                self._said = {k: v for k, v in self._said.items() if not k.startswith(name)}

    def _short_of(self, assignment: Assignment) -> str:
        """Return what this host lacks of the level that a lease was promised.

        It may have fallen since: the agent was started anew with less.
        """
        if not assignment.sandbox:
            return ""
        image = bool(assignment.image) and self.runtime.runs_images
        by_mps = any(map(is_mps, assignment.gpu_uuids))
        return short_of(assignment.sandbox, self.runtime.sandbox, image=image, by_mps=by_mps)

    def _start(self, lease_id: UUID) -> None:
        assert self.courier.desired is not None
        assignment = self.courier.desired[lease_id]
        if absent := self.inventory.absent(cards_of(assignment.gpu_uuids)):
            return self.close_unstarted(lease_id, "failed", f"no GPU {', '.join(absent)} here")
        if short := self._short_of(assignment):
            return self.close_unstarted(lease_id, "failed", short)
        if not self.filler.clear(cards_of(assignment.gpu_uuids)):
            return self.say(str(lease_id), f"lease {lease_id}: waits: the filler is still there")
        if unready := self.cleaning.waits(cards_of(assignment.gpu_uuids)):
            return self.say(str(lease_id), f"lease {lease_id}: waits: {unready}")
        if probed := self.cleaning.diagnostics.waits(cards_of(assignment.gpu_uuids)):
            return self.say(str(lease_id), f"lease {lease_id}: waits: {probed} is probed")
        if failing := self.cleaning.diagnostics.failing(cards_of(assignment.gpu_uuids)):
            return self.close_unstarted(lease_id, "failed", failing)
        if filled := self.sampler.filled(assignment.gpu_uuids):
            return self.close_unstarted(lease_id, "refused", filled)
        terms = self.memory.state.leases[lease_id].terms
        try:
            brought = self.files.bring(assignment, deadline_ms=terms.deadline_ms)
            devices = self.instances.make(lease_id, assignment.gpu_uuids)
            secrets = self.courier.handing.take(lease_id, names_of(assignment))
            spec = WorkSpec.of(assignment, terms, devices, brought)
            work = self.runtime.start(spec.handed(secrets, assignment.secrets))
        except (InstanceRefused, StartFailed) as failure:
            self.cleaning.diagnostics.want(assignment.gpu_uuids)
            return self.close_unstarted(lease_id, "failed", str(failure))
        except (InstanceBusy, GpuFault, NotYet) as reason:  # asked for again at the next tick
            if isinstance(reason, Coming):
                self._tell_coming(lease_id, str(reason))
            return self.say(str(lease_id), f"lease {lease_id}: waits: {reason}")
        self.courier.handing.forget(lease_id)
        if not work.coming:
            self._coming_ms.pop(lease_id, None)
        log.info("lease %s: started", lease_id)
        self.files.drop(lease_id)  # they are the work's now
        self.begin(work, self.memory.state.leases[lease_id], fresh=True)
