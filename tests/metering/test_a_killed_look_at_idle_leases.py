"""A process that looks at idle leases is killed with SIGKILL; the next one goes on from there."""

from __future__ import annotations

import os
import signal
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from ledger.eventstore.postgres import PostgresStore
from marketplace.commands.leases import release_idle_lease
from marketplace.domain.facts import close_reasons
from metering import idling
from metering.domain.idle_events import IdleLeaseReleased
from metering.idling import watch_idle_leases
from tests.forking import Fork
from tests.metering.idle_lease import Host, look, rule, run_lease, state
from tests.metering.world import LEASE, World, minute

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("committed_store"),
]
SECONDS_MAX = 60.0


def look_and_die(database: str, now: datetime, *, after: bool) -> None:
    """Look at all leases; once a release is recorded, die before or after its lease is ended."""
    connection.settings_dict["NAME"] = database

    def die(*given: Any, **named: Any) -> None:
        if after:
            release_idle_lease(*given, **named)
        os.kill(os.getpid(), signal.SIGKILL)

    # Of this process alone, which does not come to undo it.
    pytest.MonkeyPatch().setattr(idling, "release_idle_lease", die)
    watch_idle_leases(PostgresStore(), now=now)


def die_before(database: str, now: datetime) -> None:
    look_and_die(database, now, after=False)


def die_after(database: str, now: datetime) -> None:
    look_and_die(database, now, after=True)


def named(world: World, stream: str, name: str) -> int:
    return sum(type(each.event).__name__ == name for each in world.store.read_stream(stream))


@pytest.mark.parametrize("die", [die_before, die_after])
def test_a_lease_whose_release_is_recorded_ends_once_whenever_its_process_is_killed(
    die: Any, tmp_path: Path
) -> None:
    world = World(PostgresStore())
    run_lease(world)
    rule(world, 30)
    host = Host(world)
    host.tells(0, 30)
    assert look(world, 30) == 1
    host.tells(30, 35)

    name = str(connection.settings_dict["NAME"])
    doomed = Fork(die, name, minute(35), log=tmp_path / "look.log")

    assert doomed.wait(SECONDS_MAX) == -signal.SIGKILL, (tmp_path / "look.log").read_text()
    assert named(world, f"idle-{LEASE}", IdleLeaseReleased.__name__) == 1
    ended = die is die_after
    assert state(world) == (("ending", close_reasons.IDLE) if ended else ("active", None))
    world.follow()
    for later in (35.5, 36):
        look(world, later)
    assert state(world) == ("ending", close_reasons.IDLE)
    assert named(world, f"lease-{LEASE}", "LeaseEnding") == 1
    assert named(world, f"idle-{LEASE}", IdleLeaseReleased.__name__) == 1
