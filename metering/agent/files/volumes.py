"""The volumes of leases on this host: brought before the work starts, sent when it saved itself
and when it ended.

One folder of the agent's for each volume of a lease, below `volumes` in its state directory. The
files in it become the work's; which version they are of stays until what the work made of them is
sent, so that an agent that is started again goes on.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
import threading
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from uuid import UUID

from ..clock import Clock
from ..runtimes.port import Coming, Mounted, Runtime, StartFailed, Work
from ..spool import Record
from ..state import LeaseState
from ..wire import Assignment, VolumeMount
from .checkpoint_versions import EVERY_MS, CheckpointVersions, Which
from .manifest import FolderWrong, need_path
from .port import VolumesUplink
from .sending import Sent
from .transit import Patience
from .volume_fetching import FetchVolume
from .volume_sending import SendVolume
from .ways import Way, remove_all_but

log = logging.getLogger(__name__)

MEANWHILE_MS = 15 * 60_000
"""So long a version may take while its work runs; then the next checkpoint has its turn."""


class Volumes:
    """Brings and sends volumes. Every call returns at once.

    uplink: None: it can do neither. known: leases that may go on; the rest is removed. every_ms: a
    volume becomes a version no sooner after the one before, while its work runs.
    """

    def __init__(
        self,
        state_dir: Path,
        *,
        uplink: VolumesUplink | None,
        clock: Clock,
        known: Collection[UUID] = (),
        every_ms: int = EVERY_MS,
    ) -> None:
        self._folder, self._uplink, self._clock = state_dir / "volumes", uplink, clock
        self._coming: dict[Which, Way] = {}
        self._going: dict[Which, Way] = {}
        self._meanwhile = CheckpointVersions(every_ms)
        remove_all_but(known, self._folder)

    def begin(self, assignment: Assignment, *, deadline_ms: int) -> None:
        """Have all volumes of a lease on their way. Raises: StartFailed."""
        for mount in assignment.volumes:
            which = assignment.lease_id, mount.name
            if which in self._coming:
                continue
            if self._uplink is None:
                raise StartFailed("this host's agent brings no volumes")
            way = self._coming[which] = Way()
            patience = Patience(self._clock, way.stop, until_ms=deadline_ms)
            into, uplink = self._place(*which), self._uplink
            fetch = FetchVolume(assignment.lease_id, into, uplink, patience, name=mount.name)
            way.begin(fetch.run, f"volume {mount.name}", what=fetch.what)

    def came(self, assignment: Assignment) -> tuple[Mounted, ...]:
        """Return the volumes of a lease once all files of them are there.

        Raises: Coming, StartFailed.
        """
        there = []
        for mount in assignment.volumes:
            way = self._coming[assignment.lease_id, mount.name]
            if way.failed:
                raise StartFailed(way.failed)
            if not isinstance(way.came, Path):
                raise Coming(f"the files of volume {mount.name} are on their way")
            try:
                names = need_path(mount.path)
            except FolderWrong as wrong:
                raise StartFailed(f"volume {mount.name} has no place: {wrong}") from wrong
            there.append(Mounted(names, way.came, writable=mount.writable))
        return tuple(there)

    def keep_up(
        self, works: Mapping[UUID, Work], leases: Mapping[UUID, LeaseState], runtime: Runtime
    ) -> None:
        """Send what running work says that it saved in its volumes."""
        now_ms = self._clock.now_ms()
        until_ms = now_ms + MEANWHILE_MS

        def begin(lease_id: UUID, mount: VolumeMount, way: Way, quiet: bool) -> bool:
            return self._begin(
                lease_id,
                mount,
                way,
                runtime,
                until_ms=until_ms,
                last_ms=until_ms,
                last=False,
                quiet=quiet,
            )

        for lease_id, lease in leases.items():
            work = works.get(lease_id)
            if work is not None and work.state == "running" and not lease.ended:
                self._meanwhile.turn(work, lease, now_ms=now_ms, begin=begin)

    def kept_ms(self, work: Work, lease: LeaseState) -> int | None:
        """Return up to when running work is safe, if it says so and its volumes have it."""
        return self._meanwhile.kept_ms(work, lease) if self._uplink else work.saved_ms

    def sends(self, lease: LeaseState) -> bool:
        """Tell if work is over whose volumes are not decided yet."""
        return any(self._owed(lease))

    def send(
        self, lease_id: UUID, lease: LeaseState, runtime: Runtime, *, until_ms: int, last_ms: int
    ) -> list[Record]:
        """Send what the work of a lease that is over made of its volumes; return what is decided.

        until_ms: then it is given up; last_ms: until then that is told.
        """
        decided = []
        for mount in self._owed(lease):
            how = self._sent(lease_id, mount, runtime, until_ms=until_ms, last_ms=last_ms)
            if how is not None:
                log.info("lease %s: volume %s: %s", lease_id, mount.name, how)
                said = {"t": "volume", "lease": str(lease_id), "name": mount.name, "how": how}
                decided.append(said)
        return decided

    def _owed(self, lease: LeaseState) -> list[VolumeMount]:
        if not lease.ended or lease.ran_until_ms is None or self._uplink is None:
            return []
        return [
            each for each in lease.terms.volumes if each.writable and each.name not in lease.volumes
        ]

    def _sent(
        self, lease_id: UUID, mount: VolumeMount, runtime: Runtime, *, until_ms: int, last_ms: int
    ) -> str | None:
        which = lease_id, mount.name
        way = self._going.get(which)
        if way is None:
            if not self._meanwhile.stop(which):
                return None  # it says which version comes next
            way = self._going[which] = Way()
            if not self._begin(lease_id, mount, way, runtime, until_ms=until_ms, last_ms=last_ms):
                return "lost"
        return "lost" if way.failed else None if way.came is None else str(way.came)

    def _begin(
        self,
        lease_id: UUID,
        mount: VolumeMount,
        way: Way,
        runtime: Runtime,
        *,
        until_ms: int,
        last_ms: int,
        last: bool = True,
        quiet: bool = False,
    ) -> bool:
        """Begin to send a volume as it is now; tell if its files are on this host."""
        folder = runtime.folder_of(lease_id)
        if folder is None or self._uplink is None:
            return False
        send = SendVolume(
            lease_id,
            folder,
            (),
            None,
            self._uplink,
            Patience(self._clock, way.stop, until_ms=until_ms),
            Patience(self._clock, way.stop, until_ms=last_ms),
            name=mount.name,
            path=mount.path,
            fetched=self._place(lease_id, mount.name),
            last=last,
            quiet=quiet,
        )

        def run() -> Sent:
            try:
                return send.run()
            finally:
                way.read_ms = send.read_ms

        way.begin(run, f"volume {mount.name}")
        return True

    def let_start(self, lease_id: UUID) -> None:
        """Know that the files are the work's now, or nobody's; which version it was stays."""
        for which in [each for each in self._coming if each[0] == lease_id]:
            way = self._coming.pop(which)
            way.stop.set()
            for left in ("files", "parts", "laid"):
                _remove(self._place(*which) / left)

    def drop(self, lease_id: UUID) -> None:
        """Stop what is under way for a lease, and keep nothing of it."""
        for ways in (self._coming, self._going):
            for which in [each for each in ways if each[0] == lease_id]:
                ways.pop(which).stop.set()
        self._meanwhile.drop(lease_id)
        _remove(self._folder / str(lease_id))

    def close(self) -> None:
        """Stop everything; what came so far stays, for the next start."""
        self._meanwhile.close()
        for way in [*self._coming.values(), *self._going.values()]:
            way.stop.set()

    def _place(self, lease_id: UUID, name: str) -> Path:
        # By its hash: the name is the consumer's, and is no path of this host.
        return self._folder / str(lease_id) / hashlib.sha256(name.encode()).hexdigest()[:16]


def _remove(path: Path) -> None:
    """Remove a folder beside: it may be large."""
    if path.exists():
        work = partial(shutil.rmtree, path, ignore_errors=True)
        threading.Thread(target=work, name="files", daemon=True).start()
