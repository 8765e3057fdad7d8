"""What can go wrong with a market, each for as long as a `with` lasts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from config.database.embedded import stop as stop_database
from tests.journeys.hosts import Machine
from tests.outages.server import Server
from tests.outages.storm import Market

Fault = Callable[[], AbstractContextManager[None]]
SIMULATED = ("--simulate", "A10:1")


def faults_of_database(server: Server) -> dict[str, Fault]:
    """Return what can go wrong with a server, by name."""

    @contextmanager
    def killed() -> Iterator[None]:
        server.kill()
        try:
            yield
        finally:
            server.start()

    @contextmanager
    def shut_down() -> Iterator[None]:
        stop_database(server.home)
        try:
            yield
        finally:
            server.start()

    @contextmanager
    def hung() -> Iterator[None]:
        server.hang()
        try:
            yield
        finally:
            server.go_on()

    @contextmanager
    def read_only() -> Iterator[None]:
        server.refuse_writes(True)
        try:
            yield
        finally:
            server.refuse_writes(False)

    @contextmanager
    def full() -> Iterator[None]:
        server.fill()
        try:
            yield
        finally:
            server.make_room()
            server.start()  # one that has no room for its own log gives up

    faults: dict[str, Fault] = {
        "database killed": killed,
        "database shut down": shut_down,
        "database hung": hung,
        "database read-only": read_only,
    }
    if server.can_be_full:
        faults["database full"] = full
    return faults


def faults_of_market(market: Market, machine: Machine, server: Server) -> dict[str, Fault]:
    """Return what can go wrong with processes, connections and clients, by name."""

    @contextmanager
    def connections_end() -> Iterator[None]:
        server.end_connections()
        yield

    @contextmanager
    def process(name: str) -> Iterator[None]:
        market.kill_child(name)
        yield

    @contextmanager
    def agent_killed() -> Iterator[None]:
        market.kill(machine.process)
        try:
            yield
        finally:
            machine.start_agent(*SIMULATED)

    return {
        "slow clients": market.slow_clients,
        "agent stands still": partial(market.stopped, machine.process),
        "agent killed": agent_killed,
        "connections end": connections_end,
        **{f"process {name}": partial(process, name) for name in market.children()},
    }
