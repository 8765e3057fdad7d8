"""The doctor names the level at which a host keeps work apart, and what the next one lacks."""

from __future__ import annotations

from pathlib import Path

from metering.agent import level_checks
from metering.agent.runtimes import groups
from metering.agent.runtimes.levels import sandbox_of
from metering.agent.runtimes.limits import Limits
from metering.agent.work_as import WorkAs
from tests.metering.agent.works import ROOT, accounts, confinement

MIB = 1 << 20


def line(found: WorkAs, limits: Limits, folder: Path, *runtimes: str) -> str:
    [check] = level_checks.examine(found, runtimes or ("process",), limits, folder)
    return check.line()


def test_without_accounts_the_first_step_is_told(tmp_path: Path) -> None:
    found = WorkAs(users=None, confinement=None, unconfined="not installed", trusted=True)

    assert line(found, Limits(), tmp_path) == (
        "?    isolation: level none -> for account: run the agent as root, with --work-users"
        " 300000-300031"
    )


@ROOT
def test_each_level_names_what_the_next_one_lacks(tmp_path: Path) -> None:
    users = accounts(2)
    bare = WorkAs(
        users=users, confinement=None, unconfined="bubblewrap is not there", trusted=False
    )
    boxed = WorkAs(users=users, confinement=confinement(users), unconfined="", trusted=False)
    bounded = Limits(memory_bytes=256 * MIB, disk_bytes=24 * MIB)

    assert line(bare, bounded, tmp_path).endswith(
        "level account -> for process: bubblewrap is not there"
    )
    process = line(boxed, Limits(), tmp_path)
    assert "level process -> for full: --work-memory-gib N" in process
    assert process.endswith("--work-disk-gib N")
    if "memory" in groups.kept_by(bounded):
        full = sandbox_of(users, boxed.confinement, bounded, disk=True).level
        assert full == "full"
        assert line(boxed, bounded, tmp_path).endswith(
            "level full -> for container: --runtimes process,podman, for work in images"
        )
        assert line(boxed, bounded, tmp_path, "process", "podman").endswith("level full")
