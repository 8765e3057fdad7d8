"""What is looked at between two leases of a card: is its memory back, and are the files gone.

The agent clears no GPU memory itself. It ends the work, removes its files and its MIG instances,
and looks whether the driver has taken the memory back: as much as was in use before the lease. What
is not back after a while keeps the card from the next lease, and is said.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from .cutting import Cut
from .diagnosing.diagnostics import Diagnostics
from .gpus.port import GpuFault, Gpus
from .instances import Instances
from .runtimes.port import Runtime, Wiping
from .sampler import WATCH_MS, Finding
from .shares import card_of, cards_of, slice_of
from .state import LeaseState
from .strangers import FILLED_MIB
from .wire import Gpu

BACK_MS_MAX = 10_000
"""The driver takes memory back within so long after the last process of a lease is gone."""
MIB = 1 << 20


@dataclass(slots=True)
class Freed:
    """The cards of a lease that is over. after_mib: memory in use on each that was looked at, and
    before_mib: when no lease had it. None: not known.
    """

    uuids: tuple[str, ...]
    ended_ms: int
    after_mib: dict[str, int | None] = field(default_factory=dict)
    before_mib: dict[str, int | None] = field(default_factory=dict)


class Cleaning:
    """Looks after leases; one agent's, under whose lock it is used.

    unclean: the cards whose memory is not back, and what is said of each.
    """

    def __init__(
        self, gpus: Gpus, runtime: Runtime, instances: Instances, diagnostics: Diagnostics
    ) -> None:
        self.diagnostics = diagnostics
        self._gpus = gpus
        self._runtime = runtime
        self._instances = instances
        self._idle_mib: dict[str, int] = {}
        self._asks_ms: dict[str, int] = {}
        self._most_mib: dict[tuple[UUID, str], int] = {}
        self._freed: dict[UUID, Freed] = {}
        self.unclean: dict[str, str] = {}
        self._resumed = False

    def _learn(self, now_ms: int, cards: Iterable[str], leased: Collection[str]) -> None:
        """Learn how much memory is in use on cards that no lease has, of those not known yet."""
        for card in cards:
            known = card in self._idle_mib or card in leased or self.waits([card])
            if known or now_ms < self._asks_ms.get(card, now_ms):
                continue
            self._asks_ms[card] = now_ms + WATCH_MS
            try:
                own = self._unowned(card)
            except GpuFault:
                continue
            if own is not None:
                self._idle_mib[card] = own

    def heed(self, cuts: Iterable[Cut]) -> None:
        """Take in what leases used, to say it when it is given back."""
        for cut in cuts:
            used = cut.fields["memory_used_mib"] or 0
            self._most_mib[cut.key] = max(used, self._most_mib.get(cut.key, 0))

    def freed(
        self, lease_id: UUID, uuids: Iterable[str], ended_ms: int, cuts: Iterable[Cut] = ()
    ) -> None:
        """Look after a lease whose last process is gone. cuts: the last of what it used."""
        self.heed(cuts)
        self._freed.setdefault(lease_id, Freed(tuple(uuids), ended_ms))

    def waits(self, cards: Collection[str]) -> str:
        """Say which of these cards are not looked at yet; empty: none."""
        waited = {
            card_of(uuid)
            for freed in self._freed.values()
            for uuid in freed.uuids
            if uuid not in freed.after_mib
        }
        unclean = ", ".join(sorted(waited & set(cards) - self.unclean.keys()))
        return f"{unclean} not clean yet" if unclean else ""

    def _resume(self, leases: Mapping[UUID, LeaseState], now_ms: int) -> None:
        """Look after leases that were over when an earlier run of the agent ended."""
        for lease_id, lease in leases.items():
            if lease.ended and lease.ran_until_ms is not None:
                self.freed(lease_id, lease.terms.gpu_uuids, now_ms)

    def turn(
        self, now_ms: int, leases: Mapping[UUID, LeaseState], gpus: Collection[Gpu]
    ) -> list[tuple[int, Finding]]:
        """Look at what was freed; return what is clean now and since when, each once.

        leases: of which something is still here: work, or output that is being sent. gpus: all
        of the host.
        """
        if not self._resumed:
            self._resumed = True
            self._resume(leases, now_ms)
        running = [each for each in leases.values() if each.ends is not None and not each.ended]
        shared = {card for each in running for card in cards_of(each.terms.gpu_uuids)}
        rest = [gpu.uuid for gpu in gpus if gpu.uuid not in self.diagnostics.probing]
        self._learn(now_ms, cards_of(rest), shared)
        found = []
        for lease_id, freed in list(self._freed.items()):
            for uuid in freed.uuids:
                if uuid not in freed.after_mib:
                    self._look(lease_id, uuid, freed, now_ms, card_of(uuid) in shared)
                    if uuid in freed.after_mib:
                        self.diagnostics.want([uuid])
            wiped = self._wiped(lease_id) if lease_id not in leases else None
            if wiped is None or len(freed.after_mib) < len(freed.uuids):
                continue
            del self._freed[lease_id]
            for uuid in freed.uuids:
                said = self._said(lease_id, uuid, freed, wiped)
                found.append((now_ms, Finding(uuid, "cleaned", said)))
        return found + self._diagnose(now_ms, leases, gpus)

    def _diagnose(
        self, now_ms: int, leases: Mapping[UUID, LeaseState], gpus: Collection[Gpu]
    ) -> list[tuple[int, Finding]]:
        """Probe cards that are clean and that nobody has or is to have by now."""
        to_run = [each for each in leases.values() if not each.ended]
        taken = {
            card
            for each in to_run
            if each.terms.starts_ms <= now_ms
            for card in cards_of(each.terms.gpu_uuids)
        }
        taken |= {
            card_of(uuid)
            for freed in self._freed.values()
            for uuid in freed.uuids
            if uuid not in freed.after_mib
        }
        told = self.diagnostics.turn(gpus, taken | self.unclean.keys())
        return [(now_ms, Finding(card, kind, said)) for card, kind, said in told]

    def _look(self, lease_id: UUID, uuid: str, freed: Freed, now_ms: int, shared: bool) -> None:
        card = card_of(uuid)
        if slice_of(uuid) is not None:
            if self._instances.device_of(uuid) == card:
                freed.after_mib[uuid] = None  # with the instance its memory is gone
            return
        late, idle = now_ms - freed.ended_ms >= BACK_MS_MAX, self._idle_mib.get(card)
        try:
            after = self._unowned(card)
        except GpuFault:
            if late and card not in self.unclean:
                freed.after_mib[uuid] = None  # what is wrong with it is told by itself
            return
        over = (after or 0) - (idle or 0)
        if after is None or idle is None or shared or over <= FILLED_MIB:
            freed.after_mib[uuid], freed.before_mib[uuid] = after, idle
            self.unclean.pop(card, None)
        elif late and card not in self.unclean:
            self.unclean[card] = (
                f"{over} MiB of its memory are not back after lease {lease_id}, and no process has"
                " them"
            )

    def _unowned(self, card: str) -> int | None:
        """Return the memory in use on a card that is of no living process; None: not known.

        Raises: GpuFault.
        """
        reading = self._gpus.read(card, since_us=0)
        used = self._gpus.memory_used(card)
        if not reading.pids_are_ours or not reading.clients_listed:
            return None
        for each in reading.residents:
            if self._runtime.name_of(each.pid) is not None:
                if each.memory_mib is None:
                    return None
                used -= each.memory_mib
        return max(0, used)

    def _wiped(self, lease_id: UUID) -> int | None:
        """Return the bytes of files that went with a lease, -1 where it had none; None: not yet."""
        return self._runtime.wiped(lease_id) if isinstance(self._runtime, Wiping) else -1

    def _said(self, lease_id: UUID, uuid: str, freed: Freed, wiped: int) -> str:
        parts = [f"after lease {lease_id}: none of its processes is left"]
        after, before = freed.after_mib[uuid], freed.before_mib.get(uuid)
        most = self._most_mib.pop((lease_id, uuid), 0)
        if slice_of(uuid) is not None:
            parts.append("its MIG instance was removed")
        elif after is not None and before is not None:
            parts.append(
                f"memory of no process is {after} MiB, {before} MiB before it; it used up to"
                f" {most} MiB"
            )
        else:
            parts.append("what is in use of the card's memory is not known")
        if wiped >= 0:
            parts.append(f"{wiped / MIB:.1f} MiB of its files were removed")
        return "; ".join(parts)
