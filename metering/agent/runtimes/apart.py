"""How far a runtime of processes and containers keeps work apart on this host, and what it runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from uuid import UUID

from ..shares import is_mps
from . import disks, groups
from .confinement import Confinement
from .egress import Reach, Way
from .images import Containers
from .launching import Launch
from .levels import Sandbox, sandbox_of
from .limits import Limits
from .mps.port import Mps
from .port import StartFailed, Work, WorkSpec
from .sources import Fetcher, find
from .users import WorkUsers


class Apart:
    """The part of a runtime that says what it was set up with, as the market asks it."""

    _folder: Path
    _users: WorkUsers | None
    _confinement: Confinement | None
    _containers: Containers | None
    _limits: Limits
    _mps: Mps
    _needs_mps: bool
    _launches: dict[UUID, Launch]
    _works: Mapping[UUID, Work]
    _bare: bool

    has_folders = True

    @property
    def trusts_work(self) -> bool:
        """Tell if whoever set this up vouches for all work that comes."""
        return self._bare and self._users is None and self._confinement is None

    @cached_property
    def _fetcher(self) -> Fetcher | None:
        user = None if self._users is None else self._users.first
        return find(self._confinement, user)[0]

    @property
    def fetches(self) -> bool:
        """Tell if this host fetches what work begins with."""
        return self._fetcher is not None

    def _way_of(self, spec: WorkSpec, confinement: Confinement | None) -> Way | None:
        """Return the way out of a lease's network, for its work or what is fetched for it.

        Raises: StartFailed, NotYet.
        """
        if spec.source is not None and not self.fetches:
            raise StartFailed("this host fetches no source for work")
        goes = confinement if spec.source is None else self._confinement
        return None if goes is None else goes.way()

    @property
    def runs_images(self) -> bool:
        """Tell if work that names a container image can be started."""
        return self._containers is not None and not self._containers.podman.gone

    @property
    def hands_secrets(self) -> bool:
        """Tell if all work here can be handed secrets."""
        return self._confinement is not None if self._bare else self.runs_images

    @property
    def images_only(self) -> bool:
        """Tell if no other work can be started."""
        return not self._bare

    @property
    def sandbox(self) -> Sandbox:
        """Return how far work is kept from the host and from other leases."""
        if self._containers is not None and not self._bare:
            found = self._containers.podman.sandbox(self._limits, disk=self._bounds_disk)
        else:
            found = sandbox_of(self._users, self._confinement, self._limits, disk=self._bounds_disk)
        return replace(found, enforces=found.enforces + self._mps.enforces())

    @property
    def reaches(self) -> Reach:
        """Return how far work here can connect; unconfined it is the host's."""
        if self._bare:
            return "open" if self._confinement is None else self._confinement.reach
        return "none" if self._containers is None else self._containers.podman.reach

    @cached_property
    def _bounds_disk(self) -> bool:
        """Tell if each lease has a file system of its own."""
        if not self._limits.disk_bytes or (self._users is None and self._containers is None):
            return False
        return not disks.usable(self._folder)

    @cached_property
    def _lists_devices(self) -> bool:
        """Tell if control groups keep each lease to its own device files."""
        return self._users is not None and "devices" in groups.kept_by(self._limits)

    def unable(self) -> str:
        """Return why no work can be started here now; empty: it can."""
        gone: list[str] = []
        if self._bare and self._confinement is not None:
            gone = self._confinement.gone
        elif not self._bare and self._containers is not None:
            gone = self._containers.podman.gone
        return f"not on this host any more: {', '.join(gone)}" if gone else ""

    def separates(self, gpu_uuids: Collection[str]) -> bool:
        """Tell if work on these GPUs can run beside that of other tenants."""
        if self._containers is not None and not self._containers.podman.separates:
            return False
        if not self._bare:
            return True
        confinement = self._confined(gpu_uuids)
        shared = self._users is not None and not self._users.alone
        return confinement is not None and confinement.separates and not shared

    def _held(self, *, but: UUID | None = None) -> set[str]:
        """Return the GPUs that work has, or is about to. but: a lease whose own do not count."""
        held = [each.gpu_uuids for each in self._works.values() if each.state != "ended"]
        begun = self._launches.items()
        held += [each.spec.gpu_uuids for lease_id, each in begun if lease_id != but]
        return {uuid for uuids in held for uuid in uuids}

    def _confined(self, gpu_uuids: Collection[str]) -> Confinement | None:
        # MPS's daemon and its clients find each other by what namespaces hide.
        by_mps = self._needs_mps and any(map(is_mps, gpu_uuids))
        return None if by_mps else self._confinement
