"""EventStoreDB is killed, or hangs, under a whole market: every process goes on by itself after.

The events are in a server of their own that speaks EventStoreDB's protocol; what is read is in
PostgreSQL, which is well all along.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest

from tests.esdb_protocol.process import ServerProcess
from tests.journeys.hosts import Machine, register
from tests.journeys.installation import until
from tests.journeys.work import Work
from tests.outages.storm import Market
from tests.outages.writing import Writer, check_nothing_lost_or_doubled, shown_to

pytestmark = pytest.mark.soak
REGION = "store"
AWAY_SECONDS = 20.0
"""Longer than the engine and the followers wait for one answer."""
RECOVERY_SECONDS_MAX = 60.0


@pytest.fixture
def events(tmp_path: Path) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path / "events.journal")
    yield server
    if server.running:
        server.kill()


@pytest.fixture
def market(events: ServerProcess) -> Iterator[Market]:
    home = Path(tempfile.mkdtemp(prefix="offp"))
    market = Market(home, {"EVENTSTORE_URL": events.uri, "OFFPEAK_DEMO": "0"})
    try:
        market.start_up()
        yield market
    finally:
        market.end_all()
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def machine(market: Market, work_folder: Path) -> Iterator[Machine]:
    """A host with a GPU for each lease of the test, and its agent."""
    machine = register(market, "ada", REGION, work_folder)
    machine.start_agent("--simulate", "A10:3")
    machine.list_for(2, floor="0.5", gpus=machine.gpus())
    yield machine
    machine.retire()


def test_the_engine_and_all_others_go_on_once_the_event_store_is_back(
    market: Market, machine: Machine, events: ServerProcess, work_folder: Path
) -> None:
    @contextmanager
    def killed() -> Iterator[None]:
        events.kill()
        try:
            yield
        finally:
            events.start()

    @contextmanager
    def hung() -> Iterator[None]:
        events.hang()
        try:
            yield
        finally:
            events.go_on()

    first = Work(work_folder / "first")
    standing = take(market, first)
    processes = market.children()
    connect = partial(httpx.Client, base_url=market.url, timeout=20.0, trust_env=False)
    writer = Writer(connect, market.tokens["bruno"], "nowhere")
    writer.start()
    for name, fault in {"killed": killed, "hung": hung}.items():
        until(partial(writer.has_gone_on, writer.acknowledged))
        away(market, writer, fault, name)
        take(market, Work(work_folder / name))  # what only the engine can give
        until(lambda: market.children() == processes, why=lambda: str(market.children()))
    writer.stop(60.0)

    with market.client("bruno") as api:
        check_nothing_lost_or_doubled([writer], shown_to(api, writer))
    print(f"{writer.acknowledged} bids acknowledged, repeated {writer.repeated}")
    assert [said["what"] for said in first.everything()] == ["started"]
    market.lease_of("grace", standing, state="active")
    until(lambda: market.manage_anyway("doctor").code == 0, seconds=RECOVERY_SECONDS_MAX)


def away(
    market: Market,
    writer: Writer,
    fault: Callable[[], AbstractContextManager[None]],
    name: str,
) -> None:
    """Let the store be away; then wait until a write gets through again."""
    began = time.monotonic()
    with fault():
        until(lambda: not market.is_ready(), seconds=AWAY_SECONDS, why=f"/readyz, {name}")
        until(market.is_alive, seconds=5.0, why=f"/healthz, {name}")
        until(lambda: time.monotonic() - began > AWAY_SECONDS)
    ended, count = time.monotonic(), writer.acknowledged
    until(market.is_ready, seconds=RECOVERY_SECONDS_MAX, why=name)
    until(
        partial(writer.has_gone_on, count),
        seconds=RECOVERY_SECONDS_MAX,
        why=f"{name}: {writer.repeated}",
    )
    assert writer.wrong == [], name
    print(f"event store {name}: back after {time.monotonic() - ended:.1f} s", flush=True)


def take(market: Market, work: Work) -> str:
    """Take a lease of one GPU; return its bid once the work has begun."""
    bid = market.bid("grace", f"gpu=A10 region={REGION}", work.command, duration_seconds=3_600)
    market.lease_of("grace", bid, state="active")
    until(lambda: work.told("started"), why="the work does not begin")
    return bid
