"""An owner pauses, drains and releases a host at the host itself, whatever the market does."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from metering.agent.hand.switch import FILE, Word, read_word
from metering.agent.hand.taking import DRAINED, NO_NEW, RELEASED
from metering.agent.wire import Assignments, Report, Taking
from tests.metering.agent.conftest import NOON_MS, Rig
from tests.metering.agent.market import Market, assignment


def running(rig: Rig) -> set[UUID]:
    return {work.lease_id for work in rig.runtime.works() if work.state == "running"}


def last(rig: Rig, lease: UUID) -> Report:
    return rig.market.told(lease)[-1]


def a_lease(rig: Rig, place: int = 0, *, notice_seconds: int | None = 120, after: int = 0) -> UUID:
    wanted = assignment(rig.uuids()[place], now_ms=NOON_MS + after)
    return rig.market.assign(replace(wanted, notice_seconds=notice_seconds))


def test_a_paused_host_starts_nothing_and_lets_run_what_runs(simulated_rig: Rig) -> None:
    rig = simulated_rig
    before = a_lease(rig)
    rig.step()

    rig.agent.heed("paused")
    after = a_lease(rig, 1)
    rig.steps(10)

    assert running(rig) == {before}
    assert (last(rig, after).what, last(rig, after).reclaimed) == ("stopped", True)
    assert last(rig, after).detail == NO_NEW
    assert rig.market.registrations[-1].taking == "paused"


def test_a_lease_that_begins_after_the_pause_is_started(simulated_rig: Rig) -> None:
    rig = simulated_rig
    lease = a_lease(rig, after=20_000)
    rig.step()
    rig.agent.heed("paused")
    rig.steps(5)
    rig.agent.heed("all")

    rig.steps(20)

    assert running(rig) == {lease}


@pytest.mark.parametrize("away", [False, True], ids=["with the market", "without it"])
def test_a_drained_host_ends_what_runs_with_its_notice(simulated_rig: Rig, away: bool) -> None:
    rig = simulated_rig
    lease = a_lease(rig)
    rig.step()
    rig.market.away = away

    rig.agent.heed("draining")
    rig.step()
    assert rig.runtime.notices == {lease: NOON_MS + 121_000}
    rig.steps(115)
    assert running(rig) == {lease}
    rig.steps(10)

    assert running(rig) == set()
    rig.market.away = False
    rig.steps(60)
    end = last(rig, lease)
    assert (end.what, end.reclaimed, end.detail) == ("stopped", True, DRAINED)


def test_work_whose_notice_was_never_told_runs_to_its_end(simulated_rig: Rig) -> None:
    rig = simulated_rig
    lease = a_lease(rig, notice_seconds=None)
    rig.step()

    rig.agent.heed("draining")
    rig.steps(10)

    assert running(rig) == {lease}
    assert rig.runtime.notices == {}


@pytest.mark.parametrize("away", [False, True], ids=["with the market", "without it"])
def test_release_frees_the_cards_at_once(simulated_rig: Rig, away: bool) -> None:
    rig = simulated_rig
    lease = a_lease(rig)
    rig.step()
    rig.market.away = away

    rig.agent.heed("released")

    assert running(rig) == set()
    rig.market.away = False
    rig.steps(60)
    end = last(rig, lease)
    assert (end.what, end.reclaimed, end.detail) == ("stopped", True, RELEASED)


def test_released_with_grace_work_is_asked_first(simulated_rig: Rig) -> None:
    rig = simulated_rig
    lease = a_lease(rig)
    rig.runtime.stubborn.add(lease)
    rig.step()

    rig.agent.heed("released", stated_grace=True)
    assert running(rig) == {lease}
    rig.steps(3)

    assert running(rig) == set()


def test_a_released_host_resumed_before_the_market_hears_is_paid_for(simulated_rig: Rig) -> None:
    rig = simulated_rig
    lease = a_lease(rig)
    rig.step()
    rig.market.away = True
    rig.agent.heed("released")
    rig.step()
    rig.agent.heed("all")
    rig.market.away = False

    rig.steps(60)

    assert last(rig, lease).reclaimed


def test_the_word_outlives_the_agent(simulated_rig: Rig) -> None:
    rig = simulated_rig
    rig.agent.heed("draining")

    rig.restart()
    lease = a_lease(rig)
    rig.steps(3)

    assert rig.agent.status()["hand"]["taking"] == "draining"
    assert running(rig) == set() and last(rig, lease).reclaimed


def test_the_stricter_of_both_switches_holds(simulated_rig: Rig) -> None:
    rig = simulated_rig
    rig.step()
    rig.market.taking = "paused"
    rig.steps(6)
    lease = a_lease(rig)
    rig.agent.heed("all")
    rig.steps(6)

    hand = rig.agent.status()["hand"]
    assert (hand["taking"], hand["at_host"], hand["on_market"]) == ("paused", "all", "paused")
    assert running(rig) == set() and last(rig, lease).reclaimed
    assert rig.market.registrations[-1].taking == "all"  # that is the host's own switch


def test_an_agent_of_before_is_told_nothing_new(market: Market) -> None:
    told = Assignments.from_json(
        {"server_time": "2026-01-01T00:00:00Z", "assignments": []}
    ).to_json()

    assert set(told) == {"server_time", "assignments"}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"taking": "some"}', '{"takin": "all"}', "\0"])
def test_a_word_that_makes_no_sense_is_a_pause(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)

    assert read_word(tmp_path).taking == "paused"


def test_said_twice_the_first_time_counts() -> None:
    first = Word().then("draining", now_ms=10)

    assert first.then("draining", now_ms=20) == first
    assert first.then("released", now_ms=20).since_ms == 20


def test_what_ended_while_everything_was_released_was_released() -> None:
    word = Word().then("released", now_ms=10).then("all", now_ms=20)

    assert [word.released_at(at_ms) for at_ms in (9, 10, 20, 21)] == [False, True, True, False]


def test_the_account_is_on_disk_for_when_no_agent_runs(simulated_rig: Rig) -> None:
    rig = simulated_rig
    lease = a_lease(rig)
    rig.steps(5)

    kept = json.loads((rig.state_dir / "status.json").read_text())

    (told,) = kept["leases"]
    assert (told["lease_id"], told["state"]) == (str(lease), "running")
    assert [gpu["use"] for gpu in kept["gpus"]] == [f"leased to {lease}", "idle"]


TAKINGS: list[Taking] = ["paused", "draining", "released"]


@pytest.mark.parametrize("taking", TAKINGS)
def test_what_the_disk_does_not_take_holds_until_the_next_start(
    simulated_rig: Rig, taking: Taking, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = simulated_rig
    rig.step()
    monkeypatch.setattr(
        "metering.agent.hand.switch.write_word", lambda *_: (_ for _ in ()).throw(OSError("full"))
    )

    with pytest.raises(OSError, match="full"):
        rig.agent.heed(taking)

    assert rig.agent.status()["hand"]["taking"] == taking
