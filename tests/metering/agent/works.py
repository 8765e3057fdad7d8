"""Real work of leases, on a state directory that other users may pass through."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from metering.agent.clock import SystemClock
from metering.agent.runtimes.confinement import Confinement, find
from metering.agent.runtimes.limits import LIMITS, Limits
from metering.agent.runtimes.port import Mounted, Runtime, Work, WorkSpec
from metering.agent.runtimes.process import ProcessRuntime
from metering.agent.runtimes.users import WorkUsers, read_users

DEADLINE_SECONDS = 60.0
PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable
"""One that every user may run; the tests' own may lie in root's folder."""
FIRST_UID = 400_000
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run work as another user")
_spans = itertools.count()


def until(ask: Callable[[], object], *, why: str = "it did not come about in time") -> object:
    """Ask again until the answer is true, within the deadline."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (answer := ask()):
        assert time.monotonic() < deadline, why
        time.sleep(0.01)
    return answer


def accounts(count: int = 4) -> WorkUsers:
    """Return accounts that no other test of this machine uses."""
    first = FIRST_UID + os.getpid() % 10_000 * 64 + next(_spans) * 4 % 64
    return WorkUsers(read_users(f"{first}-{first + count - 1}"))


def work_options(*, confined: bool = False) -> list[str]:
    """Return the options by which an agent may run real work here, in bubblewrap or not."""
    confine = [] if confined else ["--confine", "off"]
    if os.geteuid() != 0:
        return [] if confined else ["--trust-work", *confine]
    uids = accounts(4).uids
    return ["--work-users", f"{uids[0]}-{uids[-1]}", *confine]


def let_through(folder: Path) -> None:
    """Let every user pass through a folder that pytest keeps to ours."""
    folder.mkdir(exist_ok=True)
    while folder != folder.parent:
        mode = folder.stat().st_mode
        if not mode & 0o001:
            folder.chmod(mode | 0o011)
        folder = folder.parent


def confinement(users: WorkUsers | None, *readable: Path) -> Confinement:
    """Return bubblewrap as it is here, without a network."""
    found, why = find(
        network="none", readable=readable, user=None if users is None else users.first
    )
    if found is None:
        pytest.skip(why)  # tests/install-tools.sh brings it
    return found


@contextmanager
def running(
    folder: Path, *, users: WorkUsers, confined: bool, limits: Limits = LIMITS
) -> Iterator[ProcessRuntime]:
    """Give a runtime, and end what runs in it."""
    let_through(folder)
    runtime = ProcessRuntime(
        folder,
        clock=SystemClock(),
        users=users,
        confinement=confinement(users) if confined else None,
        limits=limits,
    )
    yield runtime
    for work in runtime.works():
        runtime.kill(work.lease_id)
        ended(runtime, work.lease_id)
        runtime.forget(work.lease_id)
    assert list(runtime.works()) == []


def program(code: str, *arguments: str) -> WorkSpec:
    """Return a lease whose work is a program in Python."""
    command = (PYTHON, "-c", code, *arguments)
    return WorkSpec(lease_id=uuid4(), gpu_uuids=("GPU-a",), command=command)


def mounted(folder: Path, wanted: WorkSpec) -> WorkSpec:
    """Return work with a volume that it writes to and one that it reads."""
    mounts = []
    for names, writable in ((("volumes", "data"), True), (("models", "base"), False)):
        source = folder / f"came {names[1]}"
        source.mkdir()
        (source / "a").write_text("/".join(names))
        mounts.append(Mounted(names, source, writable=writable))
    return replace(wanted, volumes=tuple(mounts))


def state(runtime: Runtime, lease_id: UUID) -> str:
    return next(work.state for work in runtime.works() if work.lease_id == lease_id)


def ended(runtime: Runtime, lease_id: UUID) -> Work:
    until(lambda: state(runtime, lease_id) == "ended")
    return next(work for work in runtime.works() if work.lease_id == lease_id)


def said(folder: Path, wanted: WorkSpec) -> str:
    """Return what the work has printed so far."""
    output = folder / "leases" / str(wanted.lease_id) / "stdout.log"
    return output.read_text() if output.exists() else ""
