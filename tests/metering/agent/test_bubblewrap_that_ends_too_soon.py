"""bubblewrap that ends before the command could begin is not the command, and is tried again.

A program in its place fails as it does, or tells of its steps as it does.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from metering.agent.clock import SystemClock
from metering.agent.runtimes import egress
from metering.agent.runtimes.confinement import Confinement
from metering.agent.runtimes.confining import TRIES_MAX
from metering.agent.runtimes.port import StartFailed
from metering.agent.runtimes.process import ProcessRuntime
from tests.metering.agent.workloads import ended, spec
from tests.metering.agent.works import ROOT, confinement, let_through

SENTENCE = "bwrap: loopback: Failed RTM_NEWADDR: No child processes"
HEAD = f"#!{sys.executable} -IS\nimport os, sys, time\n"
FAILS = """
with open({starts!r}, "a") as starts:
    starts.write("x")
    if starts.tell() <= {times}:
        sys.exit({sentence!r})
os.execv({bwrap!r}, [{bwrap!r}, *sys.argv[1:]])
"""
STEPS = """
said = sys.argv
tell, wait = (int(said[said.index(each) + 1]) for each in ("--json-status-fd", "--block-fd"))
def wait_for_us():
    os.read(wait, 1)
    os.close(wait)
"""
NEVER_BEGINS = """
os.write(tell, b'{ "child-pid": %d }' % os.getpid())
wait_for_us()
sys.exit("bwrap: Can't fork for pid 1: Resource temporarily unavailable")
"""
LOOPBACK_OF_ITS_OWN = """
import ctypes, fcntl, socket, struct
CLONE_NEWNET, SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x40000000, 0x8913, 0x8914, 1
assert not ctypes.CDLL(None).unshare(CLONE_NEWNET)
os.write(tell, b'{ "child-pid": %d }' % os.getpid())
asked = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
def flags():
    said = fcntl.ioctl(asked, SIOCGIFFLAGS, struct.pack("16sh14x", b"lo", 0))
    return struct.unpack("16sh14x", said)[1]
until = time.monotonic() + 1
while time.monotonic() < until:
    if flags() & IFF_UP:
        sys.exit("bwrap: somebody else made its loopback")
fcntl.ioctl(asked, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags() | IFF_UP))
wait_for_us()
os.write(tell, b'{ "exit-code": 0 }')
"""

Runs = Callable[[Confinement], ProcessRuntime]


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    let_through(tmp_path)
    return lambda found: ProcessRuntime(
        tmp_path / "runtime", clock=SystemClock(), confinement=found
    )


def program(folder: Path, code: str) -> str:
    """Return a program that stands for bwrap."""
    path = folder / "bwrap"
    path.write_text(HEAD + code)
    path.chmod(0o755)
    return str(path)


def failing(folder: Path, *, times: int) -> Confinement:
    """Return bwrap that ends at once, so many times."""
    real = confinement(None)
    starts = str(folder / "starts")
    code = FAILS.format(starts=starts, times=times, sentence=SENTENCE, bwrap=real.bwrap)
    return replace(real, bwrap=program(folder, code))


@pytest.mark.parametrize("times", [1, TRIES_MAX - 1])
def test_it_is_tried_again(runs: Runs, tmp_path: Path, times: int) -> None:
    runtime = runs(failing(tmp_path, times=times))
    wanted = spec("/bin/sh", "-c", "echo here; exit 3")

    runtime.start(wanted)

    work = ended(runtime, wanted.lease_id)
    assert (work.exit_code, work.lost) == (3, False)
    out = tmp_path / "runtime" / "leases" / str(wanted.lease_id)
    assert (out / "stdout.log").read_text() == "here\n"
    assert (out / "stderr.log").read_text() == ""


def test_where_it_never_comes_about_the_start_fails_with_its_words(
    runs: Runs, tmp_path: Path
) -> None:
    runtime, wanted = runs(failing(tmp_path, times=1000)), spec("/bin/true")

    try:
        runtime.start(wanted)
    except StartFailed as failed:
        why = str(failed)
    else:  # it took longer than a start is waited for
        work = ended(runtime, wanted.lease_id)
        assert work.lost and not work.started_ms
        why = work.detail

    assert SENTENCE in why
    assert (tmp_path / "starts").read_text() == "x" * TRIES_MAX


def test_what_ends_as_the_command_should_begin_is_no_exit_code(runs: Runs, tmp_path: Path) -> None:
    found = replace(confinement(None), bwrap=program(tmp_path, STEPS + NEVER_BEGINS))
    runtime, wanted = runs(found), spec("/bin/true")

    runtime.start(wanted)

    work = ended(runtime, wanted.lease_id)
    assert (work.exit_code, work.lost) == (None, True)
    assert work.detail == "bwrap: Can't fork for pid 1: Resource temporarily unavailable"


def test_a_command_that_is_not_there_ended_by_itself(runs: Runs) -> None:
    runtime, wanted = runs(confinement(None)), spec("/nonexistent/program")

    runtime.start(wanted)

    work = ended(runtime, wanted.lease_id)
    assert (work.exit_code, work.lost) == (1, False)


@ROOT
def test_its_loopback_is_left_to_it(runs: Runs, tmp_path: Path) -> None:
    slirp, filtering = shutil.which("slirp4netns"), egress.find(open_=True)[0]
    if slirp is None or filtering is None:
        pytest.skip("slirp4netns or iptables is not installed")  # tests/install-tools.sh brings it
    found = replace(
        confinement(None),
        bwrap=program(tmp_path, STEPS + LOOPBACK_OF_ITS_OWN),
        network="private",
        slirp=slirp,
        egress=filtering,
    )
    runtime, wanted = runs(found), spec("/bin/true")

    runtime.start(wanted)

    assert ended(runtime, wanted.lease_id).exit_code == 0
