"""A storm of faults over the product as `make up` starts it; nothing acknowledged is lost in it.

Its database is a server of its own: it is killed, stopped, hung, read-only, full, and ends
everybody's connections. Each process of the product is killed, the agent is killed or stands still,
and hundreds of clients hold half a request. Meanwhile consumers write, and repeat with the same key
what is refused; and a lease runs, which notices nothing of it all. First each fault comes alone;
then two at once until the time is up.

OFFPEAK_STORM_SECONDS makes it longer or shorter. A full disk is a small file system in memory,
mounted for the server alone: without the right to mount, that fault is left out.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from config.database.embedded import owners_password
from ledger.domain.money import nanos_of
from tests.journeys import books
from tests.journeys.hosts import Machine, register
from tests.journeys.installation import until
from tests.journeys.work import Work
from tests.outages.faults import SIMULATED, Fault, faults_of_database, faults_of_market
from tests.outages.server import Server
from tests.outages.storm import Market
from tests.outages.writing import Writer, check_nothing_lost_or_doubled, shown_to

pytestmark = pytest.mark.soak
STORM_SECONDS = float(os.environ.get("OFFPEAK_STORM_SECONDS", "300"))
PAIRS_MIN = 6
"""How many pairs of faults there are at least, also where the machine is slow."""
FAULT_SECONDS = 6.0
RECOVERY_SECONDS_MAX = 120.0
DISK_MIB = 700
REGION = "storm"
TOLERANCE_MS = 2_000


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server(mib_max=DISK_MIB)
    yield server
    server.remove()


@pytest.fixture
def password(server: Server) -> str:
    """Return a database password."""
    return owners_password(server.home)


@pytest.fixture
def market(server: Server) -> Iterator[Market]:
    home = Path(tempfile.mkdtemp(prefix="offp"))
    market = Market(
        home,
        {
            "DATABASE_URL": server.url,
            "OFFPEAK_DATABASE_STATEMENT_SECONDS": "3",
            "OFFPEAK_DATABASE_CONNECT_SECONDS": "3",
            "OFFPEAK_DEMO": "0",
        },
    )
    try:
        market.start_up()
        yield market
    finally:
        market.end_all()
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def machine(market: Market, work_folder: Path) -> Iterator[Machine]:
    """A host with one GPU, listed, and its agent."""
    machine = register(market, "ada", REGION, work_folder)
    machine.start_agent(*SIMULATED)
    machine.list_for(2, floor="0.5", gpus=machine.gpus())
    yield machine
    machine.retire()


def test_nothing_acknowledged_is_lost_or_doubled_in_a_storm(
    market: Market, machine: Machine, server: Server, password: str, work_folder: Path
) -> None:
    def connect() -> httpx.Client:
        return httpx.Client(base_url=market.url, timeout=20.0, trust_env=False)

    given = [machine.token, *given_out(market)]
    processes = set(market.children())
    work = Work(work_folder / "work")
    bid = market.bid("grace", f"gpu=A10 region={REGION}", work.command, duration_seconds=3_600)
    lease = market.lease_of("grace", bid, state="active")
    writers = [
        Writer(connect, market.tokens["grace"], "storm-a"),
        Writer(connect, market.tokens["bruno"], "storm-b"),
    ]
    for writer in writers:
        writer.start()
    rage(market, machine, server, writers)
    for writer in writers:
        writer.stop(60.0)

    until(market.is_ready, seconds=RECOVERY_SECONDS_MAX)
    until(lambda: set(market.children()) == processes, why=lambda: str(market.children()))
    until(lambda: not waiting_loops(server), seconds=RECOVERY_SECONDS_MAX, why="a loop is away")
    for person, writer in zip(("grace", "bruno"), writers, strict=True):
        with market.client(person) as api:
            check_nothing_lost_or_doubled([writer], shown_to(api, writer))
        print(f"{person}: {writer.acknowledged} bids acknowledged, repeated {writer.repeated}")
    assert [said["what"] for said in work.everything()] == ["started"]
    work.finish()
    market.lease_of("grace", bid, state="closed")
    is_charged_in_full(market, lease, work)
    doctor = until(lambda: clean(market), seconds=RECOVERY_SECONDS_MAX, why="doctor complains")
    print(doctor)
    assert market.open_files() == []
    assert market.files_with([*market.tokens.values(), password, *given]) == []


def given_out(market: Market) -> list[str]:
    """Return the tokens that the market hands out when asked for one."""
    with market.client("ada") as api:
        made = api.post("tokens", {"title": "storm", "scopes": ["market:read"]})
    return [str(made["token"])]


def is_charged_in_full(market: Market, lease: dict[str, Any], work: Work) -> None:
    """What the agent measured while nobody listened was kept and came, once."""
    use = books.final_use(market, "grace", lease["id"])
    started, finished = work.told("started"), work.told("finished")
    assert started is not None and finished is not None
    assert nanos_of(use["charged"]) == books.charge_of(lease, use["granted_ms"]).nanos > 0
    ran_ms = (finished["at"] - started["at"]) * 1000
    print(f"ran {ran_ms:.0f} ms, granted {use['granted_ms']} ms, gaps {use['gap_ms']} ms")
    assert use["granted_ms"] <= ran_ms + TOLERANCE_MS


def clean(market: Market) -> str:
    told = market.manage_anyway("doctor")
    return told.out if told.code == 0 and "FAIL" not in told.out else ""


def waiting_loops(server: Server) -> list[tuple[object, ...]]:
    """Return which loops have not gone through a pass as often as they say."""
    return server.ask(
        "SELECT name, error FROM site_looprun WHERE failures > 0"
        " OR passed_at + every_ms * interval '1 ms' + interval '20 s' < clock_timestamp()"
    )


def rage(market: Market, machine: Machine, server: Server, writers: list[Writer]) -> None:
    """Let every fault come once, then pairs of them until the time is up."""
    began, chance = time.monotonic(), random.Random(10)
    databases, others = faults_of_database(server), faults_of_market(market, machine, server)
    for name, fault in {**databases, **others}.items():
        endure(market, writers, {name: fault})
    pairs = 0
    while pairs < PAIRS_MIN or time.monotonic() - began < STORM_SECONDS:
        pairs += 1
        # What needs the database is begun before it is gone.
        one, two = chance.choice(sorted(others)), chance.choice(sorted(databases))
        endure(market, writers, {one: others[one], two: databases[two]})
    took = time.monotonic() - began
    print(f"{len(databases) + len(others)} faults and {pairs} pairs in {took:.0f} s")


def endure(market: Market, writers: list[Writer], faults: dict[str, Fault]) -> None:
    """Let faults be for a while; hold the market to being alive, and to coming back."""
    began = time.monotonic()
    with ExitStack() as raging:
        for fault in faults.values():
            raging.enter_context(fault())
        if "process web" not in faults:
            until(market.is_alive, seconds=5.0, why=f"/healthz is silent: {set(faults)}")
        if any(name.startswith("database") for name in faults):
            until(
                lambda: not market.is_ready(),
                seconds=20.0,
                why=f"/readyz says ready: {set(faults)}",
            )
        until(lambda: time.monotonic() - began > FAULT_SECONDS)
    ended = time.monotonic()
    until(market.is_ready, seconds=RECOVERY_SECONDS_MAX, why=f"after {set(faults)}")
    before = [writer.acknowledged for writer in writers]
    until(
        lambda: all(
            writer.has_gone_on(count) for writer, count in zip(writers, before, strict=True)
        ),
        seconds=RECOVERY_SECONDS_MAX,
        why=f"no write gets through after {set(faults)}",
    )
    assert [writer.wrong for writer in writers] == [[] for _ in writers], set(faults)
    print(f"{' and '.join(faults)}: back after {time.monotonic() - ended:.1f} s", flush=True)
