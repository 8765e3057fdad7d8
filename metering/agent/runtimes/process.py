"""Leased work as processes of this host, plain or in containers, each under a keeper (keeper.py).

One folder per lease: spec.json, keeper.lock, deadline.json, started.json, exit.json, notice.json,
the bounded stdout.log and stderr.log, and the work's own: `work/`, in which the command runs, and
`tmp/`. It survives the agent. The work can write its own two and read the notice; no other lease
can so much as enter.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from ..clock import Clock
from ..shares import cards_of, is_mps
from . import groups, keeper, saved
from .apart import Apart
from .beside import Beside
from .confinement import Confinement
from .device_lists import devices_of, limit
from .family import Stat, descendants, kill_all, signal_all, stat_of
from .images import Containers
from .inside import Entered, Tops
from .judging import KEEPER_KILLED, judged, unbegun
from .launching import CHECKPOINT, Launch, spawn
from .leaving import Leaves, Leavings, Left
from .limits import LIMITS, Limits
from .mps.owners import OwnersDaemon
from .mps.port import Mps
from .noted import end_noted, noted_in
from .owning import Owners
from .port import Coming, NotYet, StartFailed, Work, WorkSpec
from .records import catches, is_locked, read
from .source_first import MARK
from .used import Used, Uses
from .users import WorkUser, WorkUsers, make_passable, named

OUTPUT_BYTES_MAX = 64 * 1024 * 1024
"""Of each stream of a lease: an eighth of it is the head."""
SAID_SECONDS_MAX = 1.0
"""So long a keeper is waited for that starts a command; then it shows later what came of it."""


class ProcessRuntime(Apart, Entered, Leaves):
    """Runs commands as processes.

    folder: where the leases' folders are; made if absent.
    users: accounts of which each lease has one to itself. account: name of one that all work
    shares, one tenant at a time. Without either it runs as the agent's own user.
    confinement: bwrap around the work; without it and without accounts the work is trusted.
    mps: the control daemons of MPS, which shares by MPS need; without `needs_mps` (made-up GPUs)
        they do without.
    containers: podman, for work that names an image. bare: work without one is run as well.
    """

    def __init__(
        self,
        folder: Path,
        *,
        clock: Clock,
        account: str | None = None,
        users: WorkUsers | None = None,
        confinement: Confinement | None = None,
        limits: Limits = LIMITS,
        output_bytes_max: int = OUTPUT_BYTES_MAX,
        mps: Mps | None = None,
        needs_mps: bool = True,
        containers: Containers | None = None,
        bare: bool = True,
    ) -> None:
        self._folder = folder / "leases"
        self._ended = folder / "ended"
        for each in (self._folder, self._ended):
            make_passable(each)
        self._clock = clock
        self._users = users
        if account is not None:
            self._users = WorkUsers([named(account)], alone=False)
        self._confinement = confinement
        self._limits = limits
        self._output_bytes_max = output_bytes_max
        self._mps = mps or OwnersDaemon()
        self._needs_mps = needs_mps
        self._containers = containers
        self._bare = bare
        self._folders: dict[UUID, Path] = {}
        self._keepers: dict[UUID, int] = {}
        self._works: dict[UUID, Work] = {}
        self._roots: dict[UUID, dict[str, int]] = {}
        self._uids: dict[UUID, int] = {}
        self._ids: dict[UUID, tuple[int, str]] = {}
        self._told: dict[UUID, keeper.Deadline] = {}
        self._launches: dict[UUID, Launch] = {}
        self._preparing: Beside[int] = Beside("preparing")
        self._leaving: dict[UUID, Left] = {}
        self._leavings, self._wiped = Leavings(self._ended), dict[UUID, int]()
        self._uses, self._owners = Uses(), Owners()
        self._taken_up = False
        self._kept_tops: Tops | None = None

    def start(self, spec: WorkSpec) -> Work:
        self._take_up()
        if spec.lease_id in self._works:
            return self._look(spec.lease_id)
        if spec.lease_id in self._leaving:
            raise NotYet("what a try before left is removed")
        launch = self._launches.get(spec.lease_id)
        if launch is None:
            launch = self._launches[spec.lease_id] = self._launch_of(spec)
        elif self._needs_mps:
            self._mps.ready(spec.gpu_uuids, self._held(but=spec.lease_id))
        folder = launch.folder
        try:
            lock = self._preparing.ask(spec.lease_id, launch.prepare)
            if lock is None:
                raise Coming("its place is made and its files are laid out")
            said = self._begin(launch, lock, spec)
        except OSError as error:
            self._leave(spec.lease_id, Left(begun=False))  # with what it was to find
            raise StartFailed(f"the host could not start it: {error.strerror}") from error
        if (words := said.decode(errors="replace").rstrip()).startswith(keeper.FAILED):
            reason = read(folder / "exit.json").get("failed") or words.removeprefix(keeper.FAILED)
            self._leave(spec.lease_id, Left())
            raise StartFailed(str(reason))
        del self._launches[spec.lease_id]
        self._know(spec.lease_id, spec.gpu_uuids, spec.device_uuids)
        return self._look(spec.lease_id)

    def _launch_of(self, spec: WorkSpec) -> Launch:
        """Return how work is started, as whom and in what. Raises: StartFailed, NotYet."""
        by_mps = self._needs_mps and any(map(is_mps, spec.gpu_uuids))
        if by_mps and self.reaches == "allow-list":
            raise StartFailed(
                "work on a share by MPS has the host's network, and this host lets work connect to"
                " what is on a list only"
            )
        contained = self._contained(spec)
        if spec.secrets and contained is None and self._confined(spec.gpu_uuids) is None:
            raise StartFailed(
                "this host hands secrets only to work in bubblewrap or in a container, which work"
                " on a share by MPS is not"
            )
        if self._needs_mps:
            self._mps.ready(spec.gpu_uuids, self._held())
        confinement = self._confined(spec.gpu_uuids) if contained is None else None
        way = self._way_of(spec, confinement)
        user = self._user_for() if contained is None else None
        if user is not None:
            self._uids[spec.lease_id] = user.uid
        if contained is not None:
            self._ids[spec.lease_id] = contained["ids"], contained["name"]
        pipe, size = self._mps.pipe_of(spec.gpu_uuids), self._disk_bytes(user, contained)
        folder = self._folder_of(spec.lease_id)
        fetcher = None if spec.source is None else self._fetcher
        return Launch(spec, folder, user, pipe, confinement, contained, size, way, fetcher)

    def _know(
        self, lease_id: UUID, gpu_uuids: tuple[str, ...], device_uuids: tuple[str, ...]
    ) -> None:
        self._works[lease_id] = Work(
            lease_id=lease_id,
            gpu_uuids=gpu_uuids,
            state="starting",
            started_ms=0,
            device_uuids=device_uuids,
        )

    def _contained(self, spec: WorkSpec) -> dict[str, Any] | None:
        """Return what the keeper is told of the container of a lease; None: it has no image.

        Raises: StartFailed, NotYet.
        """
        if not spec.image:
            if not self._bare:
                raise StartFailed("this host runs images only: name one in the bid")
            return None
        if self._containers is None:
            raise StartFailed("this host runs no images")
        folder, held = self._folder_of(spec.lease_id), {ids for ids, _ in self._ids.values()}
        return self._containers.order(spec, folder, held, self._limits)

    def limit(self, lease_id: UUID, *, stop_at_ms: int, kill_at_ms: int) -> None:
        stop_ns, kill_ns = map(self._clock.boot_ns_at, (stop_at_ms, kill_at_ms))
        self._tell(lease_id, keeper.Deadline(stop_ns, kill_ns))

    def works(self) -> Sequence[Work]:
        self._take_up()
        found = [self._look(lease_id) for lease_id in list(self._works)]
        self._mps.tidy(self._held())
        return found

    def notify(self, lease_id: UUID, *, stop_at_ms: int) -> bool:
        self._look(lease_id)  # its processes may be known by now
        moment = datetime.fromtimestamp(stop_at_ms / 1000, UTC).isoformat(timespec="milliseconds")
        notice = self._folder_of(lease_id) / "notice.json"
        keeper.write_json(notice, {"stop_at": moment, "stop_at_ms": stop_at_ms})
        if lease_id in self._uids or lease_id in self._ids:
            os.chown(notice, -1, self._folder_of(lease_id).stat().st_gid)
            notice.chmod(0o640)
        # SIGUSR1 kills a process that has no handler for it, so only those that have one get it.
        taking = [s for s in self._processes(lease_id) if catches(s.pid, signal.SIGUSR1)]
        signal_all(taking, signal.SIGUSR1)
        return bool(taking)

    def terminate(self, lease_id: UUID) -> None:
        # The keeper does it, and so it is done once, whoever comes first to the deadline.
        known = self._told.get(lease_id) or keeper.Deadline(None, None)
        now_ns = self._clock.boot_ns_at(self._clock.now_ms())
        root = self._roots.get(lease_id)
        if root is not None and not root.get("keeps_deadline"):
            # Started by an agent of before: its keeper reads no deadline, and a knock would end it.
            signal_all(self._processes(lease_id), signal.SIGTERM)
        elif known.stop_ns is None or known.stop_ns > now_ns:
            self._tell(lease_id, known._replace(stop_ns=now_ns))

    def kill(self, lease_id: UUID) -> None:
        root = self._roots.get(lease_id)
        if root is None:
            # Its start is under way or its source fetched: then there will be none.
            if (pid := self._keepers.get(lease_id)) is not None:
                self._end_start(lease_id, pid)
        elif self._works[lease_id].state != "ended":
            self._end(lease_id, root)

    def _end_start(self, lease_id: UUID, pid: int) -> None:
        """End a keeper whose command did not begin; one that has more to do tidies up itself."""
        if lease_id in self._ids or (self._folder_of(lease_id) / MARK).exists():
            kill_all(pid)
            return
        os.kill(pid, signal.SIGSTOP)  # it is our child, so its id is still its own
        kill_all(pid)
        os.kill(pid, signal.SIGKILL)

    def _end(self, lease_id: UUID, root: Mapping[str, Any]) -> None:
        """Kill the work; of a container its first process, with which all in it ends."""
        stat = stat_of(root["pid"])
        if not root.get("contained"):
            kill_all(root["keeper_pid"], session=root["pid"], uid=self._own_uid(lease_id))
        elif stat is not None and stat.ticks == root["ticks"]:
            signal_all([stat], signal.SIGKILL)

    def output_of(self, lease_id: UUID) -> Path | None:
        return self._folder_of(lease_id) if lease_id in self._works else None

    def forget(self, lease_id: UUID) -> None:
        if lease_id in self._launches:
            self._preparing.stop(lease_id)
            self._leave(lease_id, Left(begun=False))
        elif (work := self._works.get(lease_id)) and self._look(lease_id).state == "ended":
            self._leave(lease_id, Left(told=True, lost=work.lost))

    def folder_of(self, lease_id: UUID) -> Path | None:
        work = self._folder_of(lease_id) / "work"
        return work if lease_id in self._works and work.is_dir() else None

    def lease_of(self, pid: int) -> UUID | None:
        tops, sessions = self._tops()
        roots = {lease_id: self._roots[lease_id] for lease_id in tops.values()}
        alone = {uid: each for each, uid in self._uids.items()} if self._are_alone() else {}
        tops = {**tops, **self._doors}
        return self._owners.owner(pid, roots=roots, tops=tops, sessions=sessions, accounts=alone)

    def used(self) -> Mapping[UUID, Used]:
        tops, sessions = self._tops()
        return self._uses.of({**tops, **self._doors}, sessions) if tops else {}

    def _tops(self) -> Tops:
        """Return the keepers of running work by process id and start, and its sessions."""
        if self._kept_tops is None:
            tops = {
                (root["keeper_pid"], root["keeper_ticks"]): lease_id
                for lease_id, root in self._roots.items()
                if self._works[lease_id].state != "ended"
            }
            sessions = {self._roots[lease_id]["pid"]: lease_id for lease_id in tops.values()}
            self._kept_tops = tops, sessions
        return self._kept_tops

    def name_of(self, pid: int) -> str | None:
        stat = stat_of(pid)
        return None if stat is None or stat.state in "ZX" else stat.name

    def holders(self) -> Mapping[str, Sequence[int]]:
        found: dict[str, list[int]] = {}
        for work in list(self._works.values()):
            for uuid in work.devices if work.state == "running" else ():
                found.setdefault(uuid, []).append(self._roots[work.lease_id]["pid"])
        return found

    def _folder_of(self, lease_id: UUID) -> Path:
        if (known := self._folders.get(lease_id)) is None:
            known = self._folders[lease_id] = self._folder / str(lease_id)
        return known

    def _user_for(self) -> WorkUser | None:
        """Return the account for a new lease; None: the agent's own.

        Raises: NotYet.
        """
        if self._users is None:
            return None
        user = self._users.free(set(self._uids.values()))
        if user is None:
            raise NotYet(f"all {len(self._users)} work users have work or what it left")
        return user

    def _own_uid(self, lease_id: UUID) -> int | None:
        """Return the account that only this lease has; None: others may have it too."""
        return self._uids.get(lease_id) if self._are_alone() else None

    def _disk_bytes(self, user: WorkUser | None, contained: Mapping[str, Any] | None) -> int:
        """Return the size of a lease's own file system; 0: it has none."""
        bounded = (user is not None or contained is not None) and self._bounds_disk
        return self._limits.disk_bytes if bounded else 0

    def _begin(self, launch: Launch, lock: int, spec: WorkSpec) -> bytes:
        """Start the keeper of a lease whose place is made; return what it said first."""
        contained, user = launch.contained, launch.user
        try:
            if spec.stop_at_ms is not None and spec.kill_at_ms is not None:
                self.limit(spec.lease_id, stop_at_ms=spec.stop_at_ms, kill_at_ms=spec.kill_at_ms)
            groups_made = self._groups_for(spec) if contained is None else []
            order = launch.order() | {
                "own_user": user.uid if user is not None and self._are_alone() else None,
                "limits": self._limits.resources(),
                "groups": [str(each) for each in groups_made],
                "output_bytes_max": self._output_bytes_max,
            }
            # Podman and a source take a while: nobody waits for that but the lease.
            wait = 0 if contained or spec.source is not None else SAID_SECONDS_MAX
            pid, said = spawn(order, lock, wait_seconds=wait)
        finally:
            os.close(lock)
        self._keepers[spec.lease_id] = pid
        return said

    def _groups_for(self, spec: WorkSpec) -> list[Path]:
        """Make the control groups of a lease. Raises: OSError where its cards stay open to it."""
        if self._users is None:
            return []
        made = groups.make(str(spec.lease_id), self._limits)
        if self._lists_devices and not limit(made, devices_of(cards_of(spec.gpu_uuids))):
            raise OSError(0, "its control groups do not keep it to its own devices")
        return made

    def _are_alone(self) -> bool:
        return self._users is not None and self._users.alone

    def _take_up(self) -> None:
        """Look once for work of earlier runs; not before this agent is the only one here."""
        for lease_id in sorted(self._leaving):
            self._put_away(lease_id)
        if not self._taken_up:
            self._taken_up = True
            for found in sorted(self._folder.iterdir()):
                self._find(found)
            if self._users is not None:
                self._users.end_unowned(set(self._uids.values()))
            self._sweep()

    def _sweep(self, *, but: UUID | None = None) -> None:
        """Remove, beside, the containers that no lease has any more. but: nor does this one."""
        if self._containers is not None:
            held = self._ids.items
            self._containers.podman.sweep(lambda: {n for key, (_, n) in [*held()] if key != but})

    def _find(self, folder: Path) -> None:
        """Take up the work of a folder that an earlier run of the agent made."""
        try:
            lease_id = UUID(folder.name)
        except ValueError:
            return
        spec = read(folder / "spec.json")
        begun = (folder / "started.json").exists() or is_locked(folder / "keeper.lock")
        if not spec or not (begun or noted_in(folder)):
            # The agent died before the keeper lived: nothing ran, so it may be started anew.
            self._leave(lease_id, Left(begun=False))
            return
        if spec.get("ids") is not None:
            self._ids[lease_id] = int(spec["ids"]), str(spec["container"])
        if spec.get("uid") is not None:
            self._uids[lease_id] = int(spec["uid"])
        self._know(lease_id, tuple(spec["gpu_uuids"]), tuple(spec.get("device_uuids", ())))
        self._look(lease_id)

    def _look(self, lease_id: UUID) -> Work:
        """Bring what we know of a lease's work up to date."""
        work = self._works[lease_id]
        self._reap(lease_id)
        if work.state == "ended":
            return work
        folder = self._folder_of(lease_id)
        root = self._roots.get(lease_id) or read(folder / "started.json")
        if not root:
            self._works[lease_id] = work = unbegun(work, folder)
            if work.state == "ended":
                end_noted(folder)
                if lease_id in self._ids:
                    self._sweep(but=lease_id)
            return work
        self._roots[lease_id], self._kept_tops = root, None
        work = judged(work, folder, root, self._clock)
        if work.detail == KEEPER_KILLED:
            self._end(lease_id, root)
        # After the judgement: what it wrote before it ended is all there.
        work = saved.heard(work, folder / CHECKPOINT, now_ms=self._clock.now_ms())
        self._works[lease_id] = work
        return work

    def _processes(self, lease_id: UUID) -> list[Stat]:
        root = self._roots.get(lease_id)
        if root is None or self._works[lease_id].state == "ended":
            return []
        if root.get("contained"):
            return descendants(root["pid"])
        return descendants(root["keeper_pid"], session=root["pid"])

    def _tell(self, lease_id: UUID, deadline: keeper.Deadline) -> None:
        """Write a deadline down where the keeper reads it, and knock at its door."""
        if self._told.get(lease_id) == deadline:
            return
        deadline.write(self._folder_of(lease_id) / "deadline.json")
        self._told[lease_id] = deadline
        root = self._roots.get(lease_id)
        if root is not None and not root.get("keeps_deadline"):
            return
        stat = None if root is None else stat_of(root["keeper_pid"])
        if root is not None and stat is not None and stat.ticks == root["keeper_ticks"]:
            signal_all([stat], signal.SIGUSR1)

    def _reap(self, lease_id: UUID, flags: int = os.WNOHANG) -> None:
        """Collect a keeper that ended, so that it leaves no zombie."""
        pid = self._keepers.get(lease_id)
        if pid is None:
            return
        try:
            if os.waitpid(pid, flags)[0] == 0:
                return
        except ChildProcessError:
            pass  # somebody collected it for us
        del self._keepers[lease_id]
