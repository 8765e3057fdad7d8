"""A port of running work on an origin of its own, over real processes and a real tunnel.

The browser comes to the process that does not have the tunnel, so that every byte takes the hop.
"""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pytest_django import DjangoDbBlocker
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from ledger.models import MemberRow
from metering.domain.access import Permit
from metering.domain.work_names import ENTER, name_of
from metering.ingest import handing_over
from tests.live.tunnels import Place, committed, placed
from tests.metering.agent.works import ROOT

pytestmark = [ROOT, pytest.mark.django_db]

SERVES = """
import base64, hashlib, http.server, json, struct

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def say(self, body, status=200, **headers):
        self.send_response(status)
        for name, value in headers.items():
            for each in value if isinstance(value, list) else [value]:
                self.send_header(name.replace("_", "-"), each)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path == "/ws":
            self.socket()
        elif self.path == "/cookies":
            given = ["a=1; Domain=localhost; Path=/", "offpeak-work=stolen; Path=/"]
            self.say(b"", Set_Cookie=given, Cache_Control="public, max-age=60")
        elif self.path == "/moved":
            self.say(b"", 302, Location="http://127.0.0.1:8888/there?x=1")
        elif self.path == "/large":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for _ in range(320):
                self.wfile.write(b"10000\\r\\n" + b"x" * 65536 + b"\\r\\n")
            self.wfile.write(b"0\\r\\n\\r\\n")
        elif self.path == "/nonsense":
            self.wfile.write(b"this is no http\\r\\n\\r\\n")
            self.close_connection = True
        else:
            said = {"path": self.path, "headers": {k.lower(): v for k, v in self.headers.items()}}
            self.say(json.dumps(said).encode(), Content_Type="application/json")

    def do_POST(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            count = 0
            while size := int(self.rfile.readline(), 16):
                count += len(self.rfile.read(size))
                self.rfile.readline()
        else:
            count = len(self.rfile.read(int(self.headers["Content-Length"])))
        self.say(str(count).encode())

    def socket(self):
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept",
            base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        if wanted := self.headers.get("Sec-WebSocket-Protocol"):
            self.send_header("Sec-WebSocket-Protocol", wanted.split(",")[0].strip())
        self.end_headers()
        self.close_connection = True
        while True:
            first, second = self.rfile.read(2)
            size = second & 127
            if size == 126:
                size = struct.unpack(">H", self.rfile.read(2))[0]
            elif size == 127:
                size = struct.unpack(">Q", self.rfile.read(8))[0]
            mask, data = self.rfile.read(4), self.rfile.read(size)
            data = bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))
            if data == b"part":
                self.frame(0x01, b"in ")
                self.frame(0x80, b"parts")
                continue
            if data == b"bye":
                self.frame(0x88, struct.pack(">H", 4001) + b"so long")
                return
            self.frame(first, data)
            if first & 15 == 8:
                return

    def frame(self, first, data):
        size = len(data)
        if size < 126:
            head = bytes([first, size])
        elif size < 65_536:
            head = bytes([first, 126]) + struct.pack(">H", size)
        else:
            head = bytes([first, 127]) + struct.pack(">Q", size)
        self.wfile.write(head + data)

http.server.ThreadingHTTPServer(("127.0.0.1", 8888), Handler).serve_forever()
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered."""

    status: int
    headers: Message
    body: bytes

    def header(self, name: str) -> str | None:
        return self.headers.get(name)


class Browser:
    """What a browser would send to a port of the work."""

    def __init__(self, place: Place, port: int = 8888) -> None:
        self.place = place
        self.name = f"{name_of(place.lease.lease_id, port, 'localhost')}:{place.second}"
        self.origin = f"http://{self.name}"
        self.permit = Permit(
            lease_id=place.lease.lease_id,
            host_id=place.lease.host_ids[0],
            tenant_id=place.consumer.tenant_id,
            user_id=place.consumer.user_id,
            token_id=None,
            what="port",
            port=port,
        )
        self.cookie = ""

    def ask(self, path: str, method: str = "GET", body: Any = None, **headers: str) -> Answer:
        said = {"Host": self.name, **{k.replace("_", "-"): v for k, v in headers.items()}}
        if self.cookie:
            said["Cookie"] = f"theirs=2; {self.cookie}"
        line = http.client.HTTPConnection("127.0.0.1", self.place.second, timeout=60)
        with closing(line):
            line.request(method, path, body=body, headers=said)
            answer = line.getresponse()
            return Answer(answer.status, answer.headers, answer.read())

    def enter(self) -> Answer:
        token = handing_over.hand_over(self.permit)
        answer = self.ask(f"{ENTER}?token={token}")
        self.cookie = str(answer.header("Set-Cookie")).partition(";")[0]
        return answer

    def socket(self, **options: Any) -> Any:
        given = {"Cookie": self.cookie}
        line = socket.create_connection(("127.0.0.1", self.place.second))
        wish = {"additional_headers": given, "origin": self.origin, "open_timeout": 60, **options}
        return connect(f"ws://{self.name}/ws", sock=line, **wish)


@pytest.fixture(scope="module")
def place(
    django_db_setup: None,
    django_db_blocker: DjangoDbBlocker,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Place]:
    with ExitStack() as ended_last, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OFFPEAK_WORK_DOMAIN", "localhost")
        folder: Path = tmp_path_factory.mktemp("ports")
        yield placed(ended_last, django_db_blocker, folder, SERVES)


@pytest.fixture
def browser(place: Place) -> Browser:
    browser = Browser(place)
    assert browser.enter().status == 303
    return browser


def test_a_hand_over_is_changed_for_a_cookie_once_and_leaves_the_address(place: Place) -> None:
    browser = Browser(place)
    token = handing_over.hand_over(browser.permit)

    first = browser.ask(f"{ENTER}?token={token}")
    second = browser.ask(f"{ENTER}?token={token}")

    assert (first.status, first.header("Location")) == (303, "/")
    cookie = str(first.header("Set-Cookie"))
    assert cookie.endswith("; Path=/; HttpOnly; SameSite=Lax") and "omain" not in cookie
    assert first.header("Referrer-Policy") == "no-referrer"
    assert (second.status, second.header("Set-Cookie")) == (401, None)
    assert Browser(place).ask("/").status == 401, "without a cookie"
    assert Browser(place, 9999).ask(f"{ENTER}?token={token[:-1]}").status == 401


def test_a_session_is_for_one_port_of_one_lease(place: Place, browser: Browser) -> None:
    other = Browser(place, 9999)
    other.cookie = browser.cookie
    theirs = Browser(place)
    theirs.name = f"{name_of(uuid4(), 8888, 'localhost')}:{place.second}"
    theirs.cookie = browser.cookie

    assert browser.ask("/").status == 200
    assert other.ask("/").status == 401
    assert theirs.ask("/").status == 401
    assert theirs.ask(f"{ENTER}?token={handing_over.hand_over(browser.permit)}").status == 401
    for name in ("8888.localhost", "0-x.localhost", f"99999-{place.lease.lease_id}.localhost"):
        other.name = name
        assert other.ask("/").status == 404, "and never a page of the market"


def test_the_work_gets_the_request_as_of_its_own_machine_without_our_cookie(
    browser: Browser,
) -> None:
    answer = browser.ask(
        "/a%20b/c?x=%2F&y", Referer=f"{browser.origin}/before", X_Forwarded_For="6.6.6.6"
    )

    said = json.loads(answer.body)
    headers = said["headers"]
    assert said["path"] == "/a%20b/c?x=%2F&y"
    assert headers["host"] == "127.0.0.1:8888"
    assert headers["cookie"] == "theirs=2"
    assert headers["referer"] == "http://127.0.0.1:8888/before"
    assert headers["x-forwarded-host"] == browser.name
    assert "x-forwarded-for" not in headers
    assert (answer.header("Cache-Control"), answer.header("Vary")) == ("private", "Cookie")
    assert answer.header("Content-Security-Policy") == "frame-ancestors 'self'"


def test_the_work_sets_cookies_for_its_own_origin_and_not_ours(browser: Browser) -> None:
    answer = browser.ask("/cookies")
    moved = browser.ask("/moved")

    assert answer.headers.get_all("Set-Cookie") == ["a=1; Path=/"]
    assert answer.header("Cache-Control") == "private, max-age=60"
    assert moved.header("Location") == f"{browser.origin}/there?x=1"


def test_bodies_pass_both_ways_as_they_come(browser: Browser) -> None:
    large = browser.ask("/large")
    parts = (b"y" * 50_000 for _ in range(100))

    assert len(large.body) == 320 * 65_536
    assert browser.ask("/", "POST", b"z" * 3_000_000, Origin=browser.origin).body == b"3000000"
    assert browser.ask("/", "POST", parts, Origin=browser.origin).body == b"5000000"
    head = browser.ask("/", "HEAD")
    assert head.status == 501, "what the work does not do is told as it says it"


def test_who_reads_slowly_or_goes_holds_up_nobody(browser: Browser) -> None:
    with closing(socket.create_connection(("127.0.0.1", browser.place.second))) as slow:
        said = f"GET /large HTTP/1.1\r\nHost: {browser.name}\r\nCookie: {browser.cookie}\r\n\r\n"
        slow.sendall(said.encode())
        assert slow.recv(10).startswith(b"HTTP/1.1 2")
        assert browser.ask("/").status == 200
    assert len(browser.ask("/large").body) == 320 * 65_536


def test_nothing_of_another_origin_is_let_in(browser: Browser) -> None:
    sibling = f"http://{name_of(uuid4(), 8888, 'localhost')}:{browser.place.second}"

    for origin in (sibling, "null", "http://localhost"):
        assert browser.ask("/", "POST", b"x", Origin=origin).status == 403
        assert browser.ask("/", Origin=origin).status == 403
        with pytest.raises(InvalidStatus):
            browser.socket(origin=origin)
    with pytest.raises(InvalidStatus):
        browser.socket(origin=None)
    framed = {"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "navigate"}
    assert browser.ask("/", Sec_Fetch_Dest="iframe", **framed).status == 403
    assert browser.ask("/", Sec_Fetch_Dest="document", **framed).status == 200, "a link"
    assert browser.ask("/", "POST", b"x", Sec_Fetch_Dest="document", **framed).status == 403


def test_what_gives_no_answer_is_told(place: Place, browser: Browser) -> None:
    silent = Browser(place, 4444)
    silent.enter()

    refused = silent.ask("/")

    assert (refused.status, refused.header("Content-Type")) == (502, "text/plain; charset=utf-8")
    assert "listen" in refused.body.decode()
    assert browser.ask("/nonsense").status == 502


def test_websockets_pass_both_ways(browser: Browser) -> None:
    with browser.socket(subprotocols=["v1.kernel"]) as line:
        assert line.subprotocol == "v1.kernel"
        line.send("hällo")
        assert line.recv(60) == "hällo"
        line.send(b"\x00" * 200_000)
        assert len(line.recv(60)) == 200_000
        line.send("part")
        assert line.recv(60) == "in parts"
        line.send("bye")
        with pytest.raises(ConnectionClosed) as closed:
            line.recv(60)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 4001
    silent = Browser(browser.place, 4444)
    silent.enter()
    with pytest.raises(InvalidStatus):
        silent.socket()


def test_it_ends_with_the_membership(place: Place) -> None:
    browser = Browser(place)
    browser.enter()
    member = MemberRow.objects.get(user_id=place.consumer.user_id)
    with browser.socket() as line:
        line.send("here")
        assert line.recv(60) == "here"
        committed(lambda: MemberRow.objects.filter(user_id=place.consumer.user_id).delete())
        try:
            with pytest.raises(ConnectionClosed):
                line.recv(60)
        finally:
            committed(lambda: member.save(force_insert=True))
