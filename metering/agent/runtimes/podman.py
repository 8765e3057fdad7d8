"""Podman around leased work: the system of an image, read-only, and nothing of the host's.

Each lease has a range of user ids to itself, so that root in one container is nobody on the host
and nobody in another. podman works on a folder of the agent's own, with settings of the agent's
own: what the host's owner runs in containers is neither seen nor touched. It must be root's: only
there can limits be set, and they are read back before the work begins (see containing.py).
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from ..clock import kernel_boot_id
from .confinement import INSIDE, Network
from .egress import Egress, Reach, Way, reach_of
from .family import users_alive
from .groups import PERIOD_US
from .levels import DISK, NO_WAY_OUT, Sandbox
from .limits import Limits
from .standing import FOLDER, with_variables

PODMAN_SECONDS_MAX = 60
IDS = 65_536
"""User ids of one container."""
FIRST_ID = 1_879_048_192
"""Above what systemd gives away by itself, and what /etc/subuid usually names."""
RANGES_MAX = 4_096
TMP_BYTES = 1 << 30
"""Of each of /tmp, /var/tmp, /run and /dev/shm, or a quarter of the lease's memory, as which they
count."""
CDI_KIND = "nvidia.com/gpu"
PREFIX = "offpeak-"
ROOTLESS = "podman is used by root only: without, no limit on memory or processes can be set"
DRIVERS = ("overlay", "vfs")

SECRETS_BYTES = 16 << 20
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

CONTAINERS_CONF = """\
[containers]
default_ulimits = []
base_hosts_file = "none"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
lock_type = "file"
[network]
network_backend = "{}"
"""
"""In place of the host's own, which may say anything. Of the network's backends podman wants one to
be installed, though none makes a network here; distributions bring the one or the other."""


SECRETS = ("--tmpfs", f"{FOLDER}:rw,nosuid,nodev,noexec,size={SECRETS_BYTES},mode=0755")

RUN_FOLDER = Path("/run/offpeak-podman")


@dataclass(frozen=True, slots=True)
class Podman:
    """podman as it is used on this host.

    folder: where images and containers are kept. runtime: runc or crun. network, egress: as of
    bubblewrap. readable: folders of the host that the work may read. cdi: its GPUs are handed in by
    CDI; not those that are made up. first_id: of the ranges of user ids.
    """

    program: str
    folder: Path
    runtime: str
    driver: str = "overlay"
    network: Network = "private"
    slirp: str | None = None
    readable: tuple[Path, ...] = ()
    cdi: bool = True
    first_id: int = FIRST_ID
    egress: Egress | None = None

    @property
    def has_way_out(self) -> bool:
        """Tell if its containers have a network that leads out, and is not the host's."""
        filtered = self.network in ("private", "allow") and self.egress is not None
        return filtered and self.slirp is not None

    @property
    def gone(self) -> list[str]:
        """Return which programs that it was found with are there no more."""
        lent = [self.slirp] if self.has_way_out and self.slirp is not None else []
        ways = self.egress.programs if lent and self.egress is not None else ()
        return [each for each in (self.program, self.runtime, *lent, *ways) if not _which(each)]

    def way(self) -> Way | None:
        """Return the way out of a lease that starts now; None: it has none. Raises: NotYet."""
        return self.egress.now() if self.has_way_out and self.egress is not None else None

    @property
    def reach(self) -> Reach:
        """Return how far the work in its containers can connect."""
        return reach_of(self.network, self.egress if self.has_way_out else None)

    @property
    def separates(self) -> bool:
        """Tell if nothing is left by which the works of two leases reach each other."""
        return self.network != "host"

    def sandbox(self, limits: Limits, *, disk: bool) -> Sandbox:
        """Return how far work in its containers is kept apart, and by what.

        disk: each has a file system of its own.
        """
        network = "podman" if self.separates else ""
        out = "" if self.egress is None or not self.has_way_out else self.egress.said
        kept = dict.fromkeys(("signals", "process list", "shared memory", "/tmp"), "podman")
        kept |= {"files": "user ids for each lease, and the image's own system, read-only"}
        kept |= dict.fromkeys(("memory", "processes"), "control group, read back")
        kept |= {"network": network, "devices": "control group"}
        kept |= {"way out": NO_WAY_OUT if self.separates and not self.has_way_out else out}
        kept |= {"cpu": "control group, read back" if limits.cpus else ""}
        kept |= {"disk": f"{DISK}, read back" if disk else ""}
        kept |= {"privileges": "no capability, no new ones", "system calls": "podman's filter"}
        return Sandbox("container", tuple(kept.items()))

    @property
    def command(self) -> list[str]:
        """Return how podman is called, up to its verb."""
        return [
            *(self.program, "--root", str(self.folder / "root")),
            *("--runroot", str(self.running), "--tmpdir", str(self.folder / "tmp")),
            *("--storage-driver", self.driver, "--runtime", self.runtime),
            *("--log-level", "error"),
        ]

    @property
    def running(self) -> Path:
        """Return where podman keeps what runs: of a short name, for it takes no more than 50
        characters, however long that of the folder is."""
        return RUN_FOLDER / sha256(str(self.folder).encode()).hexdigest()[:16]

    @property
    def variables(self) -> dict[str, str]:
        """Return all that podman finds in its environment; nothing of a lease is in it."""
        return {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(self.folder),
            "CONTAINERS_CONF": str(self.folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(self.folder / "storage.conf"),
            "CONTAINERS_REGISTRIES_CONF": str(self.folder / "registries.conf"),
        }

    def call(self, *arguments: str, given: bytes | None = None) -> subprocess.CompletedProcess[str]:
        """Call podman. Raises: OSError, subprocess.SubprocessError."""
        return subprocess.run(
            [*self.command, *arguments],
            env=self.variables,
            input=None if given is None else given.decode(),
            stdin=subprocess.DEVNULL if given is None else None,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PODMAN_SECONDS_MAX,
            cwd="/",
            check=False,
        )

    def prepare(self, registries: Collection[str] = ()) -> None:
        """Write podman's settings; after a restart of the host, forget what ran before it."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o711)
        booted = self.folder / "boot-id"
        if not booted.exists() or booted.read_text() != kernel_boot_id():
            for each in (self.running, self.folder / "tmp"):
                shutil.rmtree(each, ignore_errors=True)
            booted.write_text(kernel_boot_id())
        places = f'graphroot = "{self.folder}/root"\nrunroot = "{self.running}"\n'
        storage = f'[storage]\ndriver = "{self.driver}"\n{places}'
        plain = [each for each in registries if _is_loopback(each)]
        known = "".join(f'[[registry]]\nlocation = "{each}"\ninsecure = true\n' for each in plain)
        for name, text in {
            "containers.conf": CONTAINERS_CONF.format("netavark" if _which("netavark") else "cni"),
            "storage.conf": storage,
            "registries.conf": "unqualified-search-registries = []\n" + known,
        }.items():
            (self.folder / name).write_text(text)

    def order(
        self,
        *,
        token: str,
        image_id: str,
        path: str,
        folder: Path,
        ids: int,
        command: Sequence[str],
        devices: Sequence[str],
        limits: Limits,
        secret_variables: Sequence[str] = (),
        secrets: bool = False,
        read_only: Sequence[str] = (),
        way: Way | None = None,
    ) -> dict[str, Any]:
        """Return what the keeper is told of the container of a lease.

        token: names it, and says nothing of the lease. path: the image's own, for its programs.
        secrets: it is handed some; secret_variables: names of those that are variables too.
        way: out of its network; None: it has none, or the host's.
        read_only: paths in its work's own folder that it may not write to.
        """
        name = PREFIX + token
        run = with_variables(command, secret_variables)
        pid_file = self.folder / f"{name}.pid"
        create = [
            *("--name", name, "--pull", "never", "--init", "--read-only"),
            *("--pidfile", str(pid_file), "--conmon-pidfile", f"{pid_file}.conmon"),
            *("--read-only-tmpfs=false", "--image-volume", "tmpfs", "--no-healthcheck"),
            *("--log-driver", "passthrough", "--hostname", "lease", "--http-proxy=false"),
            *("--systemd", "false", "--restart", "no", "--group-add", "0"),
            *("--uidmap", f"0:{ids}:{IDS}", "--gidmap", f"0:{ids}:{IDS}"),
            *("--cap-drop", "all", "--security-opt", "no-new-privileges"),
            *("--network", self._network(way)),
            *(f"--add-host={name}:{address}" for name, address in (way.names if way else ())),
            *_bounds(limits),
            *_temporary(limits),
            *(SECRETS if secrets else ()),
            *self._mounts(folder, read_only),
            *(f"--device={CDI_KIND}={uuid}" for uuid in (devices if self.cdi else ())),
            *("--workdir", str(INSIDE / "work"), f"--entrypoint={_words(run)}", image_id),
        ]
        return {
            "podman": self.command,
            "variables": self.variables,
            "name": name,
            "pid_file": str(pid_file),
            "create": create,
            "ids": ids,
            "path": path,
            "egress": None if way is None else way.order(),
            "bounds": {
                "memory_bytes": limits.memory(),
                "processes": limits.processes,
                "cpu_percent": limits.cpus * 100,
                "disk_bytes": limits.disk_bytes,
            },
        }

    def _network(self, way: Way | None) -> str:
        if way is not None:
            return "slirp4netns:allow_host_loopback=false,enable_ipv6=false,mtu=65520"
        return "host" if self.network == "host" else "none"

    def _mounts(self, folder: Path, read_only: Sequence[str]) -> list[str]:
        safe = "nosuid,nodev"
        mounts = [
            (folder, INSIDE, f"ro,{safe}"),
            (folder / "work", INSIDE / "work", f"rw,{safe},U"),
        ]
        fixed = [(folder / "work" / each, INSIDE / "work" / each) for each in read_only]
        mounts += [(place, inside, f"ro,{safe}") for place, inside in fixed]
        mounts += [(each, each, f"ro,{safe}") for each in self.readable]
        return [part for each in mounts for part in ("--volume", ":".join(map(str, each)))]

    def sweep(self, known: Callable[[], Collection[str]]) -> threading.Thread:
        """Remove, beside, the containers that no lease has; known: the names of those that do."""

        def remove() -> None:
            try:
                listed = self.call("ps", "--all", "--format", "{{.Names}}").stdout.split()
                names = {each for each in listed if each.startswith(PREFIX)}
                if left := sorted(names - set(known())):
                    self.call("rm", "--force", "--ignore", "--time", "0", *left)
            except (OSError, subprocess.SubprocessError):
                return  # asked for again at the next start

        thread = threading.Thread(target=remove, name="containers", daemon=True)
        thread.start()
        return thread


class IdRanges:
    """Hands out ranges of user ids, the lowest that is free first: images are kept ready by it."""

    def __init__(self, first: int) -> None:
        self._first = first

    def free(self, held: Collection[int]) -> int | None:
        """Return the first id of a range that no lease holds and no process is of; None: none is.

        Of processes there may be some that no lease is known for: another agent's, or of one whose
        records are lost.
        """
        alive = {(uid - self._first) // IDS for uid in users_alive()}
        numbers = (each for each in range(RANGES_MAX) if each not in alive)
        all_of_them = (self._first + each * IDS for each in numbers)
        return next((each for each in all_of_them if each not in held), None)


def find(
    folder: Path,
    *,
    network: Network = "private",
    readable: Sequence[Path] = (),
    registries: Collection[str] = (),
    cdi: bool = True,
    uid: int | None = None,
    egress: Egress | None = None,
) -> tuple[Podman | None, str]:
    """Return podman as it can be used here, or None and why it cannot."""
    program = shutil.which("podman")
    if program is None:
        return None, "podman is not installed"
    if (os.geteuid() if uid is None else uid) != 0:
        return None, ROOTLESS
    # crun 1.8 refuses hosts that have both generations of control groups.
    wanted = ("crun", "runc") if Path("/sys/fs/cgroup/cgroup.controllers").exists() else ("runc",)
    runtime = next((each for each in wanted if _which(each)), None)
    if runtime is None:
        return None, f"{' or '.join(wanted)} is not installed"
    if _which("conmon") is None or _which("catatonit") is None:
        return None, "conmon or catatonit is not installed"
    slirp = shutil.which("slirp4netns")
    why, fresh = "", not (folder / "root").exists()
    for driver in DRIVERS:
        found = Podman(
            *(program, folder, runtime, driver, network, slirp, tuple(readable)),
            cdi=cdi,
            egress=egress,
        )
        try:
            found.prepare(registries)
            done = found.call("info", "--format", "{{.Store.GraphDriverName}}")
        except (OSError, subprocess.SubprocessError) as error:
            return None, f"podman does not start: {error}"
        if done.returncode == 0:
            return found, ""
        why = why or f"podman does not work here: {done.stderr.strip().splitlines()[-1:]}"
        if fresh:
            # Its record says by now which driver it is for, and the next would be refused for that.
            shutil.rmtree(folder / "root" / "libpod", ignore_errors=True)
    return None, why


def _which(name: str) -> str | None:
    folders = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/libexec/podman"
    return shutil.which(name, path=f"{folders}:/usr/lib/podman")


def _is_loopback(registry: str) -> bool:
    return registry.partition(":")[0] in ("localhost", "127.0.0.1")


def _words(command: Sequence[str]) -> str:
    return json.dumps(list(command))


def _bounds(limits: Limits) -> list[str]:
    memory = str(limits.memory())
    options = ["--memory", memory, "--memory-swap", memory, "--pids-limit", str(limits.processes)]
    if limits.cpus:
        quota = str(limits.cpus * PERIOD_US)
        options += ["--cpu-period", str(PERIOD_US), "--cpu-quota", quota]
    for name, number, most in (
        ("nofile", resource.RLIMIT_NOFILE, limits.open_files),
        ("nproc", resource.RLIMIT_NPROC, limits.processes),
        ("fsize", resource.RLIMIT_FSIZE, limits.file_bytes),
        ("core", resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(number)
        value = most if hard == resource.RLIM_INFINITY else min(most, hard)
        options += ["--ulimit", f"{name}={value}:{value}"]
    return options


def _temporary(limits: Limits) -> list[str]:
    size = min(TMP_BYTES, limits.memory() // 4)
    options = ["--shm-size", str(size)]
    for place in ("/tmp", "/var/tmp", "/run"):
        options += ["--tmpfs", f"{place}:rw,nosuid,nodev,size={size},mode=1777"]
    return options


def refused_variables(environment: Mapping[str, str]) -> list[str]:
    """Return the variables that podman cannot be given: it reads them from lines."""
    return sorted(
        name for name, value in environment.items() if "\n" in value or value.endswith("\r")
    )


def unfit_names(names: Iterable[str]) -> list[str]:
    """Return those of secrets that are to be variables which no shell takes for one's name."""
    return sorted(name for name in names if not VARIABLE.fullmatch(name))
