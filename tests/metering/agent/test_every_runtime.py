"""What every runtime promises, and what only real processes can show."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from metering.agent.clock import ManualClock, SystemClock
from metering.agent.runtimes import egress, keeper
from metering.agent.runtimes.family import descendants, stat_of
from metering.agent.runtimes.port import Runtime, StartFailed, WorkSpec
from metering.agent.runtimes.process import ProcessRuntime
from metering.agent.runtimes.simulated import SimulatedRuntime
from metering.agent.runtimes.users import make_passable
from tests.metering.agent.cluster import JobsRuntime
from tests.metering.agent.workloads import containers as containers
from tests.metering.agent.workloads import ended, python, spec, state, until
from tests.metering.agent.workloads import image as image
from tests.metering.agent.workloads import podman as podman
from tests.metering.agent.workloads import processes as processes
from tests.metering.agent.workloads import runtime as runtime
from tests.metering.agent.works import ROOT, accounts, confinement, let_through


def test_work_runs_until_it_ends_by_itself(runtime: Runtime) -> None:
    before_ms = SystemClock().now_ms() - 5
    longer, wanted = spec("sleep", "60"), spec("sleep", "0.2")
    work = runtime.start(longer)
    assert (work.state, work.gpu_uuids) == ("running", ("GPU-a", "GPU-b"))
    runtime.start(wanted)  # on a busy machine it may be over before this returns

    work = ended(runtime, wanted.lease_id)

    assert state(runtime, longer.lease_id) == "running"
    assert work.gpu_uuids == ("GPU-a", "GPU-b")
    assert work.exit_code == 0 and not work.lost and work.ended_ms is not None
    assert before_ms <= work.started_ms <= work.ended_ms - 195
    assert work.ended_ms <= SystemClock().now_ms() + 5


def test_a_failing_command_gives_its_code(runtime: Runtime) -> None:
    wanted = spec("false")
    runtime.start(wanted)

    assert ended(runtime, wanted.lease_id).exit_code == 1


def test_a_command_that_does_not_exist_is_refused_with_the_reason(runtime: Runtime) -> None:
    wanted = spec("/nonexistent/program")

    with pytest.raises(StartFailed, match="No such file"):
        runtime.start(wanted)

    assert list(runtime.works()) == []


def test_starting_again_starts_nothing_more(runtime: Runtime) -> None:
    wanted = spec("sleep", "60")
    first = runtime.start(wanted)

    assert runtime.start(wanted).started_ms == first.started_ms
    assert len(runtime.works()) == 1
    assert len(runtime.holders()["GPU-a"]) == 1


def test_work_is_asked_to_end(runtime: Runtime) -> None:
    wanted = spec("sleep", "60")
    runtime.start(wanted)

    runtime.terminate(wanted.lease_id)

    assert ended(runtime, wanted.lease_id).exit_code == -signal.SIGTERM


def test_work_is_killed(runtime: Runtime) -> None:
    wanted = spec("sleep", "60")
    runtime.start(wanted)

    runtime.kill(wanted.lease_id)

    assert ended(runtime, wanted.lease_id).exit_code == -signal.SIGKILL


def test_work_ends_at_its_limit_without_another_call(runtime: Runtime) -> None:
    now_ms = SystemClock().now_ms()
    lead_ms = 10_000 if isinstance(runtime, JobsRuntime) else 0  # a cluster takes its time
    at_start = replace(
        spec("sleep", "60"), stop_at_ms=now_ms + 900 + lead_ms, kill_at_ms=now_ms + 5_000 + lead_ms
    )
    moved, later = spec("sleep", "60"), spec("sleep", "60")
    for wanted in (at_start, moved, later):
        runtime.start(wanted)
    soon_ms = SystemClock().now_ms() + 1_500
    runtime.limit(later.lease_id, stop_at_ms=soon_ms, kill_at_ms=soon_ms + 5_000)
    runtime.limit(later.lease_id, stop_at_ms=soon_ms + 600_000, kill_at_ms=soon_ms + 600_000)
    runtime.limit(moved.lease_id, stop_at_ms=soon_ms, kill_at_ms=soon_ms + 5_000)

    for wanted in (at_start, moved):
        work = ended(runtime, wanted.lease_id)

        assert (work.exit_code, work.stopped, work.lost) == (-signal.SIGTERM, True, False)
    assert state(runtime, later.lease_id) == "running"


def test_work_that_ends_by_itself_was_not_stopped(runtime: Runtime) -> None:
    now_ms = SystemClock().now_ms()
    wanted = replace(spec("true"), stop_at_ms=now_ms + 60_000, kill_at_ms=now_ms + 60_000)
    runtime.start(wanted)

    assert not ended(runtime, wanted.lease_id).stopped


def test_a_runtime_says_whether_it_keeps_tenants_apart(runtime: Runtime) -> None:
    assert runtime.trusts_work
    assert isinstance(runtime.separates(("GPU-a",)), bool)


def test_its_process_is_known_while_it_runs(runtime: Runtime) -> None:
    wanted = spec("sleep", "60")
    runtime.start(wanted)
    (pid,) = runtime.holders()["GPU-b"]

    assert runtime.lease_of(pid) == wanted.lease_id
    assert runtime.name_of(pid)
    assert runtime.lease_of(os.getpid()) is None
    assert runtime.name_of(2**22 + 1) is None
    runtime.kill(wanted.lease_id)
    ended(runtime, wanted.lease_id)
    assert runtime.lease_of(pid) is None


def test_only_ended_work_is_forgotten(runtime: Runtime) -> None:
    wanted = spec("sleep", "60")
    runtime.start(wanted)
    runtime.forget(wanted.lease_id)
    assert len(runtime.works()) == 1

    runtime.kill(wanted.lease_id)
    ended(runtime, wanted.lease_id)
    runtime.forget(wanted.lease_id)

    assert list(runtime.works()) == []


def test_pretended_work_can_outlive_its_agent_as_real_work_does(tmp_path: Path) -> None:
    clock, kept_in = ManualClock(1_767_614_400_000), tmp_path / "works.json"
    runtime = SimulatedRuntime(clock=clock, kept_in=kept_in)
    runs, ends, stopped, gone = spec("serve"), spec("sleep", "5"), spec("serve"), spec("true")
    for wanted in (runs, ends, stopped, gone):
        runtime.start(wanted)
    runtime.terminate(stopped.lease_id)
    runtime.forget(gone.lease_id)
    clock.advance(60_000)

    again = {work.lease_id: work for work in SimulatedRuntime(clock=clock, kept_in=kept_in).works()}

    assert again == {work.lease_id: work for work in runtime.works()}
    assert {again[runs.lease_id].state, again[ends.lease_id].state} == {"running", "ended"}
    assert again[ends.lease_id].ended_ms == 1_767_614_405_000
    assert again[stopped.lease_id].exit_code == -signal.SIGTERM


# --- only with real processes ----------------------------------------------------------------


def folder_of(tmp_path: Path, wanted: WorkSpec) -> Path:
    return tmp_path / "leases" / str(wanted.lease_id)


def test_the_work_sees_its_gpus_and_none_of_the_agents_secrets(
    processes: ProcessRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OFFPEAK_AGENT_TOKEN", "secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    code = "import os, json; print(json.dumps([dict(os.environ), os.getcwd()]))"
    wanted = python(code, MODEL="llama", CUDA_VISIBLE_DEVICES="all", OFFPEAK_GRACE_SECONDS="9")
    wanted = replace(wanted, grace_seconds=40)
    processes.start(wanted)
    ended(processes, wanted.lease_id)

    environment, folder = json.loads((folder_of(tmp_path, wanted) / "stdout.log").read_text())

    assert environment["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"
    assert environment["OFFPEAK_LEASE_ID"] == str(wanted.lease_id)
    assert environment["OFFPEAK_GRACE_SECONDS"] == "40"
    assert environment["MODEL"] == "llama"
    assert "secret" not in environment.values()
    assert folder == str(folder_of(tmp_path, wanted) / "work")


def test_output_is_kept_within_bounds_newest_first(tmp_path: Path) -> None:
    runtime = ProcessRuntime(tmp_path, clock=SystemClock(), output_bytes_max=10_000)
    wanted = python("for n in range(20000): print(n)")
    runtime.start(wanted)
    ended(runtime, wanted.lease_id)
    folder = folder_of(tmp_path, wanted)

    assert (folder / "stdout.log").read_text().endswith("19999\n")
    assert sum(path.stat().st_size for path in folder.glob("stdout.log*")) <= 20_000


def test_what_the_command_leaves_behind_ends_with_it(processes: ProcessRuntime) -> None:
    code = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "print(child.pid, flush=True)\n"
    )
    wanted = python(code)
    processes.start(wanted)
    ended(processes, wanted.lease_id)

    left = descendants(os.getpid())

    assert [stat.name for stat in left if stat.name == "sleep"] == []


CATCHES = (
    "import os, signal, sys, time\n"
    "def told(*_):\n"
    "    print(open(os.environ['OFFPEAK_NOTICE']).read(), flush=True)\n"
    "signal.signal(signal.SIGUSR1, told)\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "print('ready', flush=True)\n"
    "while True: time.sleep(0.02)\n"
)


def test_work_with_a_handler_is_told_and_finds_the_deadline(
    processes: ProcessRuntime, tmp_path: Path
) -> None:
    wanted = python(CATCHES)
    processes.start(wanted)
    output = folder_of(tmp_path, wanted) / "stdout.log"
    until(lambda: output.exists() and "ready" in output.read_text())

    assert processes.notify(wanted.lease_id, stop_at_ms=1_767_614_400_250)

    until(lambda: "2026-01-05T12:00:00.250+00:00" in output.read_text())
    assert state(processes, wanted.lease_id) == "running"


def test_work_without_a_handler_survives_the_notice(
    processes: ProcessRuntime, tmp_path: Path
) -> None:
    wanted = spec("sleep", "60")
    processes.start(wanted)

    assert not processes.notify(wanted.lease_id, stop_at_ms=1_767_614_400_250)

    assert state(processes, wanted.lease_id) == "running"
    notice = json.loads((folder_of(tmp_path, wanted) / "notice.json").read_text())
    assert notice["stop_at_ms"] == 1_767_614_400_250


def test_work_that_ignores_the_request_and_hides_its_children_is_killed_whole(
    processes: ProcessRuntime, tmp_path: Path
) -> None:
    code = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "for _ in range(3):\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        if os.fork(): os._exit(0)\n"
        "        while True: time.sleep(1)\n"
        "print('ready', flush=True)\n"
        "while True: time.sleep(1)\n"
    )
    wanted = python(code)
    processes.start(wanted)
    output = folder_of(tmp_path, wanted) / "stdout.log"
    until(lambda: output.exists() and "ready" in output.read_text())
    (pid,) = processes.holders()["GPU-a"]
    # The work is ready before the last of its children has forked away.
    until(lambda: len(processes._processes(wanted.lease_id)) == 4)
    family = processes._processes(wanted.lease_id)
    assert {processes.lease_of(stat.pid) for stat in family} == {wanted.lease_id}

    processes.terminate(wanted.lease_id)
    assert state(processes, wanted.lease_id) == "running"
    processes.kill(wanted.lease_id)

    ended(processes, wanted.lease_id)
    for stat in family:
        now = stat_of(stat.pid)
        assert now is None or now.ticks != stat.ticks
    assert processes.lease_of(pid) is None


def test_work_is_found_again_running_and_ended(processes: ProcessRuntime, tmp_path: Path) -> None:
    runs, ends = spec("sleep", "60"), spec("sleep", "0.3")
    started = {wanted.lease_id: processes.start(wanted).started_ms for wanted in (runs, ends)}
    ended(processes, ends.lease_id)
    clock = processes._clock

    found = {
        work.lease_id: work for work in ProcessRuntime(tmp_path, clock=clock).works()
    }  # as after a restart

    assert found[runs.lease_id].state == "running"
    assert found[ends.lease_id].state == "ended" and found[ends.lease_id].exit_code == 0
    assert {lease: work.started_ms for lease, work in found.items()} == started


def test_work_that_an_earlier_version_started_is_ended_in_its_way(
    processes: ProcessRuntime, tmp_path: Path
) -> None:
    wanted = spec("sleep", "60")
    processes.start(wanted)
    record = folder_of(tmp_path, wanted) / "started.json"
    known = json.loads(record.read_text())
    del known["keeps_deadline"]
    record.write_text(json.dumps(known))
    later = ProcessRuntime(tmp_path, clock=processes._clock)
    now_ms = SystemClock().now_ms()

    assert [work.state for work in later.works()] == ["running"]
    later.limit(wanted.lease_id, stop_at_ms=now_ms + 60_000, kill_at_ms=now_ms + 60_000)
    assert state(later, wanted.lease_id) == "running"
    later.terminate(wanted.lease_id)

    assert ended(later, wanted.lease_id).exit_code == -signal.SIGTERM


def test_work_whose_keeper_is_killed_ends_and_is_called_lost(processes: ProcessRuntime) -> None:
    wanted = spec("sleep", "60")
    processes.start(wanted)
    (pid,) = processes.holders()["GPU-a"]

    os.kill(processes._roots[wanted.lease_id]["keeper_pid"], signal.SIGKILL)

    work = ended(processes, wanted.lease_id)
    assert work.lost and work.exit_code is None and "killed" in work.detail
    until(lambda: processes.name_of(pid) is None)


def test_after_a_restart_of_the_host_the_work_is_lost_with_an_unknown_end(
    processes: ProcessRuntime, tmp_path: Path
) -> None:
    wanted = spec("sleep", "0")
    processes.start(wanted)
    ended(processes, wanted.lease_id)
    record = folder_of(tmp_path, wanted) / "started.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"kernel_boot_id": "before"}))
    (folder_of(tmp_path, wanted) / "exit.json").unlink()

    (work,) = ProcessRuntime(tmp_path, clock=SystemClock()).works()

    assert (work.state, work.lost, work.ended_ms) == ("ended", True, None)


def test_the_tenants_files_are_erased_and_the_output_stays(
    processes: ProcessRuntime, tmp_path: Path
) -> None:
    wanted = python("open('weights', 'w').write('x'); print('done')")
    processes.start(wanted)
    ended(processes, wanted.lease_id)

    processes.forget(wanted.lease_id)

    kept = tmp_path / "ended" / str(wanted.lease_id)
    assert (kept / "stdout.log").read_text() == "done\n"
    assert not (kept / "work").exists() and not folder_of(tmp_path, wanted).exists()


@ROOT
@pytest.mark.parametrize("umask", [0o022, 0o077], ids=["open", "closed"])
def test_work_can_run_as_another_user_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    let_through(tmp_path)
    before = os.umask(umask)
    try:
        make_passable(tmp_path / "made" / "too")
        runtime = ProcessRuntime(tmp_path / "made" / "too", clock=SystemClock(), account="nobody")
        wanted = spec("/bin/sh", "-c", "id -un; echo x > mine; test -w ..  && echo bad")
        runtime.start(wanted)
    finally:
        os.umask(before)
    ended(runtime, wanted.lease_id)

    assert (folder_of(tmp_path / "made" / "too", wanted) / "stdout.log").read_text() == "nobody\n"


@ROOT
def test_bubblewrap_that_does_not_start_says_why(tmp_path: Path) -> None:
    users = accounts(1)
    private = replace(
        confinement(users),
        network="private",
        slirp=shutil.which("slirp4netns"),
        egress=egress.find(open_=True)[0],
    )
    if private.slirp is None:
        pytest.skip("slirp4netns is not installed")  # tests/install-tools.sh brings it
    runtime = ProcessRuntime(tmp_path, clock=SystemClock(), users=users, confinement=private)
    (tmp_path / "leases").chmod(0o700)

    with pytest.raises(StartFailed, match="Permission denied"):
        runtime.start(spec("/bin/true"))


def test_the_keeper_needs_no_site_packages() -> None:
    code = f"import runpy; runpy.run_path({keeper.__file__!r})"

    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)
