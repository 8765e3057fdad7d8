"""How the work of a lease is started: its folder, what it finds there, and its keeper."""

from __future__ import annotations

import fcntl
import json
import os
import select
import subprocess
import sys
import threading
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..places import give_to
from ..shares import environment
from . import disks, keeper, saved
from .confinement import INSIDE, Confinement, write_accounts
from .copying import copy
from .egress import Way
from .port import WorkSpec
from .source_first import MARK
from .sources import Fetcher, Source
from .users import WorkUser
from .volumes import lay

START_SECONDS_MAX = 10.0
CHECKPOINT = "work/.checkpoint"
KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH")
"""All that the work sees of the agent's own environment; the agent's token is not among it."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A lease about to be started in `folder`. user: None: as the agent's own user.

    confinement: None: it sees the host as any user does. contained: in a container, by what the
    keeper is told of it. disk_bytes: of all that it can write; 0: not bounded.
    way: out of the network of confined work. fetcher: of a source that the work begins with.
    """

    spec: WorkSpec
    folder: Path
    user: WorkUser | None
    mps_pipe: Path
    confinement: Confinement | None = None
    contained: Mapping[str, Any] | None = None
    disk_bytes: int = 0
    way: Way | None = None
    fetcher: Fetcher | None = None

    def prepare(self, stop: threading.Event) -> int:
        """Make the lease's folder and take its lock, which the keeper inherits.

        Raises: OSError, also where it is told to stop.
        """
        folder, spec, user = self.folder, self.spec, self.user
        folder.mkdir(mode=0o700, exist_ok=True)
        if user is not None:
            # Through it to what is the work's own, and no further.
            os.chown(folder, -1, user.gid)
            folder.chmod(0o710)
        if self.contained is not None:
            os.chown(folder, -1, self.contained["ids"])
            folder.chmod(0o710)
        work, tmp = folder / "work", folder / "tmp"
        if self.disk_bytes:
            for own in (work, tmp):
                own.mkdir(mode=0o700, exist_ok=True)
            disks.make(folder, self.disk_bytes, self._owner())
            # Copied, so that a kill on the way leaves what was fetched where it came to.
            if spec.inputs is not None:
                copy(spec.inputs, work, stop)
            lay(work, spec.volumes, lambda source, target: copy(source, target, stop))
        else:
            if spec.inputs is not None:
                # Of a try before this one whatever came is gone with its folder: moved once.
                os.replace(spec.inputs, work)
                work.chmod(0o700)
            lay(work, spec.volumes)
        owner = self._owner() if spec.source is not None and self.contained is not None else user
        for own in (work, tmp):
            own.mkdir(mode=0o700, exist_ok=True)
            if owner is not None:
                give_to(own, owner.uid, owner.gid)
        lock = os.open(folder / "keeper.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        record: dict[str, Any] = {"uid": None if user is None else user.uid}
        record |= {"gpu_uuids": list(spec.gpu_uuids), "device_uuids": list(spec.device_uuids)}
        if self.contained is not None:
            record |= {"ids": self.contained["ids"], "container": self.contained["name"]}
        keeper.write_json(folder / "spec.json", record)
        if self.confinement is not None or spec.source is not None:
            write_accounts(folder, owner, self.way)
        if spec.source is not None:
            (folder / MARK).touch(mode=0o600)
        return lock

    @staticmethod
    def nothing(_: threading.Event) -> int:
        """Prepare nothing, where only what came of it is asked for."""
        raise OSError(0, "nothing is prepared")

    def _owner(self) -> WorkUser:
        """Return whose the work's folders are; a container's root, until podman gives them on."""
        if self.contained is not None:
            return WorkUser("lease", self.contained["ids"], self.contained["ids"])
        assert self.user is not None, "as the agent's own user nothing is bounded"
        return self.user

    def order(self) -> dict[str, Any]:
        """Return what the keeper is told: what to run, where, and as whom."""
        order: dict[str, Any] = {
            "folder": str(self.folder),
            "command": list(self.spec.command),
            "environment": self._environment(),
            "account": None if self.user is None else [self.user.uid, self.user.gid],
        }
        if self.contained is not None:
            order["contained"] = self.contained
        if self.spec.secrets:
            # To the keeper by its standard input, and from there by files without a name.
            values = self.spec.secrets.items()
            order["secrets"] = {name: b64encode(value).decode() for name, value in values}
            order["secret_variables"] = list(self.spec.secret_variables)
        if self.spec.source is not None:
            order["source"] = self._source(self.spec.source)
        if self.confinement is not None:
            order["confined"] = {
                "with": self.confinement.bwrap,
                "arguments": self.confinement.arguments(
                    self.folder, self.spec.devices, self.spec.read_only, self.way
                ),
                "way_out": None if self.way is None else self.confinement.way_out,
                "egress": None if self.way is None else self.way.order(),
            }
        return order

    def _source(self, source: Source) -> dict[str, Any]:
        assert self.fetcher is not None and self.way is not None, "asked before it is started"
        user = self.user if self.contained is None else self._owner()
        volumes = ["/".join(each.names) for each in self.spec.volumes]
        return self.fetcher.order(source, self.folder, user, volumes, self.way)

    def _environment(self) -> dict[str, str]:
        spec, folder, tmp = self.spec, self.folder, self.folder / "tmp"
        if self.confinement is not None or self.contained is not None:
            folder, tmp = INSIDE, Path("/tmp")
        own = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
        if self.contained is not None:
            own = {}  # an image has its own
        if self.user is not None:
            own |= {"USER": self.user.name, "LOGNAME": self.user.name}
        uuids = ",".join(spec.devices)
        return {
            "HOME": str(folder / "work"),
            "TMPDIR": str(tmp),
            **own,
            # Where nobody listens: work that is not on a share by MPS stays apart from those.
            "CUDA_MPS_PIPE_DIRECTORY": str(folder / "work" / "mps"),
            **spec.environment,
            **environment(spec.gpu_uuids, self.mps_pipe),
            "CUDA_VISIBLE_DEVICES": uuids,
            "NVIDIA_VISIBLE_DEVICES": uuids,
            "OFFPEAK_LEASE_ID": str(spec.lease_id),
            "OFFPEAK_GRACE_SECONDS": str(spec.grace_seconds),
            "OFFPEAK_NOTICE": str(folder / "notice.json"),
            saved.VARIABLE: str(folder / CHECKPOINT),
        }


def spawn(
    order: dict[str, Any], lock: int, *, wait_seconds: float = START_SECONDS_MAX
) -> tuple[int, bytes]:
    """Start a keeper with its order; return its process id and what it said first, or nothing."""
    read, write = os.pipe2(os.O_CLOEXEC)
    try:
        # Its command line, which all users of the host can read, says nothing of the lease.
        command = [sys.executable, "-I", "-S", keeper.__file__, str(write), str(lock)]
        with open(Path(order["folder"], "keeper.log"), "wb", opener=_private) as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env={"PATH": os.environ.get("PATH", os.defpath)},
                pass_fds=(write, lock),
                cwd="/",
                start_new_session=True,
            )
    finally:
        os.close(write)
    try:
        assert process.stdin is not None
        with process.stdin as orders:
            orders.write(json.dumps(order).encode())
        process.returncode = 0  # it outlives this object and is reaped by its runtime
        ready, _, _ = select.select([read], [], [], wait_seconds)
        return process.pid, os.read(read, 64) if ready else b""
    finally:
        os.close(read)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
