"""Secrets go from the server to work: for one attempt, in memory, and are in no other place."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from metering.agent import sealing
from metering.agent.abilities import abilities_of
from metering.agent.clock import SystemClock
from metering.agent.runtimes.podman import Podman
from metering.agent.runtimes.port import StartFailed
from metering.agent.runtimes.process import ProcessRuntime
from tests.marketplace.secrets.hunting import files_with, spellings
from tests.metering.agent.conftest import NOON_MS, Rig
from tests.metering.agent.containers import Made, contained, make_image
from tests.metering.agent.containers import image as image
from tests.metering.agent.containers import podman as podman
from tests.metering.agent.hunted import OTHER, VALUE, processes_with
from tests.metering.agent.market import assignment
from tests.metering.agent.works import ROOT, accounts, ended, program, running, said, until

# --- the seal ------------------------------------------------------------------------------------


def test_what_is_sealed_opens_for_its_pair_and_attempt_alone() -> None:
    pair = sealing.Pair()
    sealed = sealing.seal(pair.public, "attempt 1", b"text")

    assert pair.open("attempt 1", sealed) == b"text"
    changed = sealed[:-1] + bytes([sealed[-1] ^ 1])
    for other, attempt, what in (
        (sealing.Pair(), "attempt 1", sealed),
        (pair, "attempt 2", sealed),
        (pair, "attempt 1", changed),
        (pair, "attempt 1", sealed[:20]),
        (pair, "attempt 1", b""),
    ):
        with pytest.raises(sealing.SealBroken):
            other.open(attempt, what)
    with pytest.raises(ValueError):
        sealing.seal(b"\0" * 32, "attempt 1", b"text")  # of no use as a public half


# --- from the server to the start ----------------------------------------------------------------


def test_secrets_are_asked_for_before_the_start_and_kept_nowhere(
    simulated_rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    rig = simulated_rig
    rig.market.secrets = {"HF_TOKEN": VALUE}
    [gpu, _] = rig.uuids()
    wanted = assignment(gpu, now_ms=NOON_MS, secrets=("HF_TOKEN",))
    lease_id = rig.market.assign(wanted)
    rig.steps(3)

    assert [each.what for each in rig.market.told(lease_id)] == ["started"]
    assert len(rig.market.asked) == 1
    assert files_with(rig.state_dir, VALUE) == []
    assert VALUE not in caplog.text
    assert VALUE not in repr(vars(rig.agent.courier.handing))


def test_an_agent_that_was_started_again_asks_again_with_another_pair(simulated_rig: Rig) -> None:
    rig = simulated_rig
    rig.market.secrets = {"HF_TOKEN": VALUE}
    [gpu, _] = rig.uuids()
    lease_id = rig.market.assign(assignment(gpu, now_ms=NOON_MS, secrets=("HF_TOKEN",)))
    rig.agent.courier.exchange()
    rig.agent.tick()
    rig.agent.courier.exchange()  # it has them, and has not started the work
    rig.restart()
    rig.steps(3)

    first, second = rig.market.asked
    assert first.attempt_id != second.attempt_id and first.public_key != second.public_key
    assert [each.what for each in rig.market.told(lease_id)] == ["started"]
    assert files_with(rig.state_dir, VALUE) == []


def test_a_secret_that_is_gone_ends_the_attempt_with_that_reason(simulated_rig: Rig) -> None:
    rig = simulated_rig
    problem = (
        b'{"code": "secret-missing", "detail": "The work asks for secrets that are not kept.",'
        b' "details": {"secrets": ["HF_TOKEN"]}}'
    )
    [gpu, _] = rig.uuids()
    lease_id = rig.market.assign(assignment(gpu, now_ms=NOON_MS, secrets=("HF_TOKEN",)))
    rig.agent.courier.exchange()
    rig.agent.tick()
    rig.market.fault = 409, problem
    rig.agent.courier.exchange()
    rig.market.fault = None
    rig.steps(3)

    [failed] = rig.market.told(lease_id)
    assert failed.what == "failed"
    assert failed.detail.endswith("The work asks for secrets that are not kept. (HF_TOKEN)")


def test_work_waits_while_the_server_is_away_and_other_work_does_not(simulated_rig: Rig) -> None:
    rig = simulated_rig
    rig.market.secrets = {"HF_TOKEN": VALUE}
    first, second = rig.uuids()
    waiting = rig.market.assign(assignment(first, now_ms=NOON_MS, secrets=("HF_TOKEN",)))
    plain = rig.market.assign(assignment(second, now_ms=NOON_MS))
    rig.agent.courier.exchange()
    rig.market.away = True
    rig.steps(3)
    assert [str(work.lease_id) for work in rig.runtime.works()] == [str(plain)]

    rig.market.away = False
    rig.steps(40)

    assert [each.what for each in rig.market.told(waiting)] == ["started"]


def test_an_answer_for_another_attempt_starts_nothing(simulated_rig: Rig) -> None:
    rig = simulated_rig
    rig.market.secrets = {"HF_TOKEN": VALUE}
    [gpu, _] = rig.uuids()
    rig.market.assign(assignment(gpu, now_ms=NOON_MS, secrets=("HF_TOKEN",)))
    copied = sealing.seal(sealing.Pair().public, "another", b"{}")
    rig.agent.courier.handing._uplink = _Copying(rig, copied)  # type: ignore[assignment]
    rig.steps(5)

    assert rig.runtime.works() == []
    assert "does not open" in rig.agent.courier.trouble


class _Copying:
    """A server that answers what it, or somebody on the way, kept of another attempt."""

    def __init__(self, rig: Rig, copied: bytes) -> None:
        self._rig, self._copied = rig, copied

    def secrets(self, asked: object) -> object:
        import base64

        from metering.agent.wire import SecretsAsked, SecretsSealed

        assert isinstance(asked, SecretsAsked)
        text = base64.b64encode(self._copied).decode()
        return SecretsSealed(lease_id=asked.lease_id, attempt_id=asked.attempt_id, sealed=text)


# --- from the agent to the work ------------------------------------------------------------------

READS = """
import os, sys, time
print("file", open("/run/secrets/HF_TOKEN").read() == sys.argv[1][::-1], flush=True)
print("only", sorted(os.listdir("/run/secrets")), os.environ.get("WANDB_KEY") == sys.argv[2][::-1])
print("not", "HF_TOKEN" in os.environ, flush=True)
try:
    open("/run/secrets/HF_TOKEN", "w")
except OSError:
    print("read-only", flush=True)
print("told", open("/run/secrets/HF_TOKEN").read(), os.environ["WANDB_KEY"], flush=True)
print("ready", flush=True)
time.sleep(60)
"""


@ROOT
def test_confined_work_reads_them_from_memory_and_nobody_else_finds_them(tmp_path: Path) -> None:
    wanted = replace(
        program(READS, VALUE[::-1], OTHER[::-1]),
        secrets={"HF_TOKEN": VALUE.encode(), "WANDB_KEY": OTHER.encode()},
        secret_variables=("WANDB_KEY",),
    )
    with running(tmp_path, users=accounts(2), confined=True) as runtime:
        runtime.start(wanted)
        until(lambda: "ready" in said(tmp_path, wanted))
        found = processes_with(VALUE, OTHER)
        on_disk = files_with(tmp_path, VALUE, OTHER)
        output = said(tmp_path, wanted)
        runtime.kill(wanted.lease_id)
        ended(runtime, wanted.lease_id)

    assert "file True" in output and "read-only" in output and "not False" in output
    assert "only ['HF_TOKEN', 'WANDB_KEY'] True" in output
    assert "told [secret] [secret]" in output
    assert on_disk == [] and files_with(tmp_path, VALUE, OTHER) == []
    # What work is to have as a variable is in its own and in bwrap's, as whose child it runs.
    assert [each for each in found if "/environ" not in each] == []
    assert processes_with(VALUE) == []
    assert all(repr(VALUE) not in each for each in found)


LINES = "first line\n  second, with 'marks' and $HOME\n"


@ROOT
def test_work_in_a_container_reads_them_from_memory_and_nobody_else_finds_them(
    podman: Podman, image: Made, tmp_path: Path
) -> None:
    wanted = replace(
        program(READS, VALUE[::-1], OTHER[::-1]),
        secrets={"HF_TOKEN": VALUE.encode(), "WANDB_KEY": OTHER.encode()},
        secret_variables=("WANDB_KEY",),
    )
    runtime = contained(tmp_path, podman, image)
    assert runtime.hands_secrets
    runtime.start(wanted)
    until(lambda: "ready" in said(tmp_path, wanted))
    ((_, name),) = runtime._ids.values()
    shown = podman.call("inspect", name).stdout
    found = processes_with(VALUE, OTHER)
    kept = [tmp_path, podman.folder, podman.running, Path("/run/runc"), Path("/run/crun")]
    on_disk = [each for folder in kept for each in files_with(folder, VALUE, OTHER)]
    output = said(tmp_path, wanted)
    runtime.kill(wanted.lease_id)
    ended(runtime, wanted.lease_id)

    assert "file True" in output and "read-only" in output and "not False" in output
    assert "only ['HF_TOKEN', 'WANDB_KEY'] True" in output
    assert "told [secret] [secret]" in output
    assert "WANDB_KEY" in shown, "its name is known"
    assert not [each for each in spellings(VALUE) + spellings(OTHER) if each.decode() in shown]
    assert on_disk == []
    assert [each for each in found if "/environ" not in each] == []
    assert processes_with(VALUE) == []
    runtime.forget(wanted.lease_id)
    until(lambda: not podman.call("ps", "--all", "--quiet").stdout.strip())
    assert [each for folder in kept for each in files_with(folder, VALUE, OTHER)] == []


@ROOT
def test_a_secret_of_several_lines_is_a_variable_to_the_letter(
    podman: Podman, tmp_path: Path
) -> None:
    made = make_image(tmp_path / "images" / "made", user="work")
    runtime = contained(tmp_path, podman, made)
    reads = "import os; assert os.environ['KEY'] == open('/run/secrets/KEY').read(); print('same')"
    for value in (LINES, LINES.strip(), "\n", ""):
        wanted = replace(program(reads), secrets={"KEY": value.encode()}, secret_variables=("KEY",))
        runtime.start(wanted)
        ended(runtime, wanted.lease_id)
        assert said(tmp_path, wanted) == "same\n"
    with pytest.raises(StartFailed, match=r"a file only: A\.B"):
        runtime.start(replace(program(reads), secrets={"A.B": b"x"}, secret_variables=("A.B",)))


@ROOT
def test_work_without_bubblewrap_is_handed_no_secrets(tmp_path: Path) -> None:
    with running(tmp_path, users=accounts(1), confined=False) as runtime:
        assert "secrets" not in abilities_of(runtime)
        with pytest.raises(StartFailed, match="bubblewrap"):
            runtime.start(replace(program("pass"), secrets={"HF_TOKEN": VALUE.encode()}))
    assert files_with(tmp_path, VALUE) == []


def test_the_ability_is_told_where_both_its_parts_are(
    tmp_path: Path, simulated_rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "secrets" in abilities_of(simulated_rig.runtime)
    assert "secrets" not in abilities_of(ProcessRuntime(tmp_path, clock=SystemClock()))
    monkeypatch.setattr(sealing, "find_spec", lambda name: None)
    assert "secrets" not in abilities_of(simulated_rig.runtime)
