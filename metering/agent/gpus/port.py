"""What the agent asks of the GPUs of its host."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from ..wire import Gpu

FaultKind = Literal["gpu-lost", "driver-mismatch"]
BusyBy = Literal["processes", "processes and accounts", "instance", ""]
"""How it is measured how busy a device is: by the driver's samples of each process, with the
accounts of those that ended; of a MIG instance as a whole; not at all."""
MigMode = Literal["none", "off", "on"]
"""Of a card: it knows no MIG, MIG mode is off, or on."""


class GpuFault(Exception):
    """A GPU, or the driver as a whole (uuid None), did not answer."""

    def __init__(self, kind: FaultKind, detail: str, uuid: str | None = None) -> None:
        self.kind: FaultKind = kind
        self.detail = detail
        self.uuid = uuid
        super().__init__(f"{uuid or 'driver'}: {kind}: {detail}")


@dataclass(frozen=True, slots=True)
class Resident:
    """A process that holds memory or a context on a GPU. memory_mib None: the driver can't say."""

    pid: int
    memory_mib: int | None


@dataclass(frozen=True, slots=True)
class Utilisation:
    """The share of time, in percent, that kernels of `pid` ran in the driver's period that ended
    at `until_us` (wall clock, microseconds). One entry per process at most: its latest period.
    """

    pid: int
    until_us: int
    percent: int


@dataclass(frozen=True, slots=True)
class Life:
    """A process that ended, as the driver accounted it. start_us: its start on the wall clock.

    percent: of its life in which its kernels ran. length_ms 0: it still runs.
    """

    pid: int
    start_us: int
    length_ms: int
    percent: int


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at one GPU.

    utilisation: None where the driver cannot measure it (MIG), which is not "idle"; empty: idle.
    pids_are_ours: False when the process ids may be of another pid namespace, so that an absent
        process proves nothing.
    kernels_us: for how long anybody's kernels ran on the device, counted up from any moment; told
        where it cannot be said by process; None: not told.
    ended: processes that ended last, where the driver accounts them.
    clients_listed: False when the driver cannot tell which processes use the GPU through MPS.
    """

    residents: tuple[Resident, ...]
    utilisation: tuple[Utilisation, ...] | None
    pids_are_ours: bool = True
    clients_listed: bool = True
    kernels_us: int | None = None
    ended: tuple[Life, ...] = ()


@dataclass(frozen=True, slots=True)
class Energy:
    """What a card has taken since its driver was loaded, in millijoules.

    slices, of: how much of the card's compute the device is; 1 of 1: it is the card.
    """

    card_uuid: str
    millijoules: int
    slices: int = 1
    of: int = 1


@dataclass(frozen=True, slots=True)
class Wear:
    """What a card tells of itself besides errors as they happen. Empty: all is well, or not told.

    memory: why its memory is not to be trusted before a reset, or at all. slowed: what its hardware
    holds its clocks down for.
    """

    memory: str = ""
    slowed: str = ""


@dataclass(frozen=True, slots=True)
class Link:
    """How a card is joined to its host. replays: packets sent anew, ever. 0: not known."""

    lanes: int = 0
    generation: int = 0
    replays: int = 0


@dataclass(frozen=True, slots=True)
class Xid:
    """An error that the driver announced by its XID number."""

    uuid: str
    number: int


class InstanceRefused(Exception):
    """A MIG instance cannot be made, and trying again is no use; the text says why."""


class InstanceBusy(Exception):
    """A MIG instance cannot be made or removed yet: something still uses it."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A MIG instance. number: of the GPU instance on its card. first, last: its memory slices.

    uuid: what CUDA and NVML call it; None: it has no compute instance, so nothing can use it.
    """

    card_uuid: str
    number: int
    profile: str
    first: int
    last: int
    uuid: str | None


@dataclass(frozen=True, slots=True)
class CardMode:
    """A card and whether MIG can divide it now. instances: how many are there, whoever made them.

    allowed: this process may make some.
    """

    uuid: str
    model: str
    mode: MigMode
    instances: int
    allowed: bool


class Gpus(Protocol):
    """The GPUs of a host, named by UUID and never by index."""

    def inventory(self, made: Collection[str] = ()) -> tuple[Gpu, ...]:
        """Return every leasable GPU in the driver's order.

        made: UUIDs of the MIG instances that this agent made: they are no GPUs of the inventory. A
        card in MIG mode that has no others is one, if this process may make instances on it.
        A GPU that does not answer is left out. Raises: GpuFault, when the driver does not answer.
        """
        ...

    def read(self, uuid: str, *, since_us: int) -> Reading:
        """Look at one GPU. Only utilisation newer than `since_us` is returned.

        Raises: GpuFault. A later call tries again from the start, so a GPU can come back.
        """
        ...

    def memory_used(self, uuid: str) -> int:
        """Return the memory in use on a card, in MiB, whoever has it; the driver's own counts.

        Raises: GpuFault.
        """
        ...

    def busy_by(self, uuid: str) -> BusyBy:
        """Return how it is measured how busy a device is. Raises: GpuFault."""
        ...

    def energy(self, uuid: str) -> Energy | None:
        """Return the counter of the card that a device is, or is a part of.

        None: the card has none. Raises: GpuFault.
        """
        ...

    def wear(self, uuid: str) -> Wear:
        """Return how worn a card is, as far as it knows it of itself. Raises: GpuFault."""
        ...

    def link(self, uuid: str) -> Link | None:
        """Return a card's link to its host; None: it does not say. Raises: GpuFault."""
        ...

    def xids(self) -> Sequence[Xid]:
        """Return the errors announced since the last call. Does not wait and does not raise."""
        ...

    def modes(self) -> tuple[CardMode, ...]:
        """Return what MIG can do with each card. Raises: GpuFault."""
        ...

    def instances(self, card_uuid: str) -> tuple[Instance, ...]:
        """Return all MIG instances of a card, whoever made them. Raises: GpuFault."""
        ...

    def make_instance(self, card_uuid: str, profile: str, first: int, last: int) -> Instance:
        """Make a MIG instance at its place, ready for work.

        Raises: InstanceRefused, InstanceBusy: nothing was made; GpuFault: that is not known.
        """
        ...

    def remove_instance(self, instance: Instance) -> None:
        """Remove a MIG instance; nothing to do where it is gone. Raises: InstanceBusy, GpuFault."""
        ...

    def close(self) -> None:
        """Let go of the driver."""
        ...
