"""Bubblewrap around leased work: a view of the host of its own, with nothing of others in it.

Inside there are the host's programs, read-only, the lease's own folder and GPUs, and a /tmp, a
process table and System V memory that no other lease shares. bwrap is started as the lease's
account and not as root, so that nothing inside ever had more rights than that account.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from .device_lists import SHARED_DEVICES, files_of
from .egress import Egress, Reach, Way, reach_of
from .users import WorkUser

Network = Literal["private", "allow", "none", "host"]

INSIDE = Path("/lease")
"""Where the lease's folder is, as its work sees it."""
TRY_SECONDS_MAX = 10
SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
ETC = (
    "alternatives", "ca-certificates", "ca-certificates.conf", "crypto-policies", "fonts",
    "gai.conf", "host.conf", "hosts", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime",
    "machine-id", "mime.types", "nsswitch.conf", "OpenCL", "os-release", "pki", "protocols",
    "services", "ssl", "timezone", "vulkan",
)  # fmt: skip
"""Of the host's configuration what programs look up; none of it is a secret."""
TUN = "/dev/net/tun"
"""slirp4netns needs it: in some systems only root may open it."""
RESOLVER = "nameserver 10.0.2.3\n"
"""Where slirp4netns answers for names."""


@dataclass(frozen=True, slots=True)
class Confinement:
    """bwrap as it is on this host.

    slirp: slirp4netns, which lends a network namespace of its own a way out. network: `private`,
    a namespace of its own, with a way out to public addresses where slirp and a packet filter are
    there; `allow`, with one to what the owner lists; `none`, without one; `host`, the host's, in
    which leases reach each other. egress: sets that filter. readable: more folders that the work
    may read.
    """

    bwrap: str
    slirp: str | None = None
    network: Network = "private"
    readable: tuple[Path, ...] = ()
    egress: Egress | None = None

    @property
    def separates(self) -> bool:
        """Tell if nothing is left by which the works of two leases reach each other."""
        return self.network != "host"

    @property
    def way_out(self) -> str | None:
        """Return the program that lends the work a network; None: it has none, or the host's."""
        filtered = self.network in ("private", "allow") and self.egress is not None
        return self.slirp if filtered else None

    @property
    def gone(self) -> list[str]:
        """Return which programs that it was found with are there no more."""
        lent = [] if self.way_out is None else [self.way_out]
        ways = self.egress.programs if lent and self.egress is not None else ()
        return [each for each in (self.bwrap, *lent, *ways) if shutil.which(each) is None]

    def way(self) -> Way | None:
        """Return the way out of a lease that starts now; None: it has none. Raises: NotYet."""
        return None if self.way_out is None or self.egress is None else self.egress.now()

    @property
    def reach(self) -> Reach:
        """Return how far its work can connect."""
        return reach_of(self.network, self.egress if self.way_out else None)

    def arguments(
        self,
        folder: Path,
        devices: Iterable[str],
        read_only: Iterable[str] = (),
        way: Way | None = None,
    ) -> list[str]:
        """Return bwrap's options for the lease whose folder it is; devices: its GPUs.

        read_only: paths in its work's own folder that it may not write to. way: out of its
        network; None: it has none, or the host's.
        """
        return [
            *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts"),
            *("--unshare-cgroup-try", "--die-with-parent", "--new-session"),
            *("--hostname", "lease", "--disable-userns"),
            *(() if self.network == "host" else ("--unshare-net",)),
            *programs(),
            *_configuration(folder, way),
            *_read_only(self.readable),
            *("--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--tmpfs", "/dev/shm"),
            *_hardware(),
            *("--bind", str(folder / "tmp"), "/tmp", "--bind", str(folder / "tmp"), "/var/tmp"),
            *("--ro-bind", str(folder), str(INSIDE)),
            *("--bind", str(folder / "work"), str(INSIDE / "work")),
            *_fixed(folder / "work", read_only),
            *_devices(devices),
            *("--remount-ro", "/", "--chdir", str(INSIDE / "work")),
        ]


def write_accounts(folder: Path, user: WorkUser | None, way: Way | None = None) -> None:
    """Write what the work finds as /etc/passwd, /etc/group, /etc/hosts and /etc/resolv.conf."""
    uid, gid = (os.getuid(), os.getgid()) if user is None else (user.uid, user.gid)
    name = "lease" if user is None else user.name
    for file, text in {
        "passwd": f"{name}:x:{uid}:{gid}:lease:{INSIDE}/work:/bin/sh\n",
        "group": f"{name}:x:{gid}:\n",
        "resolv.conf": RESOLVER if way is None or way.open else "",
        "hosts": "" if way is None else way.hosts(),
    }.items():
        path = folder / file
        path.write_text(text)
        path.chmod(0o644)


def find(
    *,
    network: Network = "private",
    readable: Sequence[Path] = (),
    user: WorkUser | None = None,
    egress: Egress | None = None,
) -> tuple[Confinement | None, str]:
    """Return bwrap as it can be used here, or None and why it cannot.

    user: the account as which it will run.
    """
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        return None, "bubblewrap is not installed"
    slirp = shutil.which("slirp4netns") if os.access(TUN, os.R_OK | os.W_OK) else None
    found = Confinement(bwrap, slirp, network, tuple(readable), egress)
    program = [
        "--unshare-all",
        "--unshare-user",
        "--disable-userns",
        *programs(),
        "--proc",
        "/proc",
        "--dev",
        "/dev",
    ]
    try:
        done = subprocess.run(
            [bwrap, *program, "--", "/bin/true"],
            capture_output=True,
            text=True,
            timeout=TRY_SECONDS_MAX,
            cwd="/",
            check=False,
            user=None if user is None else user.uid,
            group=None if user is None else user.gid,
            extra_groups=None if user is None else [],
        )
    except (OSError, subprocess.SubprocessError) as error:
        return None, f"bubblewrap does not start: {error}"
    if done.returncode:
        return None, f"bubblewrap does not work here: {done.stderr.strip().splitlines()[-1:]}"
    return found, ""


def programs() -> list[str]:
    """Return the options that show the host's programs and libraries, and nothing else of it."""
    options = ["--ro-bind", "/usr", "/usr", "--ro-bind-try", "/opt", "/opt"]
    for name in SYSTEM:
        path = Path("/", name)
        if path.is_symlink():
            options += ["--symlink", os.readlink(path), str(path)]
        elif path.is_dir():
            options += ["--ro-bind", str(path), str(path)]
    return options


def _configuration(folder: Path, way: Way | None) -> list[str]:
    options: list[str] = []
    listed = way is not None and not way.open
    for name in ETC:
        if name == "hosts" and listed:
            options += ["--ro-bind", str(folder / name), "/etc/hosts"]
            continue
        options += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    for name in ("passwd", "group"):
        options += ["--ro-bind", str(folder / name), f"/etc/{name}"]
    source = "/etc/resolv.conf" if way is None else str(folder / "resolv.conf")
    return [*options, "--ro-bind-try", source, "/etc/resolv.conf"]


def _read_only(folders: Iterable[Path]) -> list[str]:
    options: list[str] = []
    for each in folders:
        options += ["--ro-bind", str(each), str(each)]
    return options


def _fixed(work: Path, paths: Iterable[str]) -> list[str]:
    options: list[str] = []
    for each in paths:
        options += ["--ro-bind", str(work / each), str(INSIDE / "work" / each)]
    return options


def _hardware() -> list[str]:
    """Return the options that show what the hardware is, of which libraries ask their topology."""
    hidden = [path for path in ("/sys/fs", "/sys/kernel", "/sys/firmware") if Path(path).is_dir()]
    options = ["--ro-bind", "/sys", "/sys"]
    for path in hidden:
        options += ["--tmpfs", path, "--remount-ro", path]
    return options


def _devices(uuids: Iterable[str]) -> list[str]:
    """Return the options that show the lease's GPUs, and not those of others.

    Where the driver does not say which file is whose, such as of a MIG instance, all are shown.
    """
    names = files_of(uuids)
    if names is None:
        names = sorted(path.name for path in Path("/dev").glob("nvidia[0-9]*"))
    options: list[str] = []
    for name in [*names, *SHARED_DEVICES]:
        options += ["--dev-bind-try", f"/dev/{name}", f"/dev/{name}"]
    return options
