"""Work that means harm, beside the work of another lease: what it reads and writes of its folder.

What else it may try is a table, tried row by row in test_what_each_level_holds.py.
"""

from __future__ import annotations

import json
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from metering.agent.clock import SystemClock
from metering.agent.runtimes import egress
from metering.agent.runtimes.confinement import find
from metering.agent.runtimes.family import of_user
from metering.agent.runtimes.limits import Limits
from metering.agent.runtimes.port import WorkSpec
from metering.agent.runtimes.process import ProcessRuntime
from metering.agent.runtimes.users import WorkUsers, is_clear
from tests.metering.agent.works import (
    ROOT,
    accounts,
    ended,
    let_through,
    program,
    running,
    said,
    state,
    until,
)

pytestmark = ROOT
LIMITS = Limits(processes=40, file_bytes=1 << 20, memory_bytes=1 << 30)

VICTIM = """
import os, signal, time
open("model", "w").write("weights")
open(os.environ["TMPDIR"] + "/mine", "w").write("x")
print("ready", os.getpid(), flush=True)
time.sleep(600)
"""

HOSTILE = """
import ctypes, glob, json, os, signal, subprocess, sys
victim = sys.argv[1]
seen = {}

def may(name, act):
    try:
        seen[name] = act()
    except OSError as error:
        seen[name] = "refused"

def others():
    found = []
    for each in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat("/proc/" + each).st_uid != os.getuid():
                found.append(int(each))
        except OSError:
            pass
    return found

def environments():
    read = 0
    for each in others():
        try:
            read += bool(open(f"/proc/{each}/environ").read())
        except OSError:
            pass
    return read

def commands():
    texts = []
    for each in others():
        try:
            texts.append(open(f"/proc/{each}/cmdline").read())
        except OSError:
            pass
    return sum(os.path.basename(victim) in text or sys.argv[2] in text for text in texts)

may("environments", environments)
may("commands naming the lease", commands)
for name in ("work/model", "stdout.log", "stderr.log", "spec.json", "deadline.json", "notice.json"):
    may("read " + name, lambda: open(f"{victim}/{name}").read())
may("list", lambda: os.listdir(victim))
may("list leases", lambda: os.listdir(os.path.dirname(victim)))
may("write", lambda: open(os.path.join(victim, "work", ".checkpoint"), "w").write("x"))
may("own deadline", lambda: open("../deadline.json", "a").write("x"))
may("own exit", lambda: open("../exit.json", "w").write("x"))
may("own folder", lambda: open("../more", "w").write("x"))
may("neighbour's tmp", lambda: open(f"{victim}/tmp/mine").read())
may("shared tmp", lambda: os.path.exists("/tmp/mine"))
may("shadow", lambda: open("/etc/shadow").read())
may("root", lambda: os.setuid(0))
may("tmpdir is private", lambda: os.environ["TMPDIR"])
seen["uid"] = os.getuid()
seen["groups"] = os.getgroups()
print(json.dumps(seen), flush=True)
"""

FILLS = """
import os, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
wrote = 0
try:
    with open("big", "wb", buffering=0) as file:
        while wrote < 64 << 20:
            wrote += file.write(bytes(1 << 16))
except OSError:
    pass
print(wrote, flush=True)
"""

LEAVES = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
libc.shmget(0x0FF9EA4, 4096, 0o1666)
for place in ("/tmp", "/var/tmp", "/dev/shm"):
    os.makedirs(f"{place}/left-{os.getuid()}/deep", exist_ok=True)
    open(f"{place}/left-{os.getuid()}/deep/file", "w").write("x")
os.chmod("..", 0o777) if os.access("..", os.W_OK) else None
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    os.closerange(0, 20)
    import time
    time.sleep(600)
print("left", flush=True)
"""


@pytest.fixture(params=["account", "bubblewrap"])
def confined(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "bubblewrap")


@pytest.fixture
def users() -> WorkUsers:
    return accounts()


@pytest.fixture
def runtime(tmp_path: Path, users: WorkUsers, confined: bool) -> Iterator[ProcessRuntime]:
    with running(tmp_path / "state", users=users, confined=confined, limits=LIMITS) as runtime:
        yield runtime


@pytest.fixture
def victim(runtime: ProcessRuntime, tmp_path: Path) -> WorkSpec:
    wanted = program(VICTIM)
    runtime.start(wanted)
    until(lambda: "ready" in said(tmp_path / "state", wanted))
    return wanted


def test_it_sees_kills_reads_and_writes_nothing_of_another_lease(
    runtime: ProcessRuntime, victim: WorkSpec, tmp_path: Path, confined: bool
) -> None:
    folder = tmp_path / "state" / "leases" / str(victim.lease_id)
    token = tmp_path / "token"
    token.write_text("secret")
    token.chmod(0o600)
    runtime.notify(victim.lease_id, stop_at_ms=1_767_614_400_250)
    hostile = program(HOSTILE, str(folder), str(token))
    runtime.start(hostile)
    ended(runtime, hostile.lease_id)

    seen: dict[str, Any] = json.loads(said(tmp_path / "state", hostile))

    own = {"uid", "groups", "tmpdir is private", "shared tmp"}
    assert seen["environments"] == seen["commands naming the lease"] == 0
    counted = {"environments", "commands naming the lease"}
    assert {name: each for name, each in seen.items() if name not in own | counted} == {
        name: "refused" for name in seen if name not in own | counted
    }
    assert seen["uid"] not in (0, of_lease(folder))
    assert seen["groups"] in ([], [seen["uid"]])
    if confined:
        assert seen["shared tmp"] is False
    else:
        assert seen["tmpdir is private"] == str(
            tmp_path / "state" / "leases" / str(hostile.lease_id) / "tmp"
        )
    assert state(runtime, victim.lease_id) == "running"


def of_lease(folder: Path) -> int:
    return (folder / "work").stat().st_uid


def test_its_files_are_its_own_and_its_output_the_agents(
    runtime: ProcessRuntime, victim: WorkSpec, tmp_path: Path
) -> None:
    folder = tmp_path / "state" / "leases" / str(victim.lease_id)

    found = {each.name: each.stat() for each in folder.iterdir()}

    for name, about in found.items():
        if name not in ("passwd", "group", "hosts", "resolv.conf"):
            assert not stat.S_IMODE(about.st_mode) & 0o007, name
        assert about.st_uid == (of_lease(folder) if name in ("work", "tmp") else 0), name
    for name in ("stdout.log", "stderr.log", "spec.json", "started.json", "keeper.log"):
        assert stat.S_IMODE(found[name].st_mode) == 0o600, name
    assert not stat.S_IMODE(folder.stat().st_mode) & 0o027
    root = json.loads((folder / "started.json").read_text())
    for pid in (root["keeper_pid"], root["pid"]):
        command = Path(f"/proc/{pid}/cmdline").read_text()
        assert str(victim.lease_id) not in command and str(tmp_path) not in command


def test_it_cannot_fill_the_disk_with_one_file(runtime: ProcessRuntime, tmp_path: Path) -> None:
    hostile = program(FILLS)
    runtime.start(hostile)
    ended(runtime, hostile.lease_id)

    assert int(said(tmp_path / "state", hostile)) == 1 << 20


def test_nothing_of_it_is_left_when_its_account_comes_round_again(tmp_path: Path) -> None:
    users = accounts(1)
    with running(tmp_path / "state", users=users, confined=False) as runtime:
        hostile = program(LEAVES)
        runtime.start(hostile)
        ended(runtime, hostile.lease_id)
        uid = of_lease(tmp_path / "state" / "leases" / str(hostile.lease_id))
        assert of_user(uid) == [] and not is_clear(uid)

        runtime.forget(hostile.lease_id)

        assert is_clear(uid)
        for place in ("/tmp", "/var/tmp", "/dev/shm"):
            assert not Path(place, f"left-{uid}").exists()
        again = program("print('again')")
        runtime.start(again)
        ended(runtime, again.lease_id)
        assert said(tmp_path / "state", again) == "again\n"
        assert os.getuid() == 0


HOST_PORT = """
import socket, sys
print([line.split()[0] for line in open("/proc/net/route")][1:2])
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[1])), 2)
    print("reached")
except OSError:
    print("refused")
try:
    socket.create_connection(("10.0.2.2", int(sys.argv[1])), 2)
    print("reached")
except OSError:
    print("refused")
"""


def test_confined_work_has_a_way_out_and_none_to_the_hosts_loopback(
    tmp_path: Path, users: WorkUsers
) -> None:
    found, why = find(network="private", user=users.first, egress=egress.find(open_=True)[0])
    if found is None or found.way_out is None:
        pytest.skip(why or "slirp4netns or iptables is not installed")
    let_through(tmp_path / "state")
    runtime = ProcessRuntime(
        tmp_path / "state", clock=SystemClock(), users=users, confinement=found
    )
    with socket.create_server(("127.0.0.1", 0)) as host:
        wanted = program(HOST_PORT, str(host.getsockname()[1]))
        runtime.start(wanted)
        ended(runtime, wanted.lease_id)

        assert said(tmp_path / "state", wanted) == "['tap0']\nrefused\nrefused\n"
    runtime.forget(wanted.lease_id)
    assert list(runtime.works()) == []
