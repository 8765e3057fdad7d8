"""Two markets in one log, each cleared by a process of its own; one killed, another goes on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from multiprocessing import Pipe
from multiprocessing.connection import Connection

import pytest
from django.db import connection

from ledger.eventstore.postgres import PostgresStore
from marketplace.commands.moving import ask_for_move
from marketplace.domain.bids.routing import Look
from marketplace.domain.facts.events import BidHandedOn, BidPlaced, LeaseGranted, RoundCleared
from tests.forking import prepared
from tests.marketplace.support.clearing_process import clear
from tests.marketplace.support.invariants import audit
from tests.marketplace.support.market import Market, rate, somebody

PATIENCE_SECONDS = 60.0
BIDS = 24
HOUR = timedelta(hours=1)

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("committed_store")]


@contextmanager
def clearing(market: Market, point: str = "never") -> Iterator[Connection]:
    """Clear a market in another process, once it has come to `point`; it is killed at the end."""
    ours, theirs = Pipe()
    with ours:
        name = str(connection.settings_dict["NAME"])
        process = prepared().Process(target=clear, args=(theirs, name, market.name, point))
        process.start()
        theirs.close()
        try:
            assert ours.poll(PATIENCE_SECONDS)
            assert ours.recv() == point
            yield ours
        finally:
            process.kill()
            process.join()
            process.close()


def two_markets() -> tuple[Market, Market]:
    store = PostgresStore()
    return Market(store, name="main"), Market(store, name="eu")


def wait_for(market: Market, grants: int) -> None:
    """Wait until so many bids of a market have a lease."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(market.grants()) < grants:
        assert time.monotonic() < deadline, f"{len(market.grants())} leases in {market.name}"
        time.sleep(0.02)


def no_gpu_twice(market: Market) -> None:
    """Check the whole log, and that each market granted its own bids and GPUs alone."""
    log = list(market.events())
    audit(log)
    bids = {each.event.bid_id: each.event.market for each in log if type(each.event) is BidPlaced}
    for recorded in log:
        if isinstance(recorded.event, LeaseGranted):
            assert recorded.stream == f"market-{bids[recorded.event.bid_id]}"


def test_two_processes_clear_two_markets_of_one_log_side_by_side() -> None:
    main, eu = two_markets()
    for market in (main, eu):
        for number in range(BIDS):
            market.offer(f"{market.name} {number}")

    with clearing(main), clearing(eu):
        for number in range(BIDS):
            for market in (main, eu):
                market.bid(f"{market.name} {number}")
        wait_for(main, BIDS)
        wait_for(eu, BIDS)

    no_gpu_twice(main)
    leased = [uuid for m in (main, eu) for g in m.grants().values() for uuid in _gpus(g)]
    assert len(leased) == len(set(leased)) == 2 * BIDS


@pytest.mark.parametrize(("point", "there"), [("before", 0), ("after", 2)])
def test_another_engine_goes_on_where_one_was_killed(point: str, there: int) -> None:
    main, eu = two_markets()
    for market in (main, eu):
        market.offer(f"{market.name} host", gpus=2)
        market.bid(f"{market.name} first", gpus=2)
    eu_before = len(eu.decisions())

    with clearing(main, point):
        pass  # killed there: what it decided is written whole, or nothing of it is

    assert len(main.decisions()) == there
    assert len(eu.decisions()) == eu_before
    main.bid("main second", gpus=2, deadline=main.now + HOUR)
    with clearing(main), clearing(eu):
        wait_for(main, 1)
        wait_for(eu, 1)
    no_gpu_twice(main)
    assert main.grant("main first") is not None
    assert main.grant("main second") is None
    assert len([each for each in main.decisions() if type(each.event) is RoundCleared]) >= 1


def test_an_engine_that_comes_back_is_fenced_by_the_one_that_took_over() -> None:
    main, _ = two_markets()
    main.offer("host", gpus=2)
    main.bid("first", gpus=2)

    with clearing(main, "before") as paused:
        assert main.run() > 0  # it took the market over while the other slept
        taken = len(main.decisions())
        main.bid("second", gpus=2, deadline=main.now + HOUR)
        paused.close()  # and now it wakes up and appends what it had decided
        time.sleep(0.5)
        main.run()

    granted = [each for each in main.decisions() if isinstance(each.event, LeaseGranted)]
    assert len(granted) == 1
    assert len(main.decisions()) >= taken
    no_gpu_twice(main)


def _gpus(granted: LeaseGranted) -> list[str]:
    return [uuid for share in granted.shares for uuid in share.gpu_uuids]


@pytest.mark.parametrize("killed", ["before", "after"])
def test_a_bid_is_handed_on_once_whichever_engine_is_killed_on_the_way(killed: str) -> None:
    main, eu = two_markets()
    bid_id = main.bid("wanders", gpus=2)
    with clearing(main, "after"):
        pass  # it found nothing, and was killed
    eu.offer("eu host", gpus=2)
    assert ask_for_move(
        main.store,
        bid_id=bid_id,
        market="main",
        to=Look("eu", rate(1), main.now),
        moves=0,
        by=somebody(),
        now=main.now + HOUR,
    )

    with clearing(main, killed):
        pass  # killed before it handed the bid on, or after
    main.offer("main host", gpus=2)
    with clearing(eu, killed) if killed == "after" else nullcontext():
        pass
    with clearing(main), clearing(eu):
        wait_for(eu, 1)

    handed = [each for each in main.decisions() if type(each.event) is BidHandedOn]
    assert len(handed) == 1
    assert list(eu.grants()) == [bid_id]
    assert main.grants() == {}
    audit(list(main.events()))
