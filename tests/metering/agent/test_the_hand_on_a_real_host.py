"""The owner's hand as a command, on real agents and real work: alive, killed, hung, and absent."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest

from metering.agent.clock import SystemClock
from metering.agent.filler import fillers_of
from metering.agent.gpus.simulated import SimulatedGpus
from metering.agent.hand import freeing
from metering.agent.hand.control import NotHeeded, ask, listening
from metering.agent.hand.switch import Word, write_word
from metering.agent.hand.verbs import show, speak
from tests.metering.agent.market import TOKEN, Market, assignment, served
from tests.metering.agent.works import PYTHON, ROOT, let_through, until, work_options
from tests.ports import free_port

HERE = Path(__file__).resolve().parents[3]
CLOCK = SystemClock()
GPUS = [
    gpu.uuid
    for gpu in SimulatedGpus(["L4", "L4"], clock=CLOCK, holders=dict, seed="h1").inventory()
]
FREE_SECONDS_MAX = 10.0
STUBBORN = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
while True:
    time.sleep(0.05)
"""
WAITS = f"{PYTHON} -c 'import signal,time; signal.signal(15, signal.SIG_IGN); time.sleep(600)'"


class Host:
    """An agent as its operator runs it, and its market."""

    def __init__(self, state_dir: Path, market: Market) -> None:
        self.state_dir, self.market = state_dir, market
        self.options: list[str] = []
        self.work = work_options()
        self.agent: subprocess.Popen[bytes] | None = None

    def start(self) -> subprocess.Popen[bytes]:
        command = [
            sys.executable, "-m", "metering.agent", "run", "--server", self.market.url,
            "--state-dir", str(self.state_dir), "--hostname", "h1", "--simulate", "L4:2",
            *self.work, *self.options,
        ]  # fmt: skip
        with self.state_dir.with_suffix(".log").open("ab") as log:
            self.agent = subprocess.Popen(
                command, cwd=HERE, env=os.environ | {"OFFPEAK_AGENT_TOKEN": TOKEN}, stderr=log
            )
        until((self.state_dir / "hand.sock").exists, why="the agent does not come up")
        return self.agent

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self.agent is not None and self.agent.poll() is None:
            self.agent.send_signal(signal.SIGCONT)
            self.agent.send_signal(number)
            self.agent.wait(60)

    def lease(self, place: int = 0) -> UUID:
        """Return a lease whose stubborn work runs."""
        command = (PYTHON, "-c", STUBBORN)
        wanted = assignment(GPUS[place], now_ms=CLOCK.now_ms(), command=command)
        lease_id = self.market.assign(wanted)
        until(lambda: self.told(lease_id) == ["started"], why="the work does not start")
        return lease_id

    def told(self, lease_id: UUID) -> list[str]:
        return [each.what for each in self.market.told(lease_id)]

    def status(self) -> dict[str, object]:
        return ask(self.state_dir, "status")

    def filler_cards(self) -> list[str]:
        found: list[str] = self.status()["filler"]["cards"]  # type: ignore[index]  # plain JSON
        return found


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    state_dir = tmp_path / "state"
    let_through(state_dir)
    with served(Market(sample_seconds=1, poll_seconds=1)) as market:
        host = Host(state_dir, market)
        yield host
        host.stop(signal.SIGKILL)
        assert freeing.free(state_dir) == []


def owner_did_it(host: Host, lease_id: UUID) -> bool:
    end = host.market.told(lease_id)[-1]
    return (end.what, end.reclaimed) == ("stopped", True)


@pytest.mark.parametrize("fell", ["runs", "is killed", "hangs", "is killed without a market"])
def test_release_frees_the_cards_whatever_the_agent_does(
    host: Host, fell: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = host.start()
    lease_id = host.lease()
    host.market.away = "without" in fell
    if "killed" in fell:
        host.stop(signal.SIGKILL)
    if fell == "hangs":
        monkeypatch.setattr("metering.agent.hand.control.ASKED_SECONDS_MAX", 0.5)
        agent.send_signal(signal.SIGSTOP)

    began = time.monotonic()
    assert speak("release", host.state_dir, now=True) == 0
    assert time.monotonic() - began < FREE_SECONDS_MAX

    assert freeing.living(host.state_dir) == []
    assert "no work runs, and none is taken" in capsys.readouterr().out
    host.market.away = False
    if fell == "hangs":
        agent.send_signal(signal.SIGCONT)
    elif "killed" in fell:
        host.start()
    until(lambda: "stopped" in host.told(lease_id), why="the end is never told")
    assert owner_did_it(host, lease_id)
    later = host.market.assign(assignment(GPUS[1], now_ms=CLOCK.now_ms(), command=("sleep", "9")))
    until(lambda: host.told(later), why="what is not started is told")
    assert owner_did_it(host, later)


def test_an_agent_killed_between_the_word_and_the_deed_is_followed_by_one_that_does_it(
    host: Host,
) -> None:
    host.start()
    lease_id = host.lease()
    host.stop(signal.SIGKILL)
    write_word(host.state_dir, Word().then("released", now_ms=CLOCK.now_ms()))

    host.start()

    until(lambda: "stopped" in host.told(lease_id), why="the end is never told")
    assert owner_did_it(host, lease_id)
    assert freeing.living(host.state_dir) == []


def test_paused_without_an_agent_the_next_one_takes_nothing(
    host: Host, capsys: pytest.CaptureFixture[str]
) -> None:
    assert speak("pause", host.state_dir) == 0
    assert "no agent runs here, the next one obeys it" in capsys.readouterr().out

    host.start()

    until(lambda: host.market.registrations)
    assert host.market.registrations[0].taking == "paused"
    assert speak("resume", host.state_dir) == 0
    until(lambda: host.market.registrations[-1].taking == "all")
    host.lease()


def test_status_is_told_by_the_agent_and_by_the_folder(
    host: Host, capsys: pytest.CaptureFixture[str]
) -> None:
    host.start()
    lease_id = host.lease()
    assert show(host.state_dir, as_json=False) == 0
    alive = capsys.readouterr().out
    assert "agent     " in alive and " runs\n" in alive
    assert f"lease     {lease_id}  running  until " in alive
    assert "hand      takes work" in alive and "server    reached " in alive
    kept = host.state_dir / "status.json"
    until(lambda: str(lease_id) in kept.read_text())

    host.stop(signal.SIGKILL)

    assert show(host.state_dir, as_json=True) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["agent"]["answers"] is False and told["agent"]["runs"] is False
    assert told["living"] == [str(lease_id)]
    assert [lease["state"] for lease in told["leases"]] == ["running"]
    assert show(host.state_dir, as_json=False) == 1
    assert "does not run; what follows is of " in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["pause", "drain", "release", "resume"])
def test_a_folder_that_is_none_is_refused(
    tmp_path: Path, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert speak(verb, tmp_path / "nowhere") == 1

    assert "is no state directory of an agent: name it by --state-dir" in capsys.readouterr().err


# --- the filler ----------------------------------------------------------------------------------


def test_a_filler_runs_on_idle_cards_and_gives_way_at_once(host: Host) -> None:
    host.options = ["--filler", WAITS]
    host.start()
    until(lambda: host.filler_cards() == sorted(GPUS), why="no filler runs")
    began = CLOCK.now_ms()

    lease_id = host.lease(0)

    assert host.filler_cards() == [GPUS[1]]
    started = host.market.told(lease_id)[0]
    assert started.at.timestamp() * 1000 - began < FREE_SECONDS_MAX * 1000
    kinds = {each.kind for each in host.market.health()}
    assert kinds <= {"diagnostic-passed"}  # it is nobody's stranger
    del host.market.desired[lease_id]
    until(lambda: host.filler_cards() == sorted(GPUS), why="it does not come back")


def test_a_pause_is_not_for_the_filler_and_a_release_is(host: Host) -> None:
    host.options = ["--filler", WAITS]
    host.start()
    until(lambda: host.filler_cards() == sorted(GPUS))

    assert speak("pause", host.state_dir) == 0
    assert host.filler_cards() == sorted(GPUS)
    assert speak("release", host.state_dir, now=True) == 0

    assert host.filler_cards() == [] and freeing.living(host.state_dir) == []


def test_a_killed_agent_leaves_no_second_filler(host: Host) -> None:
    host.options = ["--filler", WAITS]
    host.start()
    until(lambda: host.filler_cards() == sorted(GPUS))
    before = {each.pid for each in fillers_of(host.state_dir)}
    host.stop(signal.SIGKILL)
    (host.state_dir / "hand.sock").unlink()

    host.start()

    def others() -> bool:
        """Tell if there is one on each card, and none from before: one is ended, then started."""
        after = {each.pid for each in fillers_of(host.state_dir)}
        return len(after) == len(GPUS) and not before & after

    until(lambda: host.filler_cards() == sorted(GPUS) and others())
    host.stop()
    assert fillers_of(host.state_dir) == []


# --- who may ask ---------------------------------------------------------------------------------


class Still:
    """An agent that does nothing."""

    def heed(self, taking: str, *, stated_grace: bool = False) -> None:
        raise OSError("the disk is full")

    def status(self) -> dict[str, object]:
        return {"fine": True}


@contextmanager
def a_socket(folder: Path) -> Iterator[Path]:
    folder.mkdir(parents=True)
    with listening(folder, Still()):
        yield folder


def test_the_socket_is_the_owners_alone_and_its_path_may_be_long(tmp_path: Path) -> None:
    with a_socket(tmp_path / ("long" * 30) / ("er" * 30)) as folder:
        assert (folder / "hand.sock").stat().st_mode & 0o777 == 0o600
        assert ask(folder, "status") == {"fine": True}
        with pytest.raises(NotHeeded, match="holds only until the agent is started anew"):
            ask(folder, "paused")
        with pytest.raises(NotHeeded, match="nothing the agent can do"):
            ask(folder, "explode")
    assert not (folder / "hand.sock").exists()


@pytest.mark.parametrize("sent", [b"", b"{", b"[]\n", b'{"do": 1}\n', b"x" * 5000 + b"\n"])
def test_what_is_no_request_is_answered_and_the_next_one_served(
    tmp_path: Path, sent: bytes
) -> None:
    with a_socket(tmp_path / "state") as folder:
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(folder / "hand.sock"))
            line.sendall(sent)
            line.shutdown(socket.SHUT_WR)
            assert b"error" in line.recv(1000)
        assert ask(folder, "status") == {"fine": True}


@ROOT
def test_another_user_is_refused_though_the_socket_was_opened_to_all(tmp_path: Path) -> None:
    let_through(tmp_path / "state")
    with listening(tmp_path / "state", Still()):
        address = tmp_path / "state" / "hand.sock"
        address.chmod(0o666)
        code = (
            "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]);"
            's.sendall(b\'{"do": "status"}\\n\'); print(s.recv(1000).decode())'
        )
        done = subprocess.run(
            [PYTHON, "-c", code, str(address)], user=65_534, group=65_534, extra_groups=[],
            capture_output=True, text=True, check=True,
        )  # fmt: skip

    assert "only root and the agent's own user may ask" in done.stdout


# --- what monitoring sees ------------------------------------------------------------------------


def test_metrics_are_served_where_they_were_asked_for(host: Host) -> None:
    port = free_port()
    host.options = ["--metrics", f"127.0.0.1:{port}"]
    host.start()
    host.lease()

    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        text = answer.read().decode()

    assert "offpeak_agent_leases 1\n" in text
    assert 'offpeak_agent_gpus{use="leased"} 1\n' in text
    assert 'offpeak_agent_taking{taking="all"} 1\n' in text
