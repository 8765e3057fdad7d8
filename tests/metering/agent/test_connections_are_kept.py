"""An agent's requests share a connection, and none is lost or doubled because of that."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from metering.agent.kept import IDLE_SECONDS_MAX, KEPT_MAX, KeptConnections
from metering.agent.uplink import HttpUplink, Refused, Unreachable

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CLOSING = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"


class Server:
    """Answers requests as it is told to. met: of which connection each request was."""

    def __init__(self) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listening.getsockname()[1]}/base"
        self.met: list[int] = []
        self.heads: list[bytes] = []
        self.answer: Callable[[int], bytes | None] = lambda number: OK
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def _start(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                way, _ = self.listening.accept()
            except OSError:
                return
            self._open.append(way)
            number = len(self._open)
            self._start(lambda w=way, n=number: self._serve(w, n))  # type: ignore[misc]  # a default is how a lambda keeps it

    def _serve(self, way: socket.socket, number: int) -> None:
        with way, way.makefile("rb") as asked:
            while head := asked.readline():
                length = 0
                while (line := asked.readline()) not in (b"\r\n", b""):
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.partition(b":")[2])
                asked.read(length)
                self.met.append(number)
                self.heads.append(head)
                said = self.answer(len(self.met))
                if said is None:
                    return
                way.sendall(said)
                if b"Connection: close" in said:
                    return

    def hang_up(self) -> None:
        """Close every connection, as a server does that is started again."""
        for way in self._open:
            way.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.listening.shutdown(socket.SHUT_RDWR)
        self.listening.close()
        for way in self._open:
            with closing(way):
                pass


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def asking(kept: KeptConnections, *, again: bool = True) -> bytes:
    return kept.ask("POST", "/x", b"{}", {}, most=100, again=again).body


def test_one_connection_carries_request_after_request(server: Server) -> None:
    kept = KeptConnections(server.url, seconds=30)

    assert [asking(kept) for _ in range(3)] == [b"ok"] * 3

    assert server.met == [1, 1, 1]
    assert server.heads[0] == b"POST /base/x HTTP/1.1\r\n"


def test_a_connection_that_the_server_closed_is_left_before_it_is_used(server: Server) -> None:
    kept = KeptConnections(server.url, seconds=30)
    asking(kept)
    server.hang_up()

    assert asking(kept, again=False) == b"ok"

    assert server.met == [1, 2]


def test_a_request_that_met_the_closing_is_sent_once_more(server: Server) -> None:
    kept = KeptConnections(server.url, seconds=30)
    server.answer = lambda number: None if number == 2 else OK
    asking(kept)

    assert asking(kept) == b"ok"

    assert server.met == [1, 1, 2]


def test_but_not_one_that_must_not_come_twice(server: Server) -> None:
    kept = KeptConnections(server.url, seconds=30)
    server.answer = lambda number: None if number == 2 else OK
    asking(kept)

    with pytest.raises(OSError):
        asking(kept, again=False)

    assert server.met == [1, 1]


def test_a_server_that_is_gone_is_asked_once_more_and_not_again(server: Server) -> None:
    kept = KeptConnections(server.url, seconds=30)
    server.answer = lambda number: None if number >= 2 else OK
    asking(kept)

    with pytest.raises(OSError):
        asking(kept)

    assert server.met == [1, 1, 2]


def test_an_answer_that_is_the_last_of_its_connection_is_heard(server: Server) -> None:
    kept = KeptConnections(server.url, seconds=30)
    server.answer = lambda number: CLOSING

    assert [asking(kept), asking(kept)] == [b"ok", b"ok"]

    assert server.met == [1, 2]


def test_an_answer_longer_than_wanted_ends_its_connection(server: Server) -> None:
    kept = KeptConnections(server.url, seconds=30)
    server.answer = lambda number: b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n" + b"x" * 500

    assert len(asking(kept)) == 101
    asking(kept)

    assert server.met == [1, 2]


def test_a_connection_that_was_long_idle_is_not_used(server: Server) -> None:
    clock = [0.0]
    kept = KeptConnections(server.url, seconds=30, now=lambda: clock[0])
    asking(kept)
    clock[0] += IDLE_SECONDS_MAX

    asking(kept)

    assert server.met == [1, 2]


def test_no_more_are_kept_than_ask_at_a_time(server: Server) -> None:
    kept = KeptConnections(server.url, seconds=30)
    together = threading.Barrier(KEPT_MAX + 2)
    server.answer = lambda number: OK if together.wait(30) is not None else None
    asked = [threading.Thread(target=asking, args=[kept]) for _ in range(KEPT_MAX + 2)]
    for each in asked:
        each.start()
    for each in asked:
        each.join(60)

    assert len(kept._idle) == KEPT_MAX
    assert len(set(server.met)) == KEPT_MAX + 2


def test_refusals_and_outages_are_told_apart_as_before(server: Server) -> None:
    uplink = HttpUplink(server.url, "token")
    body = b'{"code": "host-unknown"}'
    head = b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n"
    for status, error in ((404, Refused), (302, Unreachable), (503, Unreachable)):
        server.answer = lambda number, status=status: head % (status, len(body)) + body  # type: ignore[misc]
        with pytest.raises(error):
            uplink.assignments()
    server.answer = lambda number: OK
    with pytest.raises(Unreachable, match="the answer"):
        uplink.assignments()
    assert set(server.met) == {1}


def test_through_a_proxy_each_request_goes_alone(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", server.url.removesuffix("/base"))
    monkeypatch.delenv("no_proxy", raising=False)
    body = b'{"code": "host-unknown"}'
    server.answer = lambda number: b"HTTP/1.1 404 X\r\nContent-Length: 24\r\n\r\n" + body
    uplink = HttpUplink("http://market.example", "token", allow_plain_http=True)

    for _ in range(2):
        with pytest.raises(Refused):
            uplink.assignments()

    assert server.heads[0].startswith(b"GET http://market.example/")
