"""Leased work as plain processes of this host, each under a keeper (see keeper.py).

One folder per lease: spec.json, keeper.lock, started.json, exit.json, notice.json, the bounded
stdout.log and stderr.log, and `work/`, in which the command runs. It survives the agent.
"""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from ..clock import Clock, kernel_boot_id
from ..shares import PIPE_DIRECTORY, environment, is_mps, mps_runs
from . import keeper, saved
from .port import StartFailed, Work, WorkSpec

START_SECONDS_MAX = 10.0
OUTPUT_BYTES_MAX = 8 * 1024 * 1024
ENDED_KEPT_MAX = 100
ANCESTORS_MAX = 64
CHECKPOINT = "work/.checkpoint"
KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH")
"""All that the work sees of the agent's own environment; the agent's token is not among it."""


class ProcessRuntime:
    """Runs commands as processes.

    folder: where the leases' folders are; made if absent.
    account: name of the user the work runs as; by default the agent's own.
    mps_pipe: where the MPS control daemon listens, which shares by MPS need; without
        `needs_mps` (made-up GPUs) they do without.
    """

    def __init__(
        self,
        folder: Path,
        *,
        clock: Clock,
        account: str | None = None,
        output_bytes_max: int = OUTPUT_BYTES_MAX,
        mps_pipe: Path = PIPE_DIRECTORY,
        needs_mps: bool = True,
    ) -> None:
        self._folder = folder / "leases"
        self._ended = folder / "ended"
        for each in (self._folder, self._ended):
            each.mkdir(parents=True, exist_ok=True, mode=0o711)
        self._clock = clock
        self._account = None if account is None else pwd.getpwnam(account)
        self._output_bytes_max = output_bytes_max
        self._mps_pipe = mps_pipe
        self._needs_mps = needs_mps
        self._keepers: dict[UUID, int] = {}
        self._works: dict[UUID, Work] = {}
        self._roots: dict[UUID, dict[str, int]] = {}
        self._taken_up = False

    def start(self, spec: WorkSpec) -> Work:
        self._take_up()
        if spec.lease_id in self._works:
            return self._look(spec.lease_id)
        by_mps = self._needs_mps and any(map(is_mps, spec.gpu_uuids))
        if by_mps and not mps_runs(self._mps_pipe):
            # Without the daemon the work would run unlimited beside the others on the card.
            raise StartFailed(f"no MPS control daemon listens at {self._mps_pipe}")
        folder = self._folder_of(spec.lease_id)
        try:
            lock = self._prepare(folder, spec)
            try:
                said = self._spawn(folder, spec, lock)
            finally:
                os.close(lock)
        except OSError as error:
            raise StartFailed(f"the host could not start it: {error.strerror}") from error
        if said == b"failed\n":
            reason = _read(folder / "exit.json").get("failed", "it did not start")
            self._put_away(spec.lease_id)
            raise StartFailed(str(reason))
        self._works[spec.lease_id] = Work(
            lease_id=spec.lease_id,
            gpu_uuids=spec.gpu_uuids,
            state="starting",
            started_ms=0,
            device_uuids=spec.device_uuids,
        )
        return self._look(spec.lease_id)

    def works(self) -> Sequence[Work]:
        self._take_up()
        return [self._look(lease_id) for lease_id in list(self._works)]

    def notify(self, lease_id: UUID, *, stop_at_ms: int) -> bool:
        moment = datetime.fromtimestamp(stop_at_ms / 1000, UTC).isoformat(timespec="milliseconds")
        notice = self._folder_of(lease_id) / "notice.json"
        keeper.write_json(notice, {"stop_at": moment, "stop_at_ms": stop_at_ms})
        notice.chmod(0o644)
        # SIGUSR1 kills a process that has no handler for it, so only those that have one get it.
        taking = [s for s in self._processes(lease_id) if _catches(s.pid, signal.SIGUSR1)]
        keeper.signal_all(taking, signal.SIGUSR1)
        return bool(taking)

    def terminate(self, lease_id: UUID) -> None:
        keeper.signal_all(self._processes(lease_id), signal.SIGTERM)

    def kill(self, lease_id: UUID) -> None:
        root = self._roots.get(lease_id)
        if root is not None and self._works[lease_id].state != "ended":
            keeper.kill_all(root["keeper_pid"], session=root["pid"])

    def forget(self, lease_id: UUID) -> None:
        work = self._works.get(lease_id)
        if work is not None and self._look(lease_id).state == "ended":
            self._put_away(lease_id)

    def lease_of(self, pid: int) -> UUID | None:
        tops = {
            (root["keeper_pid"], root["keeper_ticks"]): lease_id
            for lease_id, root in self._roots.items()
            if self._works[lease_id].state != "ended"
        }
        sessions = {self._roots[lease_id]["pid"]: lease_id for lease_id in tops.values()}
        for _ in range(ANCESTORS_MAX):
            stat = keeper.stat_of(pid)
            if stat is None:
                return None
            if (lease_id := tops.get((stat.pid, stat.ticks))) is not None:
                return lease_id
            if (lease_id := sessions.get(stat.session)) is not None:
                return lease_id
            pid = stat.parent
        return None

    def name_of(self, pid: int) -> str | None:
        stat = keeper.stat_of(pid)
        return None if stat is None or stat.state in "ZX" else stat.name

    def holders(self) -> Mapping[str, Sequence[int]]:
        found: dict[str, list[int]] = {}
        for work in list(self._works.values()):
            for uuid in work.devices if work.state == "running" else ():
                found.setdefault(uuid, []).append(self._roots[work.lease_id]["pid"])
        return found

    def _folder_of(self, lease_id: UUID) -> Path:
        return self._folder / str(lease_id)

    def _prepare(self, folder: Path, spec: WorkSpec) -> int:
        """Make the lease's folder and take its lock, which the keeper inherits."""
        work = folder / "work"
        work.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o711)
        work.chmod(0o700)
        if self._account is not None:
            os.chown(work, self._account.pw_uid, self._account.pw_gid)
        lock = os.open(folder / "keeper.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        record = {"gpu_uuids": list(spec.gpu_uuids), "device_uuids": list(spec.device_uuids)}
        keeper.write_json(folder / "spec.json", record)
        return lock

    def _spawn(self, folder: Path, spec: WorkSpec, lock: int) -> bytes:
        account = self._account
        order = {
            "command": list(spec.command),
            "environment": self._environment(folder, spec),
            "account": None if account is None else [account.pw_uid, account.pw_gid],
            "output_bytes_max": self._output_bytes_max,
        }
        read, write = os.pipe2(os.O_CLOEXEC)
        try:
            command = [sys.executable, "-I", "-S", keeper.__file__, str(folder)]
            with (folder / "keeper.log").open("wb") as log:
                process = subprocess.Popen(
                    [*command, str(write), str(lock)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                    env={"PATH": os.environ.get("PATH", os.defpath)},
                    pass_fds=(write, lock),
                    start_new_session=True,
                )
        finally:
            os.close(write)
        try:
            assert process.stdin is not None
            with process.stdin as orders:
                orders.write(json.dumps(order).encode())
            self._keepers[spec.lease_id] = process.pid
            process.returncode = 0  # it outlives this object and is reaped by _reap
            ready, _, _ = select.select([read], [], [], START_SECONDS_MAX)
            return os.read(read, 64) if ready else b""
        finally:
            os.close(read)

    def _environment(self, folder: Path, spec: WorkSpec) -> dict[str, str]:
        own = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
        uuids = ",".join(spec.devices)
        return {
            "HOME": str(folder / "work"),
            **own,
            # Where nobody listens: work that is not on a share by MPS stays apart from those.
            "CUDA_MPS_PIPE_DIRECTORY": str(folder / "work" / "mps"),
            **spec.environment,
            **environment(spec.gpu_uuids, self._mps_pipe),
            "CUDA_VISIBLE_DEVICES": uuids,
            "NVIDIA_VISIBLE_DEVICES": uuids,
            "OFFPEAK_LEASE_ID": str(spec.lease_id),
            "OFFPEAK_GRACE_SECONDS": str(spec.grace_seconds),
            "OFFPEAK_NOTICE": str(folder / "notice.json"),
            saved.VARIABLE: str(folder / CHECKPOINT),
        }

    def _take_up(self) -> None:
        """Look once for work of earlier runs; not before this agent is the only one here."""
        if not self._taken_up:
            self._taken_up = True
            for found in sorted(self._folder.iterdir()):
                self._find(found)

    def _find(self, folder: Path) -> None:
        """Take up the work of a folder that an earlier run of the agent made."""
        try:
            lease_id = UUID(folder.name)
        except ValueError:
            return
        spec = _read(folder / "spec.json")
        begun = (folder / "started.json").exists() or _is_locked(folder / "keeper.lock")
        if not spec or not begun:
            # The agent died before the keeper lived: nothing ran, so it may be started anew.
            shutil.rmtree(folder, ignore_errors=True)
            return
        uuids = tuple(spec["gpu_uuids"])
        self._works[lease_id] = Work(
            lease_id=lease_id,
            gpu_uuids=uuids,
            state="starting",
            started_ms=0,
            device_uuids=tuple(spec.get("device_uuids", ())),
        )
        self._look(lease_id)

    def _look(self, lease_id: UUID) -> Work:
        """Bring what we know of a lease's work up to date."""
        work = self._works[lease_id]
        self._reap(lease_id)
        if work.state == "ended":
            return work
        folder = self._folder_of(lease_id)
        root = self._roots.get(lease_id) or _read(folder / "started.json")
        if not root:
            return self._not_begun(work, folder)
        self._roots[lease_id] = root
        work = self._judge(work, folder, root)
        # After the judgement: what it wrote before it ended is all there.
        saved_ms = saved.written_ms(folder / CHECKPOINT, now_ms=self._clock.now_ms())
        self._works[lease_id] = work = replace(work, saved_ms=saved_ms)
        return work

    def _judge(self, work: Work, folder: Path, root: dict[str, Any]) -> Work:
        if root["kernel_boot_id"] != kernel_boot_id():
            # The readings of the boot clock mean nothing any more; the meter knows how far it got.
            return replace(work, state="ended", lost=True, detail="the host was restarted")
        started_ms = self._clock.at_boot_ns(root["boot_ns"])
        work = replace(work, started_ms=started_ms)
        kept = _is_locked(folder / "keeper.lock")
        if end := _read(folder / "exit.json"):
            ended_ms = self._clock.at_boot_ns(end["boot_ns"])
            return replace(work, state="ended", ended_ms=ended_ms, exit_code=end["exit_code"])
        stat = keeper.stat_of(root["pid"])
        alive = stat is not None and stat.ticks == root["ticks"] and stat.state not in "ZX"
        if kept:
            return replace(work, state="running" if alive else "ending")
        # The keeper was killed: without it nobody knows when the work ends, so it ends now.
        keeper.kill_all(root["keeper_pid"], session=root["pid"])
        return replace(
            work,
            state="ended",
            ended_ms=self._clock.now_ms(),
            lost=True,
            detail="the process that kept it was killed",
        )

    def _not_begun(self, work: Work, folder: Path) -> Work:
        if _is_locked(folder / "keeper.lock"):
            return work
        end = _read(folder / "exit.json")
        detail = str(end.get("failed", "the process that kept it died at its start"))
        work = replace(work, state="ended", lost=True, detail=detail)
        self._works[work.lease_id] = work
        return work

    def _processes(self, lease_id: UUID) -> list[keeper.Stat]:
        root = self._roots.get(lease_id)
        if root is None or self._works[lease_id].state == "ended":
            return []
        return keeper.descendants(root["keeper_pid"], session=root["pid"])

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

    def _put_away(self, lease_id: UUID) -> None:
        """Erase the tenant's files, keep the newest few outputs for the operator."""
        folder = self._folder_of(lease_id)
        shutil.rmtree(folder / "work", ignore_errors=True)
        target = self._ended / folder.name
        shutil.rmtree(target, ignore_errors=True)
        os.replace(folder, target)
        self._works.pop(lease_id, None)
        self._roots.pop(lease_id, None)
        self._reap(lease_id, flags=0)
        older = sorted(self._ended.iterdir(), key=lambda each: each.stat().st_mtime)
        for folder in older[:-ENDED_KEPT_MAX]:
            shutil.rmtree(folder, ignore_errors=True)


def _read(path: Path) -> dict[str, Any]:
    """Return a record; empty when there is none, or none yet."""
    try:
        record: dict[str, Any] = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return record


def _is_locked(path: Path) -> bool:
    try:
        lock = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def _catches(pid: int, number: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)
