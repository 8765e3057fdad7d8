"""A GPU that failed comes back after a proof, and later each time that it fails again."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from listings.domain.events import GpuNoted, GpuQuarantined
from listings.domain.fitness import RELAPSE_WITHIN, RELAPSES_MAX, Returned, relapses
from metering.domain.health import CONDITIONS, PROOF_MAX, proof_of
from tests.conftest import NOON
from tests.metering.watched import NEXT_BOOT, Hosts, minutes
from tests.metering.watched import hosts as hosts
from tests.metering.world import HOST

CORRUPT = "silent corruption: 1 of 16777216 words were computed wrongly; probed again in 1 min"


def facts(hosts: Hosts, kind: type) -> list[object]:
    stream = hosts.world.store.read_stream(f"host-{HOST}")
    return [each.event for each in stream if isinstance(each.event, kind)]


@pytest.mark.django_db
def test_one_whose_diagnostic_failed_is_withheld_with_the_next_look(hosts: Hosts) -> None:
    hosts.say("diagnostic-failed", detail=CORRUPT)
    hosts.step()
    assert hosts.unfit == {"GPU-0a": "diagnostic-failed"}
    assert hosts.host().unfit["GPU-0a"].detail == CORRUPT


@pytest.mark.django_db
def test_only_a_diagnostic_that_passed_brings_it_back(hosts: Hosts) -> None:
    """Neither time nor an agent that was started anew does."""
    hosts.say("diagnostic-failed", detail=CORRUPT)
    hosts.wait(until=minutes(30))
    hosts.register(NEXT_BOOT)
    hosts.wait(until=minutes(30))
    assert hosts.unfit == {"GPU-0a": "diagnostic-failed"}

    hosts.say("diagnostic-passed", boot=NEXT_BOOT)
    hosts.step()
    hosts.step()

    assert hosts.unfit == {}


@pytest.mark.django_db
def test_what_fails_again_right_after_its_return_waits_longer(hosts: Hosts) -> None:
    waited = []
    for _ in range(3):
        hosts.say("gpu-lost", detail="GPU is lost")
        hosts.step()
        hosts.say("recovered")
        since = hosts.now
        while hosts.unfit:
            hosts.step(timedelta(seconds=25))
        waited.append((hosts.now - since) // minutes(1))
    assert waited == [10, 20, 40]
    found = facts(hosts, GpuQuarantined)
    assert [each.relapses for each in found] == [0, 1, 2]  # type: ignore[attr-defined]


@pytest.mark.django_db
def test_diagnostics_and_clocks_are_on_record_where_they_are_news(hosts: Hosts) -> None:
    hosts.say("diagnostic-passed", detail="fine")
    hosts.step()
    hosts.say("diagnostic-passed", detail="fine")
    hosts.step()
    hosts.say("slowed", detail="its clocks are held down: it is too hot")
    hosts.step()
    hosts.watch = hosts.new_watch()  # which reads all of it again
    hosts.step()
    hosts.say("diagnostic-failed", detail=CORRUPT)
    hosts.step()
    told = [each.note for each in facts(hosts, GpuNoted)]  # type: ignore[attr-defined]
    assert told == ["diagnostic-passed", "slowed", "diagnostic-failed"]


@given(st.sampled_from(sorted(CONDITIONS)), st.integers(0, RELAPSES_MAX))
def test_proofs_grow_with_relapses_and_have_a_bound(reason: str, count: int) -> None:
    shorter, longer = proof_of(reason, count), proof_of(reason, count + 1)
    assert shorter <= longer <= PROOF_MAX
    assert longer > shorter or longer == PROOF_MAX


@given(st.integers(0, RELAPSES_MAX), st.timedeltas(timedelta(), timedelta(days=3)))
def test_one_that_was_well_for_long_begins_anew(count: int, since: timedelta) -> None:
    found = relapses(Returned(NOON, count), now=NOON + since)
    assert found == (0 if since > RELAPSE_WITHIN else min(count + 1, RELAPSES_MAX))
