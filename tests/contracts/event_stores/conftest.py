"""The stores that the contract is run on.

`esdb-protocol` speaks through the real client to `tests/esdb_protocol`, which is a test double:
see `config/docs/event-store.md` for what that proves. `esdb-own-server` is a server of the
operator's, where the variable ESDB_URI names one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connection

from ledger.domain.event import EVENT_TYPES
from ledger.eventstore.esdb import EsdbStore
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.postgres import PostgresStore
from tests.contracts.event_stores.given import KINDS, Rig
from tests.esdb_protocol.process import ServerProcess

OWN_SERVER = os.environ.get("ESDB_URI", "")
# The mark has the test database made: fixtures asked for by name do not show that they need it.
POSTGRES = pytest.param("postgres", marks=pytest.mark.django_db(transaction=True))
STORES = ["memory", POSTGRES, "esdb-protocol", *(["esdb-own-server"] if OWN_SERVER else [])]


@pytest.fixture(autouse=True)
def known_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in KINDS:
        monkeypatch.setitem(EVENT_TYPES, kind.name, kind)


@pytest.fixture(params=STORES)
def rig(request: pytest.FixtureRequest) -> Rig:
    """A store of each kind in turn."""
    fixture: Rig = request.getfixturevalue(str(request.param).replace("-", "_"))
    return fixture


@pytest.fixture
def memory() -> Rig:
    store = MemoryStore()

    def tamper(stream: str, version: int, text: str) -> None:
        mine = store._streams[stream]
        index = store._log.index(mine[version - 1])
        store._log[index] = mine[version - 1] = store._log[index]._replace(data=text.encode())

    return Rig(store, lambda: store, tamper)


@pytest.fixture
def postgres(committed_store: None) -> Rig:
    def tamper(stream: str, version: int, text: str) -> None:
        behind_the_trigger(
            "UPDATE es_event SET data = %s WHERE stream = %s AND version = %s",
            text.encode(),
            stream,
            version,
        )

    return Rig(PostgresStore(), PostgresStore, tamper)


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path_factory.mktemp("esdb") / "journal")
    yield server
    server.kill()


@pytest.fixture
def esdb_protocol(shared_server: ServerProcess) -> Iterator[Rig]:
    store = EsdbStore(shared_server.uri)
    yield Rig(store, lambda: EsdbStore(shared_server.uri))


@pytest.fixture
def esdb_own_server() -> Rig:
    return Rig(EsdbStore(OWN_SERVER), lambda: EsdbStore(OWN_SERVER))


@pytest.fixture
def esdb_server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A protocol server of this test's own, to be killed or damaged."""
    server = ServerProcess(tmp_path / "journal")
    yield server
    if server.running:
        server.kill()


@pytest.fixture(params=["memory", POSTGRES, "esdb-protocol"])
def damageable(request: pytest.FixtureRequest) -> Rig:
    """A store of each kind in turn, which nobody else uses."""
    if request.param != "esdb-protocol":
        fixture: Rig = request.getfixturevalue(request.param)
        return fixture
    server: ServerProcess = request.getfixturevalue("esdb_server")

    def tamper(stream: str, version: int, text: str) -> None:
        server.overwrite(stream, version - 1, text)

    return Rig(EsdbStore(server.uri), lambda: EsdbStore(server.uri), tamper)


def behind_the_trigger(sql: str, *parameters: str | bytes | int) -> None:
    """Change `es_event` as a superuser who knows how."""
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        cursor.execute(sql, parameters)
        cursor.execute("SET session_replication_role = DEFAULT")
