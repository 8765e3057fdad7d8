"""A host that cannot reach the bucket: files of its leases go through the server."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from uuid import UUID

import pytest

from metering.agent import uplink as uplinks
from metering.agent.clock import ManualClock
from metering.agent.files.fetching import Fetch, FetchFailed
from metering.agent.files.sending import Send
from metering.agent.files.transit import Patience
from metering.agent.uplink import HttpUplink
from tests.metering.agent.leaving import FILES, MORE, START_MS, NoPause, files_of, leave
from tests.metering.agent.storehouse import manifest_of, name_of

LEASE = UUID(int=7)


class Server(ThreadingHTTPServer):
    """The market with a bucket elsewhere: blobs pass through it where that is asked for.

    bucket: where the links lead that nobody asked to lead through. knows_through: unlike a server
    of before.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.blobs: dict[str, bytes] = {}
        self.manifest = ""
        self.bucket = ""
        self.knows_through = True
        self.asked: list[str] = []
        self.kept: list[str] = []


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        path, _, query = self.path.partition("?")
        through = query == "through=1" and self.server.knows_through
        self.server.asked.append("through" if through else "straight")
        base = "" if through else self.server.bucket
        if path.endswith("/inputs"):
            names = body["blobs"] or [self.server.manifest]
            self._say({"manifest": self.server.manifest, "links": self._links(base, names)})
        elif path.endswith("/missing"):
            names = [each["sha256"] for each in body["blobs"]]
            lacking = [name for name in names if name not in self.server.blobs]
            self._say({"links": self._links(base, lacking)})
        else:
            self.server.kept.append(body["manifest"])
            self._say({"folder_id": str(UUID(int=1))})

    def _links(self, base: str, names: list[str]) -> list[dict[str, object]]:
        return [{"sha256": each, "url": f"{base}/blobs/{each}", "headers": {}} for each in names]

    def do_GET(self) -> None:
        assert "Authorization" not in self.headers
        self._answer(200, self.server.blobs[self.path.rpartition("/")[2]])

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        assert name_of(data) == self.path.rpartition("/")[2]
        self.server.blobs[name_of(data)] = data
        self._answer(204, b"")

    def _say(self, said: object) -> None:
        self._answer(200, json.dumps(said).encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Filter(BaseHTTPRequestHandler):
    """What some networks have in place of the way out: a page that says no."""

    def do_GET(self) -> None:
        self.send_response(403)
        self.end_headers()
        self.wfile.write(b"<html>This site is blocked by your administrator.</html>")

    do_PUT = do_GET  # noqa: N815  # the standard library's name

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(params=["nobody answers", "a filter answers"])
def bucket(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a bucket that this host does not reach."""
    if request.param == "nobody answers":
        with socket.socket() as taken:  # bound, and nobody listens
            taken.bind(("127.0.0.1", 0))
            yield f"http://127.0.0.1:{taken.getsockname()[1]}"
        return
    with ThreadingHTTPServer(("127.0.0.1", 0), Filter) as page:
        threading.Thread(target=page.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{page.server_port}"
        page.shutdown()


def patience(seconds: float = 3_600) -> Patience:
    clock = ManualClock(START_MS)
    return Patience(clock, NoPause(clock), until_ms=START_MS + int(seconds * 1000))


def test_inputs_come_through_the_server(server: Server, bucket: str, tmp_path: Path) -> None:
    manifest = manifest_of(FILES, **MORE)
    server.blobs = {name_of(data): data for data in (manifest, *FILES.values()) if data}
    server.manifest, server.bucket = name_of(manifest), bucket
    uplink = HttpUplink(server.url, "token")

    there = Fetch(LEASE, tmp_path / "in", uplink, patience()).run()

    assert files_of(there) == FILES
    assert server.asked[0] == "straight"
    server.asked.clear()
    Fetch(LEASE, tmp_path / "again", uplink, patience()).run()
    assert set(server.asked) == {"through"}, "the next lease does not try the bucket first"


def test_what_work_leaves_goes_through_the_server(
    server: Server, bucket: str, tmp_path: Path
) -> None:
    server.bucket = bucket
    leave(tmp_path, FILES)
    uplink = HttpUplink(server.url, "token")

    sent = Send(LEASE, tmp_path, ("**",), 0, uplink, patience(), patience()).run()

    assert sent == "kept"
    manifest = json.loads(server.blobs[server.kept[0]])
    assert {each["path"] for each in manifest["files"]} == set(FILES)
    assert {name for name, _ in manifest["blobs"]} <= server.blobs.keys()


def test_the_bucket_is_tried_again_after_a_while(
    server: Server, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uplinks, "THROUGH_SECONDS", 0.0)
    server.bucket = bucket
    uplink = HttpUplink(server.url, "token")
    manifest = manifest_of({})
    server.blobs, server.manifest = {name_of(manifest): manifest}, name_of(manifest)
    with pytest.raises(Exception, match="not reached"):
        Fetch(LEASE, tmp_path / "in", uplink, patience(60)).run()
    server.bucket = server.url

    Fetch(LEASE, tmp_path / "in", uplink, patience()).run()

    assert set(server.asked) == {"straight"}


def test_an_older_server_says_what_the_trouble_is(
    server: Server, bucket: str, tmp_path: Path
) -> None:
    server.knows_through = False
    server.bucket, server.manifest = bucket, name_of(b"anything")
    uplink = HttpUplink(server.url, "token")

    with pytest.raises(Exception, match="the storage is not reached from this host") as failed:
        Fetch(LEASE, tmp_path / "in", uplink, patience(60)).run()

    assert not isinstance(failed.value, FetchFailed), "time may still mend it"
