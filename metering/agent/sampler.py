"""From looks at the GPUs to milliseconds per lease: granted, occupied, busy.

Granted time is the length of the interval. Occupied and busy time are measured between looks:
occupied by what the earlier look saw (a process that came is counted from the look that saw it
until the one that missed it), busy by the driver's own samples, each weighted with the time
that it stands for by the time stamps. What could not be seen is None, never 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from uuid import UUID

from . import over_share
from .clock import Clock
from .cutting import Cut, Key, cut_of
from .energy import Energies
from .gpus.port import GpuFault, Gpus, Reading
from .meters import (
    FUTURE_US_MAX,
    SPARE_US_PERCENT_MAX,
    Meter,
    Watch,
    account,
    heed_step,
    see,
    settle,
    weigh,
)
from .readiness import Readiness
from .runtimes.port import Accounted, Runtime
from .runtimes.used import NOT_KNOWN
from .shares import DAEMONS, card_of, cards_of, is_mps, share_of
from .sharing import US_PERCENT_PER_MS
from .strangers import filling, strangers_of
from .unsampled import weigh_rest
from .wire import HealthKind

WATCH_MS = 30_000
"""How often a GPU without a lease is looked at, to notice that it is lost."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something to tell of a GPU's health."""

    gpu_uuid: str | None
    kind: HealthKind
    detail: str


class Sampler:
    """Looks at the GPUs and keeps the meters of the leases that run.

    device_of: says what the driver calls a GPU: of a share its card, of a MIG instance itself.
    is_own: tells the processes that are neither a lease's nor a stranger's, but give way to leases.
    unclean: cards whose memory is not back after a lease, and what is said of them.
    """

    def __init__(
        self,
        gpus: Gpus,
        runtime: Runtime,
        clock: Clock,
        *,
        device_of: Callable[[str], str] = card_of,
        is_own: Callable[[int], bool] = lambda _: False,
        unclean: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._unclean = unclean
        self._gpus = gpus
        self._device_of = device_of
        self._is_own = is_own
        self.kept_ms: Counter[str] = Counter()
        self._runtime = runtime
        self._clock = clock
        self._meters: dict[Key, Meter] = {}
        self._watches: dict[str, Watch] = {}
        self._driver_fault: GpuFault | None = None
        self._unsaid: list[Finding] = []
        self._readiness = Readiness(runtime)
        self._energies = Energies(gpus, device_of=device_of)

    def open(self, lease_id: UUID, ends: Mapping[str, int], *, ends_ms: int, fresh: bool) -> None:
        """Begin to measure a lease.

        ends: per GPU the moment from which it is measured. fresh: the work has just been started,
        so nothing of it is on the GPU yet; otherwise what happened since is unknown.
        """
        wall_us, devices = self._clock.wall_us(), dict.fromkeys(map(self._device_of, ends))
        self._settle(devices, self._clock.now_ms(), read=True)
        if fresh:
            self._begin(devices)
        for uuid, start_ms in ends.items():
            share = share_of(uuid)
            self._meters[lease_id, uuid] = Meter(
                cut_ms=start_ms,
                seen_ms=start_ms,
                ends_ms=ends_ms,
                present=False if fresh else None,
                opened_us=wall_us,
                occupied_ms=0 if fresh else None,
                busy_known=fresh,
                by_mps=is_mps(uuid),
                share_mib=None if share is None else share.memory_mib,
                energy_known=fresh and self._energies.counts(uuid),
            )

    def _begin(self, devices: Iterable[str]) -> None:
        """Note from where on what is counted on devices is that of their first lease."""
        leased = self._by_card()
        for device in devices:
            watch = self._watches.setdefault(device, Watch())
            if watch.fault is None and device not in leased:
                try:
                    reading = self._gpus.read(device, since_us=self._clock.wall_us())
                except GpuFault:
                    continue  # the next look finds it and says so
                watch.kernels_us, watch.lives = reading.kernels_us, frozenset(reading.ended)

    def limit(self, lease_id: UUID, *, ends_ms: int) -> None:
        """Set the moment beyond which nothing is granted."""
        for (lease, _), meter in self._meters.items():
            if lease == lease_id:
                meter.ends_ms = ends_ms

    def look(self, now_ms: int, *, idle: Iterable[str], frozen: Collection[UUID]) -> list[Finding]:
        """Look at every GPU that is leased, and now and then at the `idle` ones.

        frozen: leases whose work is just ending; they are not accounted until its end is known.
        """
        findings, self._unsaid = self._unsaid, []
        findings += [Finding(x.uuid, "xid", f"XID {x.number}") for x in self._gpus.xids()]
        if isinstance(self._runtime, Accounted):
            told = self._runtime.findings()
            findings += [Finding(uuid, "accounting-differs", text) for uuid, text in told]
        if (news := self._readiness.news(now_ms)) is not None:
            findings.append(Finding(None, *news))
        for (lease_id, _), meter in self._meters.items():
            if lease_id not in frozen:
                account(meter, now_ms)
        leased = self._by_card()
        # A faulty GPU is not in the driver's list any more, but is watched until it comes back.
        faulty = [uuid for uuid, watch in self._watches.items() if watch.fault is not None]
        for uuid in dict.fromkeys([*leased, *idle, *faulty]):
            watch = self._watches.setdefault(uuid, Watch())
            clean = not watch.filled and uuid not in self._unclean
            quiet = uuid not in leased and watch.fault is None and clean
            if quiet and watch.looked_ms is not None and now_ms - watch.looked_ms < WATCH_MS:
                continue
            findings += self._look_at(uuid, watch, leased.get(uuid, {}), now_ms, frozen)
        self._count_energy(leased, now_ms)
        return findings

    def cuts(self, now_ms: int, *, all_due: bool, frozen: Collection[UUID]) -> list[Cut]:
        """Return the intervals to keep now: all, or those where measuring stopped or resumed."""
        due = [
            (key, meter)
            for key, meter in self._meters.items()
            if (all_due or meter.turned)
            and key[0] not in frozen
            and min(meter.seen_ms, meter.ends_ms) > meter.cut_ms
        ]
        used = self._runtime.used() if due else {}
        self._settle(dict.fromkeys(self._device_of(key[1]) for key, _ in due), now_ms)
        return [
            cut_of(
                key,
                meter,
                min(meter.seen_ms, now_ms, meter.ends_ms),
                used.get(key[0], NOT_KNOWN),
            )
            for key, meter in due
        ]

    def closing(self, lease_id: UUID, end_ms: int | None) -> list[Cut]:
        """Return a lease's last intervals; end_ms None: where the last kept ones ended."""
        last = []
        mine = {} if end_ms is None else {k: m for k, m in self._meters.items() if k[0] == lease_id}
        for meter in mine.values():
            meter.over_ms = end_ms
        for key, meter in mine.items():
            assert end_ms is not None
            account(meter, end_ms)
            card = self._device_of(key[1])
            watch = self._watches.setdefault(card, Watch())
            if watch.fault is None and meter.busy_known:
                self._last_busy(card, watch, meter, end_ms)
            stop_ms = min(end_ms, meter.ends_ms)
            self._settle([card], max(end_ms, self._clock.now_ms()), read=True)
            if stop_ms > meter.cut_ms:
                last.append(cut_of(key, meter, stop_ms))
        return last

    def over_share(self, lease_id: UUID) -> str:
        """Return why a lease is to end for the memory that it holds; empty: it is not."""
        overs = (meter.over for (lease, _), meter in self._meters.items() if lease == lease_id)
        return next(filter(None, map(over_share.said, overs)), "")

    def faulty(self) -> set[str]:
        """Return the devices that did not answer when they were looked at last."""
        return {uuid for uuid, watch in self._watches.items() if watch.fault is not None}

    def count(self, cuts: Iterable[Cut]) -> None:
        """Add up intervals that were kept, for `kept_ms`: what was granted, and what was busy."""
        for cut in cuts:
            self.kept_ms["granted"] += cut.fields["granted_ms"]
            self.kept_ms["busy"] += cut.fields["busy_ms"] or 0

    def _name_of(self, pid: int) -> str | None:
        return None if self._is_own(pid) else self._runtime.name_of(pid)

    def kept(self, cuts: Iterable[Cut]) -> None:
        """Go on from intervals that are safely kept. Until then they grow and can be cut again."""
        for cut in cuts:
            meter = self._meters[cut.key]
            busy_ms = cut.fields["busy_ms"]
            if busy_ms is not None:
                left = meter.busy_us_percent - busy_ms * US_PERCENT_PER_MS
                meter.busy_us_percent = min(left, SPARE_US_PERCENT_MAX)
            else:
                meter.busy_us_percent = 0
            meter.cut_ms = cut.fields["end_ms"]
            meter.used = cut.used
            known = meter.present is not None
            meter.occupied_ms = 0 if known else None
            meter.busy_known = known
            energy_mj = cut.fields["energy_mj"]
            meter.energy_mj = 0 if energy_mj is None else meter.energy_mj - energy_mj
            meter.energy_known = self._energies.counts(cut.key[1])
            meter.memory_mib = None
            meter.turned = False

    def close(self, lease_id: UUID) -> None:
        """Stop measuring a lease."""
        leased = self._by_card()
        for key in [key for key in self._meters if key[0] == lease_id]:
            del self._meters[key]
            for other in leased.get(self._device_of(key[1]), {}).values():
                other.pending_us_percent = 0  # the card had no room for it while they shared it
        self._energies.keep(uuid for _, uuid in self._meters)
        for device in self._watches.keys() - self._by_card().keys():
            self._watches[device].settled_ms = None

    def _by_card(self) -> dict[str, dict[UUID, Meter]]:
        """Return the meters of each card: several leases may have a share of one."""
        found: dict[str, dict[UUID, Meter]] = {}
        for (lease_id, uuid), meter in self._meters.items():
            found.setdefault(self._device_of(uuid), {})[lease_id] = meter
        return found

    def drop(self, device: str) -> None:
        """Forget a device that was removed."""
        self._watches.pop(device, None)
        self._energies.drop(device)

    def _settle(self, devices: Iterable[str], now_ms: int, *, read: bool = False) -> None:
        """Divide among the leases of these devices what was measured of each up to now."""
        if read:
            self._count_energy(devices, now_ms)
        leased = self._by_card()
        devices = self._energies.together(devices, leased)
        for device in devices:
            meters, watch = leased.get(device, {}), self._watches.setdefault(device, Watch())
            if meters:
                since_ms = min(meter.cut_ms for meter in meters.values())
                settle(watch, meters.values(), now_ms, from_ms=since_ms)
                self._energies.add_others(device, watch.others_us_percent)
            watch.others_us_percent = 0
        for device in devices:
            self._energies.divide(device, self._meters)

    def _count_energy(self, devices: Iterable[str], now_ms: int) -> None:
        """Read the counters of what answered the last look."""
        for device in devices:
            watch = self._watches.get(device)
            if watch is not None and watch.fault is not None:
                self._energies.lose(device, self._meters)
        answering = [each for each in devices if each not in self.faulty()]
        self._energies.read(answering, self._meters, now_ms)

    def _look_at(
        self,
        uuid: str,
        watch: Watch,
        meters: Mapping[UUID, Meter],
        now_ms: int,
        frozen: Collection[UUID],
    ) -> list[Finding]:
        if watch.fault is not None and not watch.backoff.is_due(now_ms):
            return []
        wall_us = self._clock.wall_us()
        heed_step(watch, meters, wall_us, self._clock.now_ms())
        try:
            reading = self._gpus.read(uuid, since_us=watch.newest_us or wall_us - FUTURE_US_MAX)
        except GpuFault as fault:
            return self._fail(watch, meters, fault, now_ms)
        findings = self._recover(uuid, watch)
        watch.looked_ms = now_ms
        owners = {each.pid: self._runtime.lease_of(each.pid) for each in reading.residents}
        for lease_id, meter in meters.items():
            if lease_id not in frozen:
                see(meter, lease_id, reading, owners, now_ms=now_ms)
        shared = self._servers(meters, owners)
        weigh(watch, meters, reading.utilisation, wall_us, shared=shared)
        weigh_rest(watch, meters, reading, owners)
        findings += self._worn(uuid, watch, now_ms)
        return findings + self._strays(uuid, watch, reading, owners, meters)

    def _worn(self, uuid: str, watch: Watch, now_ms: int) -> list[Finding]:
        if not watch.worn.is_due(now_ms):
            return []
        try:
            wear = self._gpus.wear(uuid)
        except GpuFault:
            return []  # the next look finds it and says so
        return [Finding(uuid, kind, detail) for kind, detail in watch.worn.news(wear)]

    def _fail(
        self, watch: Watch, meters: Mapping[UUID, Meter], fault: GpuFault, now_ms: int
    ) -> list[Finding]:
        watch.backoff.failed(now_ms)
        for meter in meters.values():
            if meter.present is not None:
                meter.turned = True
            meter.present = meter.over = None
            meter.pids.clear()
        watch.untils.clear()
        watch.kernels_us = watch.lives = None
        new, watch.fault = watch.fault is None, fault
        if fault.uuid is None:
            new, self._driver_fault = self._driver_fault is None, fault
        return [Finding(fault.uuid, fault.kind, fault.detail)] if new else []

    def _recover(self, uuid: str, watch: Watch) -> list[Finding]:
        fault, watch.fault = watch.fault, None
        if fault is None:
            return []
        watch.backoff.succeeded()
        watch.looked_us = watch.newest_us = 0
        if fault.uuid is not None:
            return [Finding(uuid, "recovered", f"answers again after: {fault.detail}")]
        before, self._driver_fault = self._driver_fault, None
        detail = f"the driver answers again after: {fault.detail}"
        return [Finding(None, "recovered", detail)] if before is not None else []

    def _last_busy(self, card: str, watch: Watch, ending: Meter, end_ms: int) -> None:
        """Add the samples since the last look: of work that ends, as far as they are before it."""
        wall_us = self._clock.wall_us()
        now_ms, meters = self._clock.now_ms(), self._by_card()[card]
        end_us = wall_us - max(0, now_ms - end_ms) * 1000
        heed_step(watch, meters, wall_us, now_ms)
        try:
            reading = self._gpus.read(card, since_us=watch.newest_us or wall_us - FUTURE_US_MAX)
        except GpuFault:
            return  # the next look finds it and says so
        owners = {each.pid: self._runtime.lease_of(each.pid) for each in reading.residents}
        shared = self._servers(meters, owners)
        ends = (ending, end_us)
        weigh(watch, meters, reading.utilisation, wall_us, shared=shared, ends=ends)
        weigh_rest(watch, meters, reading, owners)

    def _servers(
        self, meters: Mapping[UUID, Meter], owners: Mapping[int, UUID | None]
    ) -> frozenset[int]:
        """Return the processes of MPS itself, which work for all shares of a card."""
        if not any(meter.by_mps for meter in meters.values()):
            return frozenset()
        return frozenset(
            pid
            for pid, owner in owners.items()
            if owner is None and (self._runtime.name_of(pid) or "").startswith(DAEMONS)
        )

    def _strays(
        self,
        uuid: str,
        watch: Watch,
        reading: Reading,
        owners: Mapping[int, UUID | None],
        meters: Mapping[UUID, Meter],
    ) -> list[Finding]:
        """Find processes that belong to no lease of a card, each told once, and who fills it."""
        found = []
        by_mps = any(meter.by_mps for meter in meters.values())
        strangers = strangers_of(reading, owners, meters, self._name_of, by_mps=by_mps)
        strays = {each.pid: each.said for each in strangers} if meters else {}
        for pid in strays.keys() - watch.strays:
            found.append(Finding(uuid, "stray-process", strays[pid]))
        watch.strays = set(strays)
        others = filling(strangers, self._elsewhere(uuid)) if strangers else ""
        filled = others or self._unclean.get(uuid, "")
        if filled and not watch.filled:
            found.append(Finding(uuid, "card-filled", filled))
        elif watch.filled and not filled:
            found.append(Finding(uuid, "card-free", "no longer: " + watch.filled))
        watch.filled = filled
        return found

    def _elsewhere(self, card: str) -> frozenset[UUID]:
        """Return the leases that are measured on other cards only."""
        here = {lease for lease, uuid in self._meters if card in (uuid, card_of(uuid))}
        here |= {lease for lease, uuid in self._meters if self._device_of(uuid) == card}
        return frozenset(lease for lease, _ in self._meters if lease not in here)

    def filled(self, gpu_uuids: Iterable[str]) -> str:
        """Say which cards of these GPUs others fill at this moment; empty: none.

        The next look tells it, and what is wrong with a card that does not answer.
        """
        found = []
        meters = self._by_card()
        for card in cards_of(gpu_uuids):
            try:
                reading = self._gpus.read(card, since_us=self._clock.wall_us())
            except GpuFault:
                continue
            owners = {each.pid: self._runtime.lease_of(each.pid) for each in reading.residents}
            of_card = meters.get(card, {})
            by_mps = any(map(is_mps, gpu_uuids)) or any(each.by_mps for each in of_card.values())
            strangers = strangers_of(reading, owners, of_card, self._name_of, by_mps=by_mps)
            others = filling(strangers, self._elsewhere(card))
            if filled := others or self._unclean.get(card, ""):
                found.append(f"{card}: {filled}")
                watch = self._watches.setdefault(card, Watch())
                if not watch.filled:
                    self._unsaid.append(Finding(card, "card-filled", filled))
                watch.filled = filled
        return "; ".join(found)
