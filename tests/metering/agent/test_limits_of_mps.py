"""Limits of shares by MPS are the server's: set by the agent, and not for work to lift."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from listings.domain.divisions import divide
from listings.domain.events import Division, Part
from metering.agent import doctor, work_in
from metering.agent.clock import SystemClock
from metering.agent.gpus.nvml import NvmlGpus
from metering.agent.runtimes.mps import daemons as module
from metering.agent.runtimes.mps import modes
from metering.agent.runtimes.mps.control import Control
from metering.agent.runtimes.mps.daemons import AgentsDaemons
from metering.agent.runtimes.mps.limits import CardLimits, holds, limits_of
from metering.agent.runtimes.mps.owners import OwnersDaemon
from metering.agent.runtimes.port import NotYet, StartFailed, WorkSpec
from metering.agent.runtimes.process import ProcessRuntime
from metering.agent.runtimes.users import WorkUsers
from tests.forking import Fork
from tests.metering.agent.mps_hosts import CARD, EQUAL, made, started
from tests.metering.agent.mps_hosts import daemons as daemons
from tests.metering.agent.mps_hosts import programs as programs
from tests.metering.agent.mps_hosts import short as short
from tests.metering.agent.works import ROOT, accounts, ended, let_through, said, state, until
from tests.mps.installed import Programs

PARTS = Division("mps", parts=(Part(50_000, 75), Part(20_000, 25)))
LARGE, SMALL = (share.uuid for share in divide(CARD, PARTS))
OWN = {"percent": 25.0, "memory_mib": 20_480, "mps": True}
"""What holds for work on an equal share."""


# --- the rules -----------------------------------------------------------------------------------


@given(st.lists(st.sampled_from([*EQUAL, LARGE, SMALL, "GPU-5e1f", "GPU-b"])))
def test_the_server_has_the_limits_of_the_largest_share(uuids: list[str]) -> None:
    limits = limits_of(CARD.uuid, uuids)

    shares = {EQUAL[0]: (25, 20_480), LARGE: (75, 50_000), SMALL: (25, 20_000)}
    sizes = [shares[EQUAL[0] if uuid in EQUAL else uuid] for uuid in uuids if "/" in uuid]
    if sizes:
        percents, memories = zip(*sizes, strict=True)
        assert limits == CardLimits(max(percents), max(memories))
    else:
        assert limits is None


@pytest.mark.parametrize(
    ("percent", "memory", "held"),
    [
        ("25.0", "5758M", True),
        ("25", "Device GPU-5e1f: 5758 MiB", True),
        ("25.0", "6037700608", True),  # bytes
        ("25.0", "5G", False),  # another figure
        ("25.0", "5.6G", True),  # rounded down
        ("25.0", "6G", False),
        ("100.0", "5758M", False),
        ("25.0", "", False),
        ("25.0", "none", False),
        ("25.0", "0", False),
        ("", "5758M", False),
    ],
)
def test_limits_count_as_set_when_the_daemon_says_them(
    percent: str, memory: str, held: bool
) -> None:
    assert holds(CardLimits(25, 5758), percent=percent, memory=memory) == held


# --- with the programs ---------------------------------------------------------------------------


def brought_up(daemons: AgentsDaemons, uuid: str, *held: str) -> Path:
    """Ask for MPS until it is there, as the agent does at each tick."""

    def is_ready() -> bool:
        try:
            daemons.ready([uuid], held)
        except NotYet:
            return False
        return True

    until(is_ready)
    return daemons.pipe_of([uuid])


def control_of(short: Path, programs: Programs) -> Control:
    (folder,) = (each for each in (short / "state" / "mps").iterdir() if each.is_dir())
    return Control(programs.control, folder, CARD.uuid)


def tended(daemons: AgentsDaemons, held: list[str], ask: Callable[[], object]) -> None:
    """Wait for something while the agent ticks."""

    def answer() -> object:
        daemons.tidy(held)
        return ask()

    until(answer)


def recorded(short: Path) -> list[object]:
    """Return the cards that the agent has written down."""
    found = json.loads((short / "state" / "mps" / "cards.json").read_text())
    return list(found["cards"])


def alive(control: Control) -> tuple[int, int]:
    """Return what tells a daemon from every other process."""
    daemon = control.daemon()
    assert daemon is not None
    return daemon.pid, daemon.ticks


def gone(short: Path) -> bool:
    return not [each for each in (short / "state" / "mps").iterdir() if each.is_dir()]


@ROOT
def test_a_daemon_comes_with_the_first_share_and_goes_with_the_last(
    short: Path, programs: Programs, daemons: AgentsDaemons
) -> None:
    pipe = brought_up(daemons, EQUAL[0])
    control = control_of(short, programs)
    assert pipe == control.pipe
    assert programs.mode(CARD.uuid) == "Exclusive_Process"
    assert control.ask("get_default_active_thread_percentage") == "25.0"
    first = alive(control)

    assert brought_up(daemons, EQUAL[1], EQUAL[0]) == pipe
    daemons.tidy([EQUAL[1]])
    assert alive(control) == first

    tended(daemons, [], lambda: gone(short))
    assert control.members() == []
    until(lambda: programs.mode(CARD.uuid) == "Default")
    tended(daemons, [], lambda: not recorded(short))
    daemons.ready([CARD.uuid], [])  # the whole card may be leased now


@ROOT
def test_the_whole_card_waits_for_mps_to_leave_it(short: Path, daemons: AgentsDaemons) -> None:
    brought_up(daemons, EQUAL[0])

    with pytest.raises(NotYet, match="being ended"):
        daemons.ready([CARD.uuid], [])

    def may_start() -> bool:
        daemons.tidy([])
        try:
            daemons.ready([CARD.uuid], [])
        except NotYet:
            return False
        return True

    until(may_start)
    assert gone(short)


@ROOT
def test_limits_follow_the_largest_share_that_is_leased(
    short: Path, programs: Programs, daemons: AgentsDaemons
) -> None:
    brought_up(daemons, SMALL)
    control = control_of(short, programs)
    assert control.ask("get_default_active_thread_percentage") == "25.0"

    brought_up(daemons, LARGE, SMALL)
    assert control.ask("get_default_active_thread_percentage") == "75.0"

    def are_lower() -> bool:
        daemons.tidy([SMALL])
        share = control.ask("get_default_active_thread_percentage")
        memory = control.ask(f"get_default_device_pinned_mem_limit {CARD.uuid}")
        return (share, memory) == ("25.0", "20000M")

    until(are_lower)


@ROOT
@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("old", "Invalid option"),
        ("open", "work could set its own limits"),
        ("deaf", "was told 25 % and 20480 MiB"),
    ],
)
def test_a_share_is_not_started_where_its_limits_would_not_hold(
    short: Path, programs: Programs, daemons: AgentsDaemons, fault: str, why: str
) -> None:
    programs.fail(fault)

    with pytest.raises(StartFailed, match=why):
        brought_up(daemons, EQUAL[0])

    assert gone(short)  # nothing is left of it
    assert programs.mode(CARD.uuid) == "Default"


@ROOT
def test_a_name_too_long_for_a_socket_is_refused_with_that_reason(
    short: Path, programs: Programs
) -> None:
    daemons = AgentsDaemons(short / ("x" * 90), control=programs.control, smi=programs.smi)

    with pytest.raises(StartFailed, match="too long a name"):
        brought_up(daemons, EQUAL[0])


@ROOT
def test_a_daemon_that_died_is_brought_up_again(
    short: Path, programs: Programs, daemons: AgentsDaemons
) -> None:
    brought_up(daemons, EQUAL[0])
    control = control_of(short, programs)
    before = alive(control)
    control.kill()

    tended(daemons, [EQUAL[0]], control.daemon)

    assert alive(control) != before
    brought_up(daemons, EQUAL[1], EQUAL[0])


# --- an agent that is killed ---------------------------------------------------------------------


@ROOT
@pytest.mark.parametrize("is_used", [True, False])
def test_the_next_agent_takes_up_a_daemon_that_is_used_and_ends_one_that_is_not(
    short: Path, programs: Programs, daemons: AgentsDaemons, is_used: bool
) -> None:
    brought_up(daemons, EQUAL[0])
    control = control_of(short, programs)
    before = alive(control)

    after = made(short, programs)  # the first one is never heard of again
    if is_used:
        assert brought_up(after, EQUAL[1], EQUAL[0]) == control.pipe
        assert alive(control) == before
    else:
        tended(after, [], lambda: gone(short))
        until(lambda: programs.mode(CARD.uuid) == "Default")
        assert control.members() == []


STEPS = ("write_json", "set_mode", "start", "close", "limit", "end")


def serve_until(step: str, short: Path, programs: Programs) -> None:
    """Bring up a daemon and end it, and be killed right after a step."""

    def doomed(name: str, owner: object) -> None:
        inner = getattr(owner, name)

        def then_die(*arguments: object) -> object:
            inner(*arguments)
            os._exit(9)

        setattr(owner, name, then_die)

    owner = {"write_json": module, "set_mode": modes}.get(step, Control)
    doomed(step, owner)
    own = made(short, programs)
    brought_up(own, EQUAL[0])
    tended(own, [], lambda: gone(short))


@ROOT
@pytest.mark.parametrize("step", STEPS)
def test_killed_after_any_step_it_leaves_no_daemon_and_no_exclusive_card(
    short: Path, programs: Programs, step: str
) -> None:
    dead = Fork(serve_until, step, short, programs, log=short / "log.txt")
    assert dead.wait(60) == 9

    after = made(short, programs)
    tended(after, [], lambda: gone(short) and programs.mode(CARD.uuid) == "Default")

    tended(after, [], lambda: not recorded(short))
    brought_up(after, EQUAL[0])


# --- work ----------------------------------------------------------------------------------------


@pytest.fixture
def users() -> WorkUsers:
    return accounts()


@pytest.fixture
def runtime(short: Path, daemons: AgentsDaemons, users: WorkUsers) -> Iterator[ProcessRuntime]:
    let_through(short)
    runtime = ProcessRuntime(short / "state", clock=SystemClock(), users=users, mps=daemons)
    yield runtime
    for work in runtime.works():
        runtime.kill(work.lease_id)
        ended(runtime, work.lease_id)
        runtime.forget(work.lease_id)
    until(lambda: not list(runtime.works()) and gone(short))


def seen(short: Path, runtime: ProcessRuntime, spec: WorkSpec) -> dict[str, object]:
    """Return what limits CUDA says hold for work."""
    until(lambda: said(short / "state", spec) or state(runtime, spec.lease_id) == "ended")
    found: dict[str, object] = json.loads(said(short / "state", spec))
    return found


LIFTS = {
    "as it is": "",
    "with no limits in its environment": "unset CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
    " CUDA_MPS_PINNED_DEVICE_MEM_LIMIT; ",
    "with higher limits in its environment": "export CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100"
    " CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=81920M; ",
}


@ROOT
@pytest.mark.parametrize("lift", LIFTS.values(), ids=LIFTS)
def test_work_has_its_share_whatever_it_does_to_its_environment(
    short: Path, programs: Programs, runtime: ProcessRuntime, lift: str
) -> None:
    spec = started(runtime, EQUAL[0], "/bin/sh", "-c", f"{lift}exec {programs.work}")

    assert seen(short, runtime, spec) == OWN


@ROOT
def test_work_that_leaves_mps_out_does_not_get_at_the_card(
    short: Path, programs: Programs, runtime: ProcessRuntime
) -> None:
    spec = started(
        runtime, EQUAL[0], "/bin/sh", "-c",
        f"CUDA_MPS_PIPE_DIRECTORY=/nowhere exec {programs.work}",
    )  # fmt: skip

    assert ended(runtime, spec.lease_id).exit_code == 1
    folder = short / "state" / "leases" / str(spec.lease_id)
    assert "DEVICE_UNAVAILABLE" in (folder / "stderr.log").read_text()


@ROOT
def test_work_cannot_tell_the_daemon_anything(
    short: Path, programs: Programs, runtime: ProcessRuntime
) -> None:
    tries = [
        "set_default_active_thread_percentage 100",
        f"set_default_device_pinned_mem_limit {CARD.uuid} 80G",
        "get_server_list",
        "quit",
    ]
    script = "".join(f"echo {each} | {programs.control} && echo reached; " for each in tries) + (
        "for each in control control_privileged nvidia-cuda-mps-control.pid; do "
        'rm -f "$CUDA_MPS_PIPE_DIRECTORY/$each"; done; '
        'echo $$ > "$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid"; '
        'touch "$CUDA_MPS_PIPE_DIRECTORY/more" && echo reached; '
    )
    spec = started(runtime, EQUAL[0], "/bin/sh", "-c", script)
    ended(runtime, spec.lease_id)

    assert "reached" not in said(short / "state", spec)
    again = started(runtime, EQUAL[1], programs.work)
    assert seen(short, runtime, again) == OWN


@ROOT
def test_leases_of_two_accounts_use_a_card_at_the_same_time(
    short: Path, programs: Programs, runtime: ProcessRuntime
) -> None:
    one = started(runtime, EQUAL[0], programs.work, "--stay")
    two = started(runtime, EQUAL[1], programs.work, "--stay")

    assert seen(short, runtime, one) == seen(short, runtime, two) == OWN
    control = control_of(short, programs)
    (server,) = control.ask("get_server_list").split()
    assert len(control.ask(f"get_client_list {server}").split()) == 2


@ROOT
def test_without_the_option_for_several_accounts_the_second_would_wait(
    short: Path, programs: Programs
) -> None:
    """The double keeps to what NVIDIA says of accounts, else the test above proves nothing."""
    pipe = short / "owners"
    environment = {
        "CUDA_MPS_PIPE_DIRECTORY": str(pipe), "CUDA_MPS_LOG_DIRECTORY": str(short / "log"),
        "CUDA_VISIBLE_DEVICES": CARD.uuid, "PATH": os.environ["PATH"],
    }  # fmt: skip
    daemon = subprocess.Popen([programs.control, "-f"], env=environment)
    try:
        until(lambda: (pipe / "control_privileged").exists())
        first, second = (
            partial(
                subprocess.Popen, [programs.work, "--stay"], env=environment, user=uid,
                stdout=subprocess.PIPE,
            )
            for uid in accounts().uids[:2]
        )  # fmt: skip
        with first() as one:
            assert one.stdout is not None and one.stdout.readline()
            with second() as two:
                until(lambda: (log := short / "log" / "control.log").exists() and log.read_text())
                one.kill()
                assert two.stdout is not None and two.stdout.readline()
                two.kill()
    finally:
        subprocess.run([programs.control], input=b"quit\n", check=True, env=environment)
        daemon.wait()


# --- who runs it, and what is said of it ---------------------------------------------------------


def chosen(short: Path, monkeypatch: pytest.MonkeyPatch, *, path: Path) -> object:
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.setattr(work_in, "PIPE_DIRECTORY", short / "usual")
    return work_in.mps_of(None, short / "state")


@ROOT
def test_the_agent_runs_mps_where_the_programs_are(
    short: Path, programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(chosen(short, monkeypatch, path=programs.folder), AgentsDaemons)
    assert isinstance(chosen(short, monkeypatch, path=short), OwnersDaemon)
    assert isinstance(work_in.mps_of(short / "mine", short / "state"), OwnersDaemon)
    monkeypatch.setattr(work_in, "mps_runs", lambda pipe: pipe == short / "usual")
    assert isinstance(chosen(short, monkeypatch, path=programs.folder), OwnersDaemon)
    monkeypatch.setattr(work_in, "mps_runs", lambda _: False)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert isinstance(chosen(short, monkeypatch, path=programs.folder), OwnersDaemon)


def test_what_keeps_a_share_is_said_as_it_is(short: Path, daemons: AgentsDaemons) -> None:
    def of(runtime: ProcessRuntime) -> dict[str, str]:
        return dict(runtime.sandbox.enforces)

    own = of(ProcessRuntime(short / "a", clock=SystemClock(), mps=daemons))
    owners = of(ProcessRuntime(short / "b", clock=SystemClock()))

    assert own["compute of a share"] == "MPS, set by the agent"
    assert own["memory of a share"].startswith("MPS, set by the agent, each process; ")
    assert owners["compute of a share"] == ""
    assert owners["memory of a share"] == "the agent stops what holds more"


@ROOT
def test_the_doctor_says_who_runs_mps(
    short: Path, programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(programs.folder))
    monkeypatch.setattr(work_in, "PIPE_DIRECTORY", short / "usual")
    checks = doctor.examine(
        make_gpus=lambda: NvmlGpus(), uplink=None, state_dir=short / "state", token_file=None
    )
    check = next(each for each in checks if each.name == "MPS")

    assert check.fine is True and "the agent runs a control daemon" in check.found
    assert not (short / "state" / "mps").exists()  # it only looked


def test_one_share_is_all_that_work_may_have(daemons: AgentsDaemons) -> None:
    other = [share.uuid for share in divide(replace(CARD, uuid="GPU-2"), Division("mps", 4))]

    with pytest.raises(StartFailed, match="one card only"):
        daemons.ready([EQUAL[0], other[0]], [])
