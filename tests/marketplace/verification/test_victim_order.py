"""The check of a round knows in which order leases go, and that no more go than need be."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from ledger.domain.ids import LeaseId
from marketplace.domain.placement import placement
from marketplace.domain.preemption import interrupt, reclaim_quota
from marketplace.domain.quotas.reclaim_candidates import Planner, Running
from marketplace.domain.rounds import preemption_pass
from tests.marketplace.support.borrowed import Lent
from tests.marketplace.support.borrowed_in_rounds import rounds
from tests.marketplace.support.invariants import audit
from tests.marketplace.support.market import Market
from tests.marketplace.support.preemption_in_rounds import patient, rounded
from tests.marketplace.verification.victim_order import in_turn as in_turn

pytestmark = pytest.mark.usefixtures("in_turn")

HOUR = timedelta(hours=1)


def dropped(market: Market) -> list[str]:
    """Let a round be cleared; return why grants were dropped."""
    with capture_logs() as logs:
        rounded(market)
    audit(market.events())
    return [line["fault"] for line in logs if line["event"] == "round.grant-dropped"]


# --- interrupted at a price --------------------------------------------------------------------


def interruptible(**hours: int) -> Market:
    """Return a market of single GPUs, each with an interruptible lease that long."""
    market = Market()
    for word, length in hours.items():
        market.offer(word, gpus=1, at=1)
        market.bid(word, hours=length, at=1, service_class="interruptible")
        market.run()
    market.wait(minutes=40)
    return market


def spare(monkeypatch: pytest.MonkeyPatch, *leases: LeaseId) -> None:
    """Let the engine overlook some leases."""
    honest = interrupt.plan_for

    def plan_for(*args: Any, spared: Iterable[LeaseId] = (), **said: Any) -> Any:
        return honest(*args, spared={*spared, *leases}, **said)

    monkeypatch.setattr(preemption_pass, "plan_for", plan_for)


def test_who_has_least_to_lose_goes() -> None:
    market = interruptible(long=20, short=9)
    patient(market, at=9)

    assert dropped(market) == []
    granted = market.grant("firm")
    assert granted is not None
    assert [cut.lease_id for cut in granted.cuts] == [market.lease_id("short")]


def test_who_has_more_to_lose_does_not_go_in_its_stead(monkeypatch: pytest.MonkeyPatch) -> None:
    market = interruptible(long=20, short=9)
    patient(market, at=9)
    spare(monkeypatch, market.lease_id("short"))

    [said] = dropped(market)

    assert f"{market.lease_id('long')} is cut, although {market.lease_id('short')} would do" in said
    assert market.grant("firm") is None


def test_one_that_protects_itself_is_no_reproach(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shorter lease has just begun: by the time it may stop the bid could not begin."""
    market = interruptible(long=20)
    market.offer("short", gpus=1, at=1)
    market.bid("short", hours=9, at=1, service_class="interruptible")
    market.run()
    market.bid("firm", at=9, hours=6, deadline=market.now + 6.2 * HOUR, patience="patient")

    assert dropped(market) == []
    granted = market.grant("firm")
    assert granted is not None
    assert [cut.lease_id for cut in granted.cuts] == [market.lease_id("long")]


def test_no_more_go_than_need_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two small leases lose less each; only together do they make room, where one big one would."""
    market = Market()
    for word, gpus in (("big", 2), ("left", 1), ("right", 1)):
        host = "b" if word == "big" else "a"
        only = {"big": (0, 1), "left": (0,), "right": (1,)}[word]
        market.offer(word, host=host, gpus=2, only=only, at=1)
        market.bid(word, gpus=gpus, hours=9 if word == "big" else 8, at=1,
                   service_class="interruptible")  # fmt: skip
        market.run()
    market.wait(minutes=40)
    patient(market, gpus=1, at=9)
    honest = placement.place

    def place(*args: Any, **said: Any) -> Any:
        """Find room only once two leases are gone."""
        calendar = args[2]
        gone = sum(market_lease_is_cut(calendar, market, word) for word in ("left", "right"))
        return honest(*args, **said) if gone == 2 else None

    monkeypatch.setattr(interrupt, "place", place)

    assert any("would do" in said or "not in the way" in said for said in dropped(market))
    assert market.grant("firm") is None


def market_lease_is_cut(calendar: Any, market: Market, word: str) -> bool:
    granted = market.grant(word)
    assert granted is not None
    [uuid] = granted.shares[0].gpu_uuids
    [span] = [each for each in calendar.of(uuid) if each.lease_id == granted.lease_id]
    return bool(span.ends < calendar._parent.of(uuid)[0].ends)


# --- taken back --------------------------------------------------------------------------------


def borrowed(*leases: tuple[str, int, str]) -> Lent:
    """Return a market in which blue has all eight GPUs; red cannot wait for two of its own.

    leases: words, GPUs, service classes; the first begins first.
    """
    market = Lent()
    market.offer("rack", gpus=8)
    market.govern(red=(4, None), blue=(4, None))
    for word, gpus, service in leases:
        market.borrow(word, gpus, service=service)  # type: ignore[arg-type]  # a class
        market.wait(minutes=40)
    market.asking = "red"
    deadline = market.now + 4.25 * HOUR
    market.bid("mine", gpus=2, at=4, hours=4, deadline=deadline, patience="patient")
    market.asking = ""
    return market


THREE = (("old", 4, "on-demand"), ("soft", 2, "interruptible"), ("new", 2, "on-demand"))
FIRM = (("old", 4, "on-demand"), ("middle", 2, "on-demand"), ("new", 2, "on-demand"))


def misjudge(monkeypatch: pytest.MonkeyPatch, **wrong: Any) -> None:
    """Let the engine go by another order: each figure is made by a function of the true one."""
    honest = reclaim_quota._Attempt._running

    def running(self: Any, **said: Any) -> Iterable[Running]:
        for each in honest(self, **said):
            yield replace(each, **{name: of(each) for name, of in wrong.items()})

    monkeypatch.setattr(reclaim_quota._Attempt, "_running", running)
    monkeypatch.setattr(preemption_pass, "plan_for", lambda *_, **__: None)


def test_interruptible_ones_go_first_and_then_the_newest() -> None:
    for leases, goes in ((THREE, "soft"), (FIRM, "new")):
        market = borrowed(*leases)
        assert dropped(market) == []
        assert market.cut("mine") == [str(market.lease_id(goes))]


def test_firm_ones_do_not_go_before_interruptible_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    market = borrowed(*THREE)
    misjudge(monkeypatch, firm=lambda each: not each.firm)

    [said] = dropped(market)

    assert f"{market.lease_id('new')} is cut, although {market.lease_id('soft')}" in said
    assert market.grant("mine") is None


def test_older_ones_do_not_go_before_newer_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """In either order that is allowed: the newest first, or those that cost least."""
    market = borrowed(*FIRM)
    misjudge(
        monkeypatch, since=lambda each: -each.since, priority=lambda each: -each.gpus
    )  # fmt: skip

    [said] = dropped(market)

    assert f"{market.lease_id('old')} is cut, although" in said
    assert market.grant("mine") is None


def test_no_more_are_taken_back_than_need_be(monkeypatch: pytest.MonkeyPatch) -> None:
    market = borrowed(*FIRM)
    monkeypatch.setattr(Planner, "_needed", lambda self, node, gpus, gone, placeable: list(gone))
    honest, looks = Planner._enough, iter([False, False, False])

    def enough(self: Planner, *args: Any) -> bool:
        """Find out one lease too late that it is enough."""
        return next(looks, True) and honest(self, *args)

    monkeypatch.setattr(Planner, "_enough", enough)

    said = dropped(market)

    assert any(f"{market.lease_id('middle')} is cut, although" in each for each in said)
    assert market.grant("mine") is None


def test_nobody_goes_who_need_not_where_quota_alone_was_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """GPUs are free; what red lacks is quota that blue has borrowed. One lease gives enough."""
    market = Lent()
    market.offer("rack", gpus=12)
    market.govern(red=(4, None), blue=(4, None))
    for word, gpus in (("old", 4), ("middle", 2), ("new", 2)):
        market.borrow(word, gpus)
        market.wait(minutes=40)
    market.asking = "red"
    deadline = market.now + 4.25 * HOUR
    market.bid("mine", gpus=2, at=4, hours=4, deadline=deadline, patience="patient")
    market.asking = ""
    misjudge(monkeypatch, since=lambda each: -each.since, priority=lambda each: -each.gpus)

    [said] = dropped(market)

    assert f"{market.lease_id('old')} is cut, although" in said


def test_the_order_by_cost_is_allowed_where_the_newest_cost_too_much() -> None:
    """As the engine plans it, unchanged, over an hour of rounds: nothing is dropped."""
    market = borrowed(*FIRM)
    with capture_logs() as logs:
        rounds(market, 0.5)
    assert not [line for line in logs if line["event"] == "round.grant-dropped"]
    assert market.grant("mine") is not None
