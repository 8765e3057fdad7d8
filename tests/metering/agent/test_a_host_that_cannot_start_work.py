"""A host whose runtime can start nothing says so, and says when it can again."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from metering.agent.clock import SystemClock
from metering.agent.runtimes.confinement import Confinement
from metering.agent.runtimes.egress import Egress
from metering.agent.runtimes.process import ProcessRuntime
from metering.agent.runtimes.slurm_standing import Standing
from metering.agent.runtimes.users import WorkUsers
from tests.metering.agent.cluster import TOGETHER, Cluster, of_cluster
from tests.metering.agent.conftest import Rig
from tests.metering.agent.works import until

DRAINED = "the cluster starts nothing on this node: "


def told(rig: Rig) -> list[tuple[str, str | None, str]]:
    return [(each.kind, each.gpu_uuid, each.detail) for each in rig.market.health()]


def test_it_is_told_once_of_all_cards_and_once_that_it_is_over(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.steps(3)
    assert told(rig) == []
    why = "the node is drained"
    monkeypatch.setattr(type(rig.runtime), "unable", lambda _: why, raising=False)

    rig.steps(30)
    why = ""
    rig.steps(30)

    assert told(rig) == [("cannot-start", None, "the node is drained"), ("can-start", None, "")]


@pytest.mark.parametrize("lost", ["bwrap", "slirp4netns", "iptables-restore"])
def test_a_host_from_which_a_program_vanished_can_start_nothing(tmp_path: Path, lost: str) -> None:
    programs = {name: tmp_path / name for name in ("bwrap", "slirp4netns", "iptables-restore")}
    for program in programs.values():
        program.touch(mode=0o755)
    egress = Egress(str(programs["iptables-restore"]), open_=True)
    confinement = Confinement(
        str(programs["bwrap"]), str(programs["slirp4netns"]), "private", egress=egress
    )
    runtime = ProcessRuntime(
        tmp_path / "state",
        clock=SystemClock(),
        users=WorkUsers([], alone=False),
        confinement=confinement,
    )
    assert runtime.unable() == ""

    programs[lost].unlink()
    assert runtime.unable() == f"not on this host any more: {programs[lost]}"

    programs[lost].touch(mode=0o755)
    assert runtime.unable() == ""


@contextmanager
def node(cluster: Cluster, state: str, *words: str) -> Iterator[None]:
    """Put the one node into a state for a while."""
    cluster.call("scontrol", "update", f"NodeName={cluster.host}", f"State={state}", *words)
    try:
        yield
    finally:
        cluster.call("scontrol", "update", f"NodeName={cluster.host}", "State=RESUME")
        cluster.ask(cluster.is_idle)


@TOGETHER
@pytest.mark.parametrize("state", ["DRAIN", "DOWN"])
def test_a_node_that_is_drained_or_down_can_start_nothing_until_it_resumes(
    cluster: Cluster, state: str
) -> None:
    standing = Standing(of_cluster(cluster), clock=SystemClock(), every_ms=0)
    standing.look()
    assert standing.why == ""

    with node(cluster, state, "Reason=new fans"):
        standing.look()
        assert standing.why.startswith(DRAINED) and state in standing.why
        assert standing.why.endswith(": new fans")

    standing.look()
    assert standing.why == ""


@TOGETHER
def test_a_partition_that_is_shut_and_an_account_that_is_gone_are_told(cluster: Cluster) -> None:
    standing = Standing(of_cluster(cluster), clock=SystemClock(), every_ms=0)
    cluster.call("scontrol", "update", "PartitionName=leases", "State=DOWN")
    try:
        standing.look()
        assert standing.why == "the partition leases is DOWN"
    finally:
        cluster.call("scontrol", "update", "PartitionName=leases", "State=UP")
    standing.look()
    assert standing.why == ""

    for missing, why in (
        ({"partition": "none"}, "none"),
        ({"account": "none"}, "root may not submit jobs in the account none any more"),
        ({"node": "none"}, "the cluster knows no node none"),
    ):
        of = Standing(of_cluster(cluster, **missing), clock=SystemClock(), every_ms=0)
        of.look()
        assert why in of.why


@TOGETHER
def test_a_controller_that_is_away_is_told_only_after_a_while(cluster: Cluster) -> None:
    patient = Standing(of_cluster(cluster), clock=SystemClock(), every_ms=0)
    hasty = Standing(of_cluster(cluster), clock=SystemClock(), every_ms=0, away_ms=0)
    cluster.end("slurmctld", signal.SIGTERM)  # so that it remembers how its node stood
    try:
        patient.look()
        hasty.look()
        assert patient.why == ""
        assert hasty.why.startswith("the cluster does not answer: ")
    finally:
        cluster.start("slurmctld")

    def answers() -> bool:
        hasty.look()
        return not hasty.why

    until(answers)
