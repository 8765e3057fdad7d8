"""`offpeak logs`: all of a log, in order, over answers that break off, and then an end."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest
from typer.testing import CliRunner, Result

from marketplace.sdk import __main__ as line
from marketplace.sdk import logs as command

LEASE = "0ff9ea40-0000-4000-8000-000000000001"
END = {"size": 8, "dropped": 0, "complete": True, "more": False}


class Served:
    """Logs by stream; cut: after so many bytes an answer breaks off. away: answers 503 so often."""

    def __init__(self) -> None:
        self.logs = {"stdout": "one\ntwo\n", "stderr": ""}
        self.cut: int | None = None
        self.away = 0
        self.dropped = 0
        self.end: dict[str, object] = dict(END)
        self.asked: list[dict[str, str]] = []
        self.status = 200
        self.url = ""

    def answer(self, stream: str, asked: dict[str, str]) -> tuple[int, bytes]:
        self.asked.append({"stream": stream, **asked})
        if self.away > 0:
            self.away -= 1
            return 503, b'{"code": "storage-away", "detail": "Away."}'
        if self.status != 200:
            return self.status, b'{"code": "lease-unknown", "detail": "No such lease."}'
        at, whole = int(asked["offset"]), self.logs[stream]
        said = b": still here\n\n"
        if self.dropped and at == 0:
            said += f"event: dropped\nid: 0\ndata: {self.dropped}\n\n".encode()
        text = whole[at : at + self.cut] if self.cut else whole[at:]
        if text:
            said += f"id: {at + len(text)}\ndata: {json.dumps(text)}\n\n".encode()
        if at + len(text) < len(whole):
            return 200, said + f"id: {len(whole)}\ndata: {json.dumps('lost')}".encode()
        return (
            200,
            said + f"event: end\nid: {len(whole)}\ndata: {json.dumps(self.end)}\n\n".encode(),
        )


@pytest.fixture
def served() -> Iterator[Served]:
    logs = Served()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the base class calls it
            parts = urlsplit(self.path)
            asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
            status, body = logs.answer(parts.path.rpartition("/")[2], asked)
            kind = "text/event-stream" if status == 200 else "application/problem+json"
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    logs.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield logs
    server.shutdown()
    server.server_close()
    thread.join()


def run(served: Served, *words: str) -> Result:
    return CliRunner().invoke(line.app, ["--server", served.url, "logs", LEASE, *words])


def test_both_streams_come_each_to_its_own(served: Served) -> None:
    served.logs["stderr"] = "warning\n"

    done = run(served)

    assert (done.exit_code, done.stdout, done.stderr) == (0, "one\ntwo\n", "warning\n")
    assert {each["stream"] for each in served.asked} == {"stdout", "stderr"}
    assert {each["follow"] for each in served.asked} == {"false"}


def test_an_answer_that_breaks_off_is_gone_on_with(served: Served) -> None:
    served.cut = 3

    done = run(served, "-f", "--stream", "stdout")

    assert (done.exit_code, done.stdout) == (0, "one\ntwo\n")
    assert [each["offset"] for each in served.asked] == ["0", "3", "6"]


def test_a_market_that_is_started_again_is_waited_for(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "PAUSE_SECONDS_MAX", 0.01)
    served.away = 8

    done = run(served, "-f", "--stream", "stdout")

    assert (done.exit_code, done.stdout) == (0, "one\ntwo\n")


def test_without_following_it_waits_not_for_long(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "PAUSE_SECONDS_MAX", 0.01)
    served.away = 100

    done = run(served, "--stream", "stdout")

    assert done.exit_code != 0
    assert len(served.asked) == command.FAILURES_MAX


def test_what_is_dropped_and_what_may_be_missing_is_said(served: Served) -> None:
    served.dropped = 1_234
    served.end["complete"] = False

    done = run(served, "--stream", "stdout")

    assert done.stdout == "one\ntwo\n"
    assert "1234 bytes of stdout are dropped here" in done.stderr
    assert "may lack its end" in done.stderr


def test_work_that_goes_on_lacks_nothing(served: Served) -> None:
    served.end |= {"complete": False, "more": True}

    assert run(served, "--stream", "stdout").stderr == ""


def test_programs_get_a_line_for_each_piece(served: Served) -> None:
    done = run(served, "-o", "json", "--stream", "stdout")

    first, last = map(json.loads, done.stdout.splitlines())
    assert first == {"stream": "stdout", "offset": 8, "text": "one\ntwo\n", "dropped": 0}
    assert last["end"] == END


def test_a_lease_that_is_not_there_ends_it(served: Served) -> None:
    served.status = 404

    done = run(served, "-f")

    assert done.exit_code == 3
    assert "No such lease" in done.stderr


def test_an_offset_wants_a_stream(served: Served) -> None:
    assert run(served, "--offset", "4").exit_code == 2
    assert served.asked == []
