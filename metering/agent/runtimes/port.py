"""What the agent asks of whatever runs leased work."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable
from uuid import UUID

from ..reconcile import Terms
from ..shares import cards_of
from ..wire import Assignment
from .egress import Reach
from .levels import Sandbox
from .refusals import NotYet as NotYet
from .sources import Source, source_of
from .used import Used

WorkState = Literal["starting", "running", "ending", "ended"]


class StartFailed(Exception):
    """The work could not be started; the text says why and is shown to the consumer."""


class Coming(NotYet):
    """The work cannot be started yet: what it needs is on its way to this host."""


@dataclass(frozen=True, slots=True)
class Mounted:
    """A volume's files, in a folder of the agent's, that work finds in its own place.

    names: of its path there, each the name of a folder, none of them `..`.
    """

    names: tuple[str, ...]
    folder: Path
    writable: bool


@dataclass(frozen=True, slots=True)
class Brought:
    """What work is given to begin with: the folders of its inputs and of its volumes."""

    inputs: Path | None = None
    volumes: tuple[Mounted, ...] = ()


NOTHING_BROUGHT = Brought()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkSpec:
    """What to run for a lease: a command with its own environment, on the GPUs named.

    device_uuids: what the driver calls those; empty: as the ids say. grace_seconds: between the
    request to end and the kill, as it is told to the work. stop_at_ms, kill_at_ms: as of `limit`.
    image: the container image it runs in, by its digest; empty: it runs as a process.
    secrets: values by name; secret_variables: which of them are variables of it as well.
    source: what is fetched into its own folder before it begins.
    inputs: a folder of the agent's with the files that the work finds in its own: moved there.
    volumes: the same of its volumes, each moved to its path.
    """

    lease_id: UUID
    gpu_uuids: tuple[str, ...]
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    device_uuids: tuple[str, ...] = ()
    grace_seconds: int = 0
    stop_at_ms: int | None = None
    kill_at_ms: int | None = None
    inputs: Path | None = None
    volumes: tuple[Mounted, ...] = ()
    image: str = ""
    secrets: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    secret_variables: tuple[str, ...] = ()
    source: Source | None = None

    @classmethod
    def of(
        cls,
        assignment: Assignment,
        terms: Terms,
        devices: tuple[str, ...],
        brought: Brought = NOTHING_BROUGHT,
    ) -> WorkSpec:
        """Return what to run for an assignment; devices: what the driver calls its GPUs."""
        return cls(
            lease_id=assignment.lease_id,
            gpu_uuids=assignment.gpu_uuids,
            command=assignment.command,
            environment=assignment.environment,
            device_uuids=devices,
            grace_seconds=assignment.grace_seconds,
            stop_at_ms=terms.wind_down_ms,
            kill_at_ms=terms.deadline_ms,
            image=assignment.image,
            secret_variables=assignment.secret_variables,
            inputs=brought.inputs,
            volumes=brought.volumes,
            source=source_of(assignment),
        )

    def handed(self, values: Mapping[str, bytes], names: Collection[str]) -> WorkSpec:
        """Return it with the values of secrets. names: the work's own; another is its source's."""
        source = self.source
        if source is None or not source.secret:
            return replace(self, secrets=values)
        own = {name: value for name, value in values.items() if name in names}
        return replace(self, secrets=own, source=replace(source, value=values[source.secret]))

    @property
    def devices(self) -> tuple[str, ...]:
        """Return what the driver calls the GPUs, each once, in their order."""
        return self.device_uuids or cards_of(self.gpu_uuids)

    @property
    def read_only(self) -> tuple[str, ...]:
        """Return the paths, below the place where it starts, that the work only reads."""
        return tuple("/".join(each.names) for each in self.volumes if not each.writable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The work of one lease as it stands.

    state: `ending` is between the death of the command and the record of its end.
    started_ms: when the command began; 0 when that is not known.
    ended_ms: when it and all it left behind were gone; None when that is not known (the host was
        restarted meanwhile).
    exit_code: of the command, negative for a signal; None when not known.
    lost: it ended without our doing or its own (its keeper was killed, the host restarted).
    stopped: it was asked to end, by the agent or by its limit alone.
    saved_ms: up to when it says that it is safe; None: it said nothing. alive_ms: by its own
        heartbeat, from when until when it is alive without a break; None: it has none.
    coming: what it needs that is on its way, so that it has not begun. commit: which one its source
        was resolved to, where it has one; left_out: what of that did not come.
    device_uuids: what the driver calls its GPUs; empty: as their ids say.
    """

    lease_id: UUID
    gpu_uuids: tuple[str, ...]
    state: WorkState
    started_ms: int
    ended_ms: int | None = None
    exit_code: int | None = None
    lost: bool = False
    detail: str = ""
    stopped: bool = False
    saved_ms: int | None = None
    alive_ms: tuple[int, int] | None = None
    device_uuids: tuple[str, ...] = ()
    coming: str = ""
    commit: str = ""
    left_out: tuple[str, ...] = ()

    @property
    def devices(self) -> tuple[str, ...]:
        """Return what the driver calls its GPUs, each once, in their order."""
        return self.device_uuids or cards_of(self.gpu_uuids)


class Runtime(Protocol):
    """Runs the work of leases; one piece of work per lease, ever.

    trusts_work: whoever set this up vouches for all work that comes, or it is only pretended.
    hands_secrets: work can be handed secrets that touch no disk and no command line.
    has_folders: work finds files that are brought, and leaves files; see `folder_of`.
    """

    @property
    def hands_secrets(self) -> bool: ...

    @property
    def trusts_work(self) -> bool: ...

    @property
    def has_folders(self) -> bool: ...

    @property
    def sandbox(self) -> Sandbox:
        """Return how far work on whole cards is kept from the host and from other leases."""
        ...

    @property
    def runs_images(self) -> bool:
        """Tell if work that names a container image can be started."""
        ...

    @property
    def images_only(self) -> bool:
        """Tell if no other work can be started."""
        ...

    @property
    def reaches(self) -> Reach:
        """Return how far work can connect: nowhere, to what the owner lists, or outwards."""
        ...

    def separates(self, gpu_uuids: Collection[str]) -> bool:
        """Tell if work on these GPUs can run beside that of other tenants.

        Neither then sees, reaches or changes the other.
        """
        ...

    def start(self, spec: WorkSpec) -> Work:
        """Start the work, or return it when this lease has some already.

        Raises: StartFailed, NotYet.
        """
        ...

    def limit(self, lease_id: UUID, *, stop_at_ms: int, kill_at_ms: int) -> None:
        """Say when the work is asked to end and when it is killed; the last word holds.

        It ends so without another call, also when nobody is left who could make one. Work that
        was asked to end stays asked.
        """
        ...

    def works(self) -> Sequence[Work]:
        """Return all work not forgotten, also what an earlier run of the agent started.

        Work given as running was alive after this call began.
        """
        ...

    def notify(self, lease_id: UUID, *, stop_at_ms: int) -> bool:
        """Tell the work that it will be stopped; returns whether a process took the signal."""
        ...

    def terminate(self, lease_id: UUID) -> None:
        """Ask every process of the work to end."""
        ...

    def kill(self, lease_id: UUID) -> None:
        """End every process of the work at once."""
        ...

    def output_of(self, lease_id: UUID) -> Path | None:
        """Return the folder with `stdout.log` and `stderr.log` of work that is not forgotten.

        None where its output is kept nowhere. `output.read_output` reads them.
        """
        ...

    def forget(self, lease_id: UUID) -> None:
        """Remove what ended work left on this host. Work that has not ended is not forgotten."""
        ...

    def folder_of(self, lease_id: UUID) -> Path | None:
        """Return the folder in which the work of a lease runs or ran; None: it has none here.

        It is there until the lease is forgotten, and belongs to the work: nothing in it is to be
        trusted.
        """
        ...

    def lease_of(self, pid: int) -> UUID | None:
        """Return the lease whose work the process belongs to; None for every other process."""
        ...

    def name_of(self, pid: int) -> str | None:
        """Return the name of a living process; None when there is none of this id."""
        ...

    def used(self) -> Mapping[UUID, Used]:
        """Return what running work has used so far, by lease; of the others it is not known."""
        ...

    def holders(self) -> Mapping[str, Sequence[int]]:
        """Return the processes of running work by the driver's name of what they use.

        For simulated GPUs.
        """
        ...


@runtime_checkable
class Wiping(Protocol):
    """A runtime that knows what it removed of a lease's files."""

    def wiped(self, lease_id: UUID) -> int | None:
        """Return, once, the bytes of files that were removed with a lease; None: not yet."""
        ...


@runtime_checkable
class Startable(Protocol):
    """A runtime that may lose what it starts work with, while the agent runs."""

    def unable(self) -> str:
        """Return why no work can be started here now; empty: it can. Asks nobody, waits never."""
        ...


@runtime_checkable
class Accounted(Protocol):
    """A runtime whose work is accounted for elsewhere too, such as by a cluster."""

    def findings(self) -> Sequence[tuple[str, str]]:
        """Return where that differs from what was measured: a GPU and in what; each once."""
        ...
