"""GPUs by NVIDIA's NVML, which is touched here and in nvml_mig only. No setting is changed.

Facts it rests on (NVML reference and users' reports): process utilisation answers at most one
entry per process, stamped with its own time; NOT_FOUND there means idle; it is not supported
with MIG on; garbage above 100 % and stale entries happen. Weighing is the sampler's work.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any

from ..wire import Gpu
from . import nvml_mig
from .nvml_accounting import Accounting
from .nvml_energy import energy_of
from .nvml_gpm import Gpm
from .nvml_link import link_of
from .nvml_wear import wear_of
from .port import (
    BusyBy,
    CardMode,
    Energy,
    FaultKind,
    GpuFault,
    Instance,
    InstanceRefused,
    Link,
    Reading,
    Resident,
    Utilisation,
    Wear,
    Xid,
)

MIG = "MIG-"
XIDS_PER_CALL_MAX = 64
INITIAL_PID_NAMESPACE = 0xEFFFFFFC
"""The inode that Linux gives the pid namespace of the host itself (PROC_PID_INIT_INO)."""


def pids_are_the_hosts() -> bool:
    """Return whether this process sees the process ids that the driver speaks of."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino == INITIAL_PID_NAMESPACE
    except OSError:
        return False


class NvmlGpus:
    """The GPUs that the driver of this host shows.

    pids_are_ours: see Reading; by default found out from this process's pid namespace.
    may_divide: whether this process may make MIG instances; by default if it is root's.
    ticking: microseconds between which the load of an instance is measured.
    """

    def __init__(
        self,
        *,
        pids_are_ours: bool | None = None,
        may_divide: bool | None = None,
        ticking: Callable[[], int] = lambda: time.monotonic_ns() // 1_000,
    ) -> None:
        # Imported here, so that --help and --simulate work on a host without the package.
        import pynvml

        self._nvml: Any = pynvml
        self._pids_are_ours = pids_are_the_hosts() if pids_are_ours is None else pids_are_ours
        self._may_divide = os.geteuid() == 0 if may_divide is None else may_divide
        self._handles: dict[str, Any] = {}
        self._unmeasured: set[str] = set()
        self._gpm, self._accounting = Gpm(pynvml, ticking=ticking), Accounting(pynvml)
        self._events: Any = None
        self._started = False
        self._lock = threading.RLock()

    def inventory(self, made: Collection[str] = ()) -> tuple[Gpu, ...]:
        nvml = self._nvml
        with self._lock:
            try:
                self._start()
                driver = nvml.nvmlSystemGetDriverVersion()
                count = nvml.nvmlDeviceGetCount()
            except nvml.NVMLError as error:
                raise self._fault(error, None) from error
            cards = [card for index in range(count) if (card := self._card(index)) is not None]
            groups = self._nvlink_groups([handle for handle, _ in cards])
            found: list[Gpu] = []
            for (handle, uuid), group in zip(cards, groups, strict=True):
                try:
                    found += self._leasable(handle, uuid, driver, group, made)
                except nvml.NVMLError:
                    continue
            return tuple(found)

    def read(self, uuid: str, *, since_us: int) -> Reading:
        nvml = self._nvml
        with self._lock:
            try:
                self._start()
                handle = self._handles.get(uuid)
                if handle is None:
                    handle = self._handles[uuid] = nvml.nvmlDeviceGetHandleByUUID(uuid)
                processes = {p.pid: p for p in nvml.nvmlDeviceGetComputeRunningProcesses(handle)}
                clients = self._clients(handle)
                utilisation = self._utilisation(handle, uuid, since_us)
                alone = utilisation is None and uuid.startswith(MIG)
                kernels_us = self._gpm.busy_us(handle, uuid) if alone else None
                ended = self._accounting.ended(handle, uuid) if utilisation is not None else ()
            except nvml.NVMLError as error:
                if error.value == nvml.NVML_ERROR_NO_PERMISSION:
                    # Of a card in MIG mode only root is told what runs on it.
                    return Reading((), None, pids_are_ours=False)
                raise self._fault(error, uuid) from error
        return Reading(
            residents=tuple(
                Resident(p.pid, None if p.usedGpuMemory is None else p.usedGpuMemory >> 20)
                for p in (processes | (clients or {})).values()
            ),
            utilisation=utilisation,
            pids_are_ours=self._pids_are_ours,
            clients_listed=clients is not None,
            kernels_us=kernels_us,
            ended=ended,
        )

    def memory_used(self, uuid: str) -> int:
        used: int = self._on_card(uuid, lambda nvml, card: nvml.nvmlDeviceGetMemoryInfo(card).used)
        return used >> 20

    def busy_by(self, uuid: str) -> BusyBy:
        found: BusyBy = self._on_card(uuid, self._busy_by, uuid)
        return found

    def _busy_by(self, nvml: Any, device: Any, uuid: str) -> BusyBy:
        if self._utilisation(device, uuid, time.time_ns() // 1_000) is not None:
            accounts = self._accounting.is_on(device, uuid)
            return "processes and accounts" if accounts else "processes"
        try:
            return "instance" if uuid.startswith(MIG) and self._gpm.measures(device) else ""
        except nvml.NVMLError:
            return ""

    def energy(self, uuid: str) -> Energy | None:
        found: Energy | None = self._on_card(uuid, energy_of, uuid)
        return found

    def wear(self, uuid: str) -> Wear:
        found: Wear = self._on_card(uuid, wear_of)
        return found

    def link(self, uuid: str) -> Link | None:
        found: Link | None = self._on_card(uuid, link_of)
        return found

    def xids(self) -> Sequence[Xid]:
        nvml = self._nvml
        found: list[Xid] = []
        with self._lock:
            for _ in range(XIDS_PER_CALL_MAX):
                if self._events is None:
                    break
                try:
                    event = nvml.nvmlEventSetWait_v2(self._events, 0)
                    if event.eventType & nvml.nvmlEventTypeXidCriticalError:
                        uuid = nvml.nvmlDeviceGetUUID(event.device)
                        found.append(Xid(uuid, int(event.eventData)))
                except nvml.NVMLError:
                    break  # TIMEOUT: nothing more; anything else shows in read() as well
        return found

    def modes(self) -> tuple[CardMode, ...]:
        nvml = self._nvml
        with self._lock:
            try:
                self._start()
                count = nvml.nvmlDeviceGetCount()
            except nvml.NVMLError as error:
                raise self._fault(error, None) from error
            found = []
            for handle, uuid in filter(None, map(self._card, range(count))):
                mode = nvml_mig.mode_of(nvml, handle)
                there = len(nvml_mig.devices_of(nvml, handle)) if mode == "on" else 0
                model = nvml.nvmlDeviceGetName(handle)
                found.append(CardMode(uuid, model, mode, there, self._may_divide))
            return tuple(found)

    def instances(self, card_uuid: str) -> tuple[Instance, ...]:
        found: tuple[Instance, ...] = self._on_card(card_uuid, nvml_mig.instances_of, card_uuid)
        return found

    def make_instance(self, card_uuid: str, profile: str, first: int, last: int) -> Instance:
        made: Instance = self._on_card(card_uuid, nvml_mig.make, card_uuid, profile, first, last)
        self._handles.pop(made.uuid or "", None)
        return made

    def remove_instance(self, instance: Instance) -> None:
        self._handles.pop(instance.uuid or "", None)
        self._gpm.forget(instance.uuid or "")
        self._on_card(instance.card_uuid, nvml_mig.remove, instance)

    def _on_card(self, card_uuid: str, do: Any, *arguments: Any) -> Any:
        nvml = self._nvml
        with self._lock:
            try:
                self._start()
                return do(nvml, nvml.nvmlDeviceGetHandleByUUID(card_uuid), *arguments)
            except nvml.NVMLError as error:
                of_mig = getattr(do, "__module__", "") == nvml_mig.__name__
                if error.value == nvml.NVML_ERROR_NO_PERMISSION and of_mig:
                    raise InstanceRefused(nvml_mig.NOT_ROOT) from error
                raise self._fault(error, card_uuid) from error

    def close(self) -> None:
        with self._lock:
            self._stop()

    def _start(self) -> None:
        if self._started:
            return
        self._nvml.nvmlInit()
        self._started = True
        self._watch_xids()
        self._gpm.resume()

    def _stop(self) -> None:
        if not self._started:
            return
        self._started = False
        self._handles.clear()
        self._unmeasured.clear()
        self._gpm.pause()
        self._accounting.ask_again()
        events, self._events = self._events, None
        for release, arguments in (
            (self._nvml.nvmlEventSetFree, [events] if events is not None else None),
            (self._nvml.nvmlShutdown, []),
        ):
            if arguments is None:
                continue
            try:
                release(*arguments)
            except self._nvml.NVMLError:
                continue  # the driver is gone, which is what we wanted

    def _watch_xids(self) -> None:
        nvml = self._nvml
        try:
            events = nvml.nvmlEventSetCreate()
            for index in range(nvml.nvmlDeviceGetCount()):
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, events)
        except nvml.NVMLError:
            return  # no events on this host (WSL, some virtual GPUs): read() still finds faults
        self._events = events

    def _clients(self, handle: Any) -> dict[int, Any] | None:
        """Return the processes that use a GPU through MPS; None where the driver cannot tell."""
        nvml = self._nvml
        try:
            return {p.pid: p for p in nvml.nvmlDeviceGetMPSComputeRunningProcesses(handle)}
        except nvml.NVMLError:
            return None  # an old driver, or an instance of MIG; a lost GPU has failed before

    def _utilisation(self, handle: Any, uuid: str, since_us: int) -> tuple[Utilisation, ...] | None:
        nvml = self._nvml
        if uuid in self._unmeasured:
            return None
        try:
            samples = nvml.nvmlDeviceGetProcessUtilization(handle, since_us)
        except nvml.NVMLError as error:
            if error.value in (nvml.NVML_ERROR_NOT_FOUND, nvml.NVML_SUCCESS):
                return ()
            if error.value in (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_NO_PERMISSION):
                self._unmeasured.add(uuid)
                return None
            raise
        return tuple(Utilisation(s.pid, s.timeStamp, s.smUtil) for s in samples)

    def _fault(self, error: Any, uuid: str | None) -> GpuFault:
        """Translate an NVML error, and forget what must be asked for anew before the next try."""
        nvml = self._nvml
        kind: FaultKind = "gpu-lost"
        self._handles.pop(uuid or "", None)
        if error.value == nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
            kind, uuid = "driver-mismatch", None
        if error.value in (
            nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
            nvml.NVML_ERROR_UNINITIALIZED,
            nvml.NVML_ERROR_DRIVER_NOT_LOADED,
            nvml.NVML_ERROR_GPU_IS_LOST,
        ):
            self._stop()
        if kind == "gpu-lost":
            with suppress(nvml.NVMLError):
                self._start()  # at once, so that what is counted of other cards goes on
        return GpuFault(kind, str(error), uuid)

    def _card(self, index: int) -> tuple[Any, str] | None:
        try:
            handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
            return handle, self._nvml.nvmlDeviceGetUUID(handle)
        except self._nvml.NVMLError:
            return None  # one lost card must not hide the others

    def _leasable(
        self, card: Any, uuid: str, driver: str, group: str | None, made: Collection[str]
    ) -> list[Gpu]:
        nvml = self._nvml
        major, minor = nvml.nvmlDeviceGetCudaComputeCapability(card)
        model = nvml.nvmlDeviceGetName(card)

        def gpu(own_uuid: str, handle: Any, profiles: tuple[str, ...]) -> Gpu:
            return Gpu(
                uuid=own_uuid,
                model=model,
                memory_mib=nvml.nvmlDeviceGetMemoryInfo(handle).total >> 20,
                compute_capability=f"{major}.{minor}",
                driver=driver,
                nvlink_group=None if in_mig_mode else group,
                mig_enabled=in_mig_mode,
                mig_profiles=profiles,
                card_uuid=uuid if profiles else None,
            )

        in_mig_mode = nvml_mig.mode_of(nvml, card) == "on"
        if not in_mig_mode:
            return [gpu(uuid, card, ())]
        devices = set(nvml_mig.devices_of(nvml, card).values())
        if self._may_divide and devices <= {*made}:
            # Nobody else divides it, so the market may.
            return [gpu(uuid, card, ())]
        # With MIG on, CUDA cannot use the card itself, only its instances.
        found = []
        for slot in range(nvml.nvmlDeviceGetMaxMigDeviceCount(card)):
            try:
                instance = nvml.nvmlDeviceGetMigDeviceHandleByIndex(card, slot)
                shape = nvml.nvmlDeviceGetAttributes(instance)
                slices, compute = shape.gpuInstanceSliceCount, shape.computeInstanceSliceCount
                profile = f"{slices}g.{round(shape.memorySizeMB / 1024)}gb"
                if compute < slices:
                    profile = f"{compute}c.{profile}"  # several share this instance's memory
                device = nvml.nvmlDeviceGetUUID(instance)
                if device not in made:
                    found.append(gpu(device, instance, (profile,)))
            except nvml.NVMLError:
                continue  # an empty slot
        return found

    def _nvlink_groups(self, handles: list[Any]) -> list[str | None]:
        """Return for each card the name of the set of cards it reaches by NVLink."""
        nvml = self._nvml
        group_of = list(range(len(handles)))
        for left in range(len(handles)):
            for right in range(left + 1, len(handles)):
                try:
                    status = nvml.nvmlDeviceGetP2PStatus(
                        handles[left], handles[right], nvml.NVML_P2P_CAPS_INDEX_NVLINK
                    )
                except nvml.NVMLError:
                    continue
                if status == nvml.NVML_P2P_STATUS_OK:
                    old, new = group_of[right], group_of[left]
                    group_of = [new if group == old else group for group in group_of]
        return [f"nvlink-{g}" if group_of.count(g) > 1 else None for g in group_of]
