"""A real Slurm cluster of one node, which is this machine: five daemons on loopback, in a folder.

It has nothing to do with a cluster that this machine may be a part of: settings, sockets, ports
and key are its own. Its GPUs are made up, and there are many of each, so that tests do not wait
for one another.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from uuid import UUID

import pytest

from metering.agent.clock import SystemClock
from metering.agent.runtimes.limits import Limits
from metering.agent.runtimes.port import StartFailed, Work, WorkSpec
from metering.agent.runtimes.slurm import SlurmRuntime
from metering.agent.runtimes.slurm_commands import Slurm
from tests.ports import free_port

DAEMONS = ("munged", "mariadbd", "slurmdbd", "slurmctld", "slurmd", "sbatch", "sacctmgr")
FOLDERS = "/usr/sbin:/usr/bin:/sbin:/bin"
DEVICES = Path("/sys/fs/cgroup/devices/cgroup.procs")
PROMPT = Path(__file__).with_name("prompt.c")
WAIT_SECONDS = 60.0
LIMITS = Limits(cpus=1, memory_bytes=64 << 20)
TOGETHER = pytest.mark.xdist_group("slurm")
"""Of tests with the cluster: one process has it for all of them."""
PRETENDED = ("--simulate", "L4:1", "--hostname", "of-the-cluster")
"""How an agent is started that has the one GPU which follows."""
PRETENDED_GPU = f"GPU-{UUID(bytes=sha256(b'of-the-cluster/0/L4').digest()[:16])}"
NVIDIA = 195
"""The number of NVIDIA's driver among those of devices."""
GPUS = {"GPU-a": 24, "GPU-b": 24, "GPU-single": 1, PRETENDED_GPU: 1}
"""How many of each there are."""

SLURM = """\
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmctldPort={ctld}
SlurmdPort={slurmd}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/{tracked}
TaskPlugin=task/{tasks}
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={dbd}
AccountingStoragePass={folder}/munge.socket
AccountingStorageTRES=gres/gpu
AccountingStorageEnforce=associations,limits,qos
PriorityType=priority/basic
SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=0
KillWait=5
MailProg=/bin/true
ReturnToService=2
SlurmctldTimeout=60
MessageTimeout=5
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=64 RealMemory=16000 Gres={gres} State=UNKNOWN
PartitionName=leases Nodes={host} Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""
CGROUP = """\
CgroupPlugin=cgroup/v1
CgroupMountpoint=/sys/fs/cgroup
ConstrainDevices=yes
ConstrainRAMSpace=yes
"""
DBD = """\
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={dbd}
SlurmUser=root
PidFile={folder}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database}
StorageUser=root
StorageLoc=slurm_acct
"""
DATABASE = (
    *("--no-defaults", "--user=root", "--bind-address=127.0.0.1", "--skip-grant-tables"),
    *("--innodb-buffer-pool-size=64M", "--innodb-log-file-size=8M", "--innodb-flush-method=nosync"),
    "--skip-innodb-doublewrite",
    *("--innodb-flush-log-at-trx-commit=0", "--skip-log-bin", "--performance-schema=OFF"),
    "--innodb-lock-wait-timeout=900",
)


def missing() -> str:
    """Say why no cluster can be started here; empty: one can."""
    absent = [each for each in DAEMONS if shutil.which(each, path=FOLDERS) is None]
    if absent:
        return f"{', '.join(absent)} not installed"  # tests/install-tools.sh brings them
    return "" if os.geteuid() == 0 else "only root can run a Slurm cluster"


class Cluster:
    """The daemons of a cluster, each of which can be ended and started again.

    bounds: jobs are held by control groups; without, they are counted only.
    """

    def __init__(self, folder: Path, *, bounds: bool = False) -> None:
        self.folder, self._bounds = folder, bounds
        self.host = socket.gethostname().partition(".")[0]
        self._ports = {each: free_port() for each in ("ctld", "slurmd", "dbd", "database")}
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._prompt: Path | None = None

    @property
    def conf(self) -> Path:
        return self.folder / "slurm.conf"

    @property
    def variables(self) -> dict[str, str]:
        return {"PATH": FOLDERS, "SLURM_CONF": str(self.conf)}

    def begin(self) -> None:
        """Write the settings and start all of it."""
        for name in ("state", "spool", "db"):
            (self.folder / name).mkdir(mode=0o755)
        (self.folder / "munge.key").write_bytes(os.urandom(128))
        (self.folder / "munge.key").chmod(0o600)
        gres = ",".join(f"gpu:{name}:{count}" for name, count in GPUS.items())
        words = {**self._ports, "host": self.host, "folder": self.folder, "gres": gres}
        words |= {"tracked": "linuxproc", "tasks": "none"}
        if self._bounds:
            words |= {"tracked": "cgroup", "tasks": "cgroup"}
            (self.folder / "cgroup.conf").write_text(CGROUP)
        self.conf.write_text(SLURM.format(**words))
        (self.folder / "slurmdbd.conf").write_text(DBD.format(**words))
        (self.folder / "slurmdbd.conf").chmod(0o600)
        (self.folder / "gres.conf").write_text("".join(map(self._made_up, GPUS)))
        self._prompt = prompt_library(self.folder)
        made = self.folder / "db"
        self.call("mysql_install_db", "--no-defaults", "--user=root", f"--datadir={made}",
                  "--skip-test-db", "--auth-root-authentication-method=normal")  # fmt: skip
        for name in ("munged", "mariadbd", "slurmdbd"):
            self.start(name)
        self.ask(self._is_named, of="slurmdbd")  # slurmctld ends where its cluster is unknown
        self.start("slurmctld")
        self.start("slurmd")
        self.call("sacctmgr", "-i", "add", "account", "offpeak", "cluster=tests")
        self.call("sacctmgr", "-i", "add", "user", "root", "account=offpeak", "cluster=tests")
        self.ask(self.is_idle)

    def _made_up(self, name: str) -> str:
        """Make the devices of GPUs of a name, which no driver has; return their line."""
        first = 100 * list(GPUS).index(name)
        for number in range(GPUS[name]):
            device = os.makedev(NVIDIA, first + number)
            os.mknod(self.folder / f"{name}-{number}", 0o666 | stat.S_IFCHR, device)
        last = GPUS[name] - 1
        return f"Name=gpu Type={name} File={self.folder}/{name}-[0-{last}]\n"

    def start(self, name: str) -> None:
        """Start a daemon, and wait until it answers."""
        folder, ports = self.folder, self._ports
        command = {
            "munged": [
                *("munged", "--foreground", "--force", f"--socket={folder}/munge.socket"),
                *(f"--key-file={folder}/munge.key", f"--log-file={folder}/munged.log"),
                *(f"--pid-file={folder}/munged.pid", f"--seed-file={folder}/munge.seed"),
            ],
            "mariadbd": [
                *("mariadbd", *DATABASE, f"--datadir={folder}/db", f"--socket={folder}/db.socket"),
                f"--port={ports['database']}",
            ],
            "slurmdbd": ["slurmdbd", "-D"],
            "slurmctld": ["slurmctld", "-D"],
            "slurmd": ["slurmd", "-D", "-N", self.host],
        }[name]
        prompt = {"LD_PRELOAD": str(self._prompt)} if name == "slurmdbd" and self._prompt else {}
        variables = self.variables | prompt
        with (folder / f"{name}.out").open("ab") as log:
            self._daemons[name] = subprocess.Popen(
                command, env=variables, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        port = {"mariadbd": "database", "slurmdbd": "dbd", "slurmctld": "ctld"}.get(name, "")
        if name == "munged":
            self.ask((folder / "munge.socket").exists, of=name)
        elif port or name == "slurmd":
            self.ask(lambda: answers(ports[port or "slurmd"]), of=name)

    def end(self, name: str, how: signal.Signals = signal.SIGKILL) -> None:
        """End a daemon."""
        if (daemon := self._daemons.pop(name, None)) is not None:
            daemon.send_signal(how)
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def close(self) -> None:
        """End all of it, and what it runs."""
        if {"slurmctld", "munged"} <= self._daemons.keys():
            with suppress(subprocess.TimeoutExpired):
                self.call("scancel", "--user=root", seconds=10)
                self.ask(lambda: not self.call("squeue", "-h", "-o", "%A", seconds=10), seconds=20)
        for name in ("slurmd", "slurmctld", "slurmdbd"):
            self.end(name, signal.SIGTERM)
        self.end("mariadbd")
        if self._bounds:
            for made in Path("/sys/fs/cgroup").glob(f"*/slurm_{self.host}"):
                for folder, _, _ in os.walk(made, topdown=False):
                    os.rmdir(folder)
        self.end("munged", signal.SIGTERM)

    def call(self, *command: str, seconds: float = WAIT_SECONDS) -> str:
        """Return what a command says."""
        done = subprocess.run(
            command, env=self.variables, capture_output=True, text=True, timeout=seconds,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        return done.stdout + done.stderr

    def _is_named(self) -> bool:
        """Name the cluster to slurmdbd; tell if it knows it."""
        self.call("sacctmgr", "-i", "add", "cluster", "tests")
        return (
            "tests"
            in self.call("sacctmgr", "-n", "-P", "list", "cluster", "format=cluster").split()
        )

    def is_idle(self) -> bool:
        """Tell if the node would begin a job now: `idle*` is one that does not answer yet."""
        return self.call("sinfo", "-h", "-o", "%T").strip() in ("idle", "planned")

    def ask(
        self, what: Callable[[], object], *, seconds: float = WAIT_SECONDS, of: str = ""
    ) -> None:
        """Ask again until the answer is true. of: a daemon that must not end meanwhile."""
        deadline = time.monotonic() + seconds
        while not what():
            if of and self._daemons[of].poll() is not None:
                said = (self.folder / f"{of}.out").read_text(errors="replace")[-4_000:]
                raise AssertionError(f"{of} ended, having said:\n{said}")
            assert time.monotonic() < deadline, f"the cluster in {self.folder} does not come to it"
            time.sleep(0.05)


def prompt_library(folder: Path) -> Path | None:
    """Compile what lets slurmdbd answer at once (prompt.c); without a compiler all goes slower."""
    if (compiler := shutil.which("gcc") or shutil.which("cc")) is None:
        return None
    target = folder / "prompt.so"
    flags = ("-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared")
    subprocess.run([compiler, *flags, "-o", str(target), str(PROMPT), "-ldl"], check=True)
    return target


def answers(port: int) -> bool:
    """Tell if somebody listens there."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


# conftest.py names these: a module that imports them has a cluster of its own.
@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Give a cluster that all tests of this process share."""
    yield from _shared(tmp_path_factory, bounds=False)


@pytest.fixture(scope="session")
def bounding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Give a cluster that holds jobs by control groups, which all tests of this process share."""
    if not os.access(DEVICES, os.W_OK):
        pytest.skip("control groups of the first generation are not ours")
    yield from _shared(tmp_path_factory, bounds=True)


def _shared(folders: pytest.TempPathFactory, *, bounds: bool) -> Iterator[Cluster]:
    if why := missing():
        pytest.skip(why)
    made = Cluster(folders.mktemp("slurm"), bounds=bounds)
    try:
        made.begin()
        yield made
    finally:
        made.close()


class JobsRuntime(SlurmRuntime):
    """Starts work as an agent does over several ticks: until it began, or never will."""

    def start(self, spec: WorkSpec) -> Work:
        deadline = time.monotonic() + WAIT_SECONDS
        while (begun := super().start(spec)).state == "starting":
            assert time.monotonic() < deadline, f"it did not begin in time: {begun.detail}"
            time.sleep(0.02)
        if begun.lost and not begun.started_ms:
            self.forget(spec.lease_id)
            raise StartFailed(begun.detail)
        return begun


def of_cluster(cluster: Cluster, **said: str) -> Slurm:
    """Return the cluster as an agent uses it. said: other than it is."""
    return Slurm(**{"node": cluster.host, "conf": str(cluster.conf)} | said)


@pytest.fixture
def jobs(tmp_path: Path, cluster: Cluster) -> Iterator[JobsRuntime]:
    runtime = JobsRuntime(
        tmp_path, of_cluster(cluster), clock=SystemClock(), limits=LIMITS, pause=0.1
    )
    yield runtime
    deadline = time.monotonic() + WAIT_SECONDS
    while left := list(runtime.works()):
        for work in left:
            runtime.kill(work.lease_id)
            runtime.forget(work.lease_id)
        assert time.monotonic() < deadline, "it did not end in time"
        time.sleep(0.01)
    runtime.close()
