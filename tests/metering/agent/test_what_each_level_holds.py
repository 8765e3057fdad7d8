"""The table of config/docs/isolation.md, tried: each act, on each level, beside another's lease."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

from metering.agent.clock import SystemClock
from metering.agent.runtimes import device_lists, groups
from metering.agent.runtimes import podman as containing
from metering.agent.runtimes.family import of_user
from metering.agent.runtimes.levels import Level
from metering.agent.runtimes.limits import Limits
from metering.agent.runtimes.podman import Podman
from metering.agent.runtimes.port import WorkSpec
from metering.agent.runtimes.process import ProcessRuntime
from metering.agent.runtimes.slurm_secrets import Handover
from tests.metering.agent.cluster import TOGETHER, Cluster, JobsRuntime, of_cluster
from tests.metering.agent.containers import contained
from tests.metering.agent.containers import image as image
from tests.metering.agent.containers import podman as podman
from tests.metering.agent.works import (
    ROOT,
    accounts,
    confinement,
    ended,
    let_through,
    program,
    said,
    until,
)

pytestmark = ROOT
DOCS = Path(__file__).parents[3] / "config" / "docs" / "isolation.md"
LEVELS: tuple[Level, ...] = ("account", "process", "full", "container")
ON_SLURM: dict[str, Level] = {
    "Slurm, account": "account",
    "Slurm, process": "process",
    "Slurm that only counts": "account",
}
"""Columns of the second table, which has what is otherwise than the level says."""
MIB = 1 << 20
DISK = 24 * MIB
LIMITS = Limits(processes=40, file_bytes=MIB, memory_bytes=256 * MIB)
MINOR = 128 + os.getpid() % 60 * 2
OTHER = MINOR + 1
"""Of device files that stand for cards: of the lease's own and of another's. No driver answers at
them: that the kernel asks for one tells that they were reached."""
CARDS_ON_SLURM = (os.makedev(1, 3), os.makedev(device_lists.NVIDIA, 100))
"""There a job cannot choose which of the cluster's cards it has: the second is a GPU-b."""
BY_ITSELF = ("fork bomb", "daemon that outlives its work", "memory beyond the bound")


def table() -> dict[str, dict[str, str]]:
    """Return what the documentation says: by act and column, its first word."""
    found: dict[str, dict[str, str]] = {}
    columns: list[str] = []
    for line in DOCS.read_text().splitlines():
        first, *cells = [cell.strip().replace("`", "") for cell in line.strip("|").split("|")]
        if first == "act" or not cells:
            columns = cells
        elif columns and re.match(r"[a-z]+:", cells[0]):
            words = [cell.partition(":")[0] for cell in cells]
            found.setdefault(first, {}).update(zip(columns, words, strict=True))
    for row in found.values():
        for column, level in ON_SLURM.items():
            row.setdefault(column, row[level])
    return found


VICTIM = """
import ctypes, json, os, socket, time
open("model", "w").write("weights")
abstract = socket.socket(socket.AF_UNIX)
abstract.bind("\\0offpeak-victim-" + os.environ["WORD"])
abstract.listen(8)
port = socket.create_server(("0.0.0.0", 0))
libc = ctypes.CDLL(None)
key = int(os.environ["WORD"])
assert libc.shmget(key, 4096, 0o1666) >= 0
print(port.getsockname()[1], flush=True)
time.sleep(600)
"""

HOSTILE = """
import ctypes, errno, json, os, signal, socket, subprocess, sys
about = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
found = {}

def tries(name):
    def run(act):
        try:
            found[name] = "reached" if act() else "refused"
        except OSError:
            found[name] = "refused"
    return run

def others():
    seen = []
    for each in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat("/proc/" + each).st_uid not in (os.getuid(), 65534):
                seen.append(int(each))
        except OSError:
            pass
    return seen

def signals():
    hit = 0
    for each in others():
        try:
            os.kill(each, signal.SIGKILL)
            hit += 1
        except OSError:
            pass
    return hit

def connects(address, family=socket.AF_INET):
    one = socket.socket(family)
    one.settimeout(2)
    one.connect(address)
    return True

def opens(card):
    try:
        os.close(os.open(card, os.O_RDWR))
    except OSError as error:
        return error.errno in (errno.ENXIO, errno.ENODEV)
    return True

def reads(path):
    return open(path).read(1) is not None

def dumps():
    import resource
    if resource.getrlimit(resource.RLIMIT_CORE)[1]:
        return True
    return os.waitstatus_to_exitcode(os.system("kill -SEGV $$")) > 255

def shared():
    number = libc.shmget(about["word"], 0, 0)
    return number >= 0 and libc.shmat(number, None, 0) not in (None, ctypes.c_void_p(-1).value)

def fills(folder):
    wrote = 0
    try:
        while wrote < about["most"]:
            with open(f"{folder}/fill-{wrote}", "wb") as file:
                file.write(bytes(1 << 20))
            wrote += 1 << 20
    except OSError:
        pass
    for each in range(0, wrote + 1, 1 << 20):
        try:
            os.unlink(f"{folder}/fill-{each}")
        except OSError:
            pass
    return "bounded" if wrote < about["most"] else "unbounded"

tries("seeing other processes")(others)
tries("signalling other processes")(signals)
tries("tracing other processes")(lambda: any(libc.ptrace(16, pid, 0, 0) == 0 for pid in others()))
tries("abstract socket of a neighbour")(
    lambda: connects("\\0offpeak-victim-" + str(about["word"]), socket.AF_UNIX))
tries("System V memory of a neighbour")(shared)
tries("loopback of the host")(lambda: connects(("127.0.0.1", about["host port"])))
tries("scanning for open ports")(lambda: connects(("127.0.0.1", about["victim port"])))
tries("core dump")(dumps)
tries("setuid program")(
    lambda: int(subprocess.check_output([about["setuid"], "-u"])) != os.getuid())
tries("card of another lease")(lambda: opens(about["card"]))
tries("folder of another lease")(lambda: reads(os.path.join(about["victim"], "work", "model")))
tries("token of the agent")(lambda: reads(about["token"]))
tries("secret of a lease that waits")(lambda: reads(about["waiting secret"]))
found["filling the disk"] = fills(".")
found["filling /tmp"] = fills("/tmp")
tries("new user namespace")(lambda: libc.unshare(0x10000000) == 0)
tries("own card")(lambda: opens(about["own card"]))
print(json.dumps(found), flush=True)
"""

SPREADS = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
made = 0
while made < 200:
    try:
        if os.fork() == 0:
            os.setsid()
            time.sleep(600)
    except OSError:
        break
    made += 1
print("bounded" if made < 200 else "unbounded", flush=True)
time.sleep(600)
"""

LEAVES = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    os.closerange(0, 20)
    time.sleep(600)
print("left", flush=True)
"""

TAKES = """
import os, time
for _ in range(3):
    if os.fork() == 0:
        held = bytearray(b"x" * (150 << 20))
        time.sleep(600)
time.sleep(600)
"""


DATA = "Max data size"


@dataclass
class Host:
    """A runtime, with a victim in it, and what a hostile program is told. at: its column."""

    at: str
    runtime: ProcessRuntime
    folder: Path
    about: dict[str, object]

    def uid(self, wanted: WorkSpec) -> int:
        return (self.folder / "leases" / str(wanted.lease_id) / "work").stat().st_uid


def runtime_at(
    at: str, request: pytest.FixtureRequest, folder: Path, readable: Path
) -> ProcessRuntime:
    level, limits = ON_SLURM.get(at, at), LIMITS
    if level in ("full", "container"):
        limits = Limits(processes=40, file_bytes=MIB, memory_bytes=256 * MIB, disk_bytes=DISK)
    let_through(folder)
    if level == "container":
        podman: Podman = request.getfixturevalue("podman")
        podman = replace(podman, readable=(Path("/usr"), readable), cdi=True)
        return contained(folder, podman, request.getfixturevalue("image"), limits=limits)
    users = accounts()
    confined = None if level == "account" else confinement(users, readable)
    if at in ON_SLURM:
        cluster: Cluster = request.getfixturevalue("cluster" if "counts" in at else "bounding")
        return JobsRuntime(
            folder, of_cluster(cluster), clock=SystemClock(), users=users, confinement=confined,
            limits=replace(limits, cpus=1), pause=0.1,
        )  # fmt: skip
    return ProcessRuntime(
        folder, clock=SystemClock(), users=users, confinement=confined, limits=limits
    )


@contextmanager
def described(card: Path) -> Iterator[str]:
    """Describe a card as NVIDIA's tool does for containers; give the kind that it is of."""
    kind = f"offpeak.example/gpu{os.getpid()}"
    text = {
        "cdiVersion": "0.5.0",
        "kind": kind,
        "devices": [
            {"name": "GPU-a", "containerEdits": {"deviceNodes": [{"path": str(card)}]}},
        ],
    }
    file = Path("/var/run/cdi", f"offpeak-tests-{os.getpid()}.json")
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(text))
    try:
        yield kind
    finally:
        file.unlink()


@pytest.fixture(params=[*LEVELS, *(pytest.param(each, marks=TOGETHER) for each in ON_SLURM)])
def host(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Host]:
    word = os.getpid()
    tools, token = tmp_path / "tools", tmp_path / "token"
    tools.mkdir()
    token.write_text("secret")
    token.chmod(0o600)
    memory = Path("/dev/shm", f"offpeak-{tmp_path.parent.name}-{tmp_path.name}")
    waiting = Handover.for_agent(tmp_path, place=memory).put(uuid4(), {"secrets": {}})
    setuid = tools / "id"
    shutil.copy("/usr/bin/id", setuid)
    setuid.chmod(0o4755)
    for minor, uuid in ((MINOR, "GPU-a"), (OTHER, "GPU-b")):
        driver = tmp_path / "gpus" / uuid
        driver.mkdir(parents=True)
        (driver / "information").write_text(f"GPU UUID: {uuid}\nDevice Minor: {minor}\n")
    monkeypatch.setattr(device_lists, "GPU_FOLDER", tmp_path / "gpus")
    cards = [Path(f"/dev/nvidia{minor}") for minor in (MINOR, OTHER)]
    runtime = runtime_at(request.param, request, tmp_path / "state", tools)
    if runtime.sandbox.level != ON_SLURM.get(request.param, request.param):
        pytest.skip(f"this host gives {runtime.sandbox.level}: {runtime.sandbox.enforces}")
    on_slurm = request.param in ON_SLURM
    ours = tuple(os.makedev(device_lists.NVIDIA, minor) for minor in (MINOR, OTHER))
    devices = CARDS_ON_SLURM if on_slurm else ours
    victim = program(VICTIM)
    if on_slurm:
        victim = replace(victim, gpu_uuids=("GPU-b",))
    object.__setattr__(victim, "environment", {"WORD": str(word)})
    with described(cards[0]) as kind, socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(containing, "CDI_KIND", kind)
        for card, device in zip(cards, devices, strict=True):
            os.mknod(card, 0o20666, device)
            card.chmod(0o666)
        try:
            runtime.start(victim)
            until(lambda: said(tmp_path / "state", victim))
            about: dict[str, object] = {
                "word": word,
                "most": 4 * DISK,
                "host port": server.getsockname()[1],
                "victim port": int(said(tmp_path / "state", victim)),
                "victim": str(tmp_path / "state" / "leases" / str(victim.lease_id)),
                "setuid": str(setuid),
                "token": str(token),
                "waiting secret": str(waiting),
                "own card": str(cards[0]),
                "card": str(cards[1]),
            }
            yield Host(request.param, runtime, tmp_path / "state", about)
        finally:
            shutil.rmtree(memory)
            for card in cards:
                card.unlink()
            for work in runtime.works():
                runtime.kill(work.lease_id)
                ended(runtime, work.lease_id)
                runtime.forget(work.lease_id)
            until(lambda: not any((tmp_path / "state" / "leases").iterdir()) or runtime.works())
    assert list(runtime.works()) == []


def test_what_each_level_lets_work_do_is_what_the_documentation_says(host: Host) -> None:
    hostile = program(HOSTILE, json.dumps(host.about))
    host.runtime.start(hostile)
    ended(host.runtime, hostile.lease_id)

    found = json.loads(said(host.folder, hostile))

    assert found.pop("own card") == "reached", "what is its own it has"
    told = {act: words[host.at] for act, words in table().items()}
    if host.at == "account" and "devices" not in groups.kept_by(LIMITS):
        told["card of another lease"] = "reached"  # as the cell says
    assert found == {act: word for act, word in told.items() if act not in BY_ITSELF}
    assert set(found) | set(BY_ITSELF) == set(told), "each row of the table is tried"


def test_it_spreads_within_bounds_and_nothing_of_it_is_left(host: Host) -> None:
    for code in (SPREADS, LEAVES):
        hostile = program(code)
        host.runtime.start(hostile)
        uid = host.uid(hostile)
        until(partial(said, host.folder, hostile))
        if code is SPREADS:
            assert said(host.folder, hostile) == table()["fork bomb"][host.at] + "\n"
            assert len(of_user(uid)) <= LIMITS.processes
            host.runtime.kill(hostile.lease_id)
        ended(host.runtime, hostile.lease_id)

        assert of_user(uid) == []
    assert table()["daemon that outlives its work"][host.at] == "gone"


def test_it_takes_no_more_memory_than_its_bound(host: Host) -> None:
    assert table()["memory beyond the bound"][host.at] == "bounded"
    if host.at == "Slurm that only counts":
        return each_process_is_bounded(host)
    if "memory" not in groups.kept_by(LIMITS):
        pytest.skip("only root of a host with control groups can bound memory so")
    hostile = program(TAKES)
    host.runtime.start(hostile)
    peaks = [
        file
        for group in groups_of(host, hostile)
        for file in (group / "memory.max_usage_in_bytes", group / "memory.peak")
        if file.exists()
    ]

    until(lambda: any(int(file.read_text()) > 128 * MIB for file in peaks))

    assert all(int(file.read_text()) <= 256 * MIB for file in peaks)
    host.runtime.kill(hostile.lease_id)
    ended(host.runtime, hostile.lease_id)
    host.runtime.forget(hostile.lease_id)
    until(lambda: not host.runtime.works()[1:] and not any(file.exists() for file in peaks))


def each_process_is_bounded(host: Host) -> None:
    """All of them together are not, where the cluster counts only."""
    hostile = program(TAKES)
    host.runtime.start(hostile)
    uid = host.uid(hostile)
    until(lambda: any(each.name.startswith("python") for each in of_user(uid)))

    found = [Path(f"/proc/{each.pid}/limits").read_text() for each in of_user(uid)]

    bounds = [line.split()[3] for text in found for line in text.splitlines() if DATA in line]
    assert bounds and all(int(each) <= 256 * MIB for each in bounds)
    host.runtime.kill(hostile.lease_id)
    ended(host.runtime, hostile.lease_id)


def groups_of(host: Host, wanted: WorkSpec) -> list[Path]:
    """Return the control groups that hold the work of a lease."""
    if host.at not in ("container", *ON_SLURM):
        return groups.all_of(str(wanted.lease_id))
    (pid, *_) = [root["pid"] for of, root in host.runtime._roots.items() if of == wanted.lease_id]
    paths = [line.split(":")[2] for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()]
    within = [path for path in paths if "libpod" in path or "/job_" in path]
    return [Path(f"/sys/fs/cgroup{at}{path}") for at in ("", "/memory") for path in set(within)]


def test_what_a_lease_wrote_is_gone_before_its_account_comes_round(host: Host) -> None:
    wrote = program("open('result', 'w').write('x')")
    host.runtime.start(wrote)
    ended(host.runtime, wrote.lease_id)
    folder = host.folder / "leases" / str(wrote.lease_id)

    host.runtime.forget(wrote.lease_id)

    # Of a container podman puts its own away first, which nobody waits for.
    until(lambda: host.runtime.works() and not folder.exists())
    assert not [
        each for each in Path("/proc/self/mounts").read_text().split() if str(folder) in each
    ]
    kept = host.folder / "ended" / str(wrote.lease_id)
    assert {each.name for each in kept.iterdir()}.isdisjoint({"work", "tmp", "disk", "disk.img"})
