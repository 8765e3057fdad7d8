"""However many clients are slow, everybody else is served."""

from __future__ import annotations

import os
import resource
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.request import urlopen

import pytest
from django.contrib.sessions.backends.db import SessionStore
from django.db import connection
from pytest_django import DjangoDbBlocker

from metering.models import Beat, OutageRow
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 60.0
PAUSE_SECONDS = 0.05
HALF_OPEN = 500
KIB = 1024

HALF = {
    "no head": b"GET /accounts/login/ HT",
    "no body": b"POST /accounts/login/ HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Length: 1000\r\n\r\nab",
    "no body to the API": b"POST /api/v1/hosts HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Length: 1000\r\nContent-Type: application/json\r\n\r\n{}",
    "a made-up token": b"POST /api/v1/bids HTTP/1.1\r\nHost: localhost\r\n"
    b"Authorization: Bearer offp_user_00000000000000000000000000000000_000000\r\n"
    b"Content-Length: 1000\r\nContent-Type: application/json\r\n\r\n{",
    "chunks": b"POST /accounts/login/ HTTP/1.1\r\nHost: localhost\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n5\r\nlogin",
    "body of a GET": b"GET /docs/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n",
    "answer not read": b"GET /static/vendor/htmx-4.0.1.min.js HTTP/1.1\r\nHost: localhost\r\n\r\n"
    * 40,
}


@pytest.fixture(scope="module")
def site(
    django_db_setup: None,
    django_db_blocker: DjangoDbBlocker,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[int]:
    """A web process as `up` starts it, on the database of this run; its port."""
    tmp_path = tmp_path_factory.mktemp("web")
    with django_db_blocker.unblock():
        name = str(connection.settings_dict["NAME"])
    port = free_port()
    with (tmp_path / "web.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.live.process", name, "web"],
            cwd=ROOT,
            env={**os.environ, "PORT": str(port), "DJANGO_SETTINGS_MODULE": "tests.settings"},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                assert status_of(port, "/healthz") == 200
                break
            except OSError:
                assert time.monotonic() < until, (tmp_path / "web.log").read_text()
                time.sleep(PAUSE_SECONDS)
        yield port
    finally:
        process.terminate()
        process.wait(START_SECONDS)
        with django_db_blocker.unblock():  # what it wrote beside the tests' transactions
            Beat.objects.all().delete()
            OutageRow.objects.all().delete()


def status_of(port: int, path: str, seconds: float = 8.0) -> int:
    with urlopen(f"http://127.0.0.1:{port}{path}", timeout=seconds) as answer:
        answer.read()
        return int(answer.status)


def opened(port: int, said: bytes, *, buffer: int | None = None) -> socket.socket:
    client = socket.socket()
    if buffer:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    client.settimeout(20)
    client.connect(("127.0.0.1", port))
    client.sendall(said)
    return client


def answered(client: socket.socket) -> bytes:
    read = b""
    while part := client.recv(65_536):
        read += part
    return read


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4_096, hard), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_hundreds_of_slow_strangers_hold_up_nobody(site: int, many_files: None) -> None:
    with ExitStack() as held:
        for number in range(HALF_OPEN):
            kinds = list(HALF.values())
            held.enter_context(opened(site, kinds[number % len(kinds)], buffer=4 * KIB))

        assert status_of(site, "/healthz", 5.0) == 200
        for _ in range(3):
            assert status_of(site, "/accounts/login/") == 200
            assert status_of(site, "/static/offpeak.css") == 200


@pytest.mark.parametrize("kind", ["no body to the API", "a made-up token"])
def test_the_api_asks_who_it_is_before_it_waits_for_a_body(site: int, kind: str) -> None:
    with opened(site, HALF[kind]) as client:
        answer = answered(client)

    assert answer.startswith(b"HTTP/1.1 401 ")
    assert b"application/problem+json" in answer
    assert b"www-authenticate: Bearer" in answer


def test_a_stranger_sends_little_and_somebody_known_may_take_time(
    site: int, transactional_db: None
) -> None:
    head = b"POST /accounts/login/ HTTP/1.1\r\nHost: localhost\r\n"
    length = b"Content-Length: 100000\r\n"
    session = SessionStore()
    session["_auth_user_id"] = "00000000-0000-0000-0000-000000000000"
    session.save()
    cookie = f"Cookie: sessionid={session.session_key}\r\n".encode()

    with opened(site, head + length + b"\r\na") as stranger:
        assert answered(stranger).startswith(b"HTTP/1.1 413 ")
    with opened(site, head + b"Content-Length: 3000000\r\n" + cookie + b"\r\na") as known:
        assert answered(known).startswith(b"HTTP/1.1 413 ")
    for pause in (0.0, 0.5):  # at once, and after it was asked whose it is
        with opened(site, head + length + cookie + b"Connection: close\r\n\r\na") as known:
            select.select([known], [], [], pause)
            known.sendall(b"a" * 99_999)
            assert answered(known).startswith(b"HTTP/1.1 403 ")  # no form of ours


def test_a_body_that_does_not_come_is_not_waited_for(site: int) -> None:
    with opened(site, HALF["no body"]) as client:
        began = time.monotonic()
        answer = answered(client)

    assert answer.startswith(b"HTTP/1.1 408 ")
    assert time.monotonic() - began < 20
