"""Logs beside Django: agents are answered, readers follow, and nobody holds up anybody."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.utils import timezone

import marketplace.logs as keeping
from config.web import work_logs
from config.web.application import Message, Scope
from config.web.endings import Endings
from config.web.log_events import _cut, frames_of
from config.web.work_logs import WorkLogs
from ledger.access.standing import Bearer
from ledger.domain.events import TokenRevoked
from ledger.domain.ids import TokenId
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import Expect, NewEvent
from marketplace.storage.folder import FolderStorage
from marketplace.storage.logs import LogKey, OpenLogs
from metering.agent import wire
from tests.conftest import SOMEBODY

KEY = LogKey(uuid4(), uuid4(), 1, "stdout")
HOST = b"Bearer offp_host_x"
WHO = Bearer(uuid4(), uuid4(), None)


class Site:
    """The application with one log, and what stands behind it: it lets everybody read."""

    def __init__(self, folder: Path) -> None:
        self.logs = OpenLogs(folder / "logs")
        self.logs.begin(KEY)
        self.storage = FolderStorage(folder / "blobs")
        self.status = 200
        self.asked: list[Scope] = []
        self.may = {WHO}
        self.store = MemoryStore()
        self.app = WorkLogs(
            self._behind,
            logs=lambda: self.logs,
            storage=lambda: self.storage,
            may_read=lambda readers: self.may,
            endings=Endings(lambda: self.store),
        )

    async def _behind(self, scope: Scope, receive: Any, send: Any) -> None:
        self.asked.append(scope)
        head = [
            (b"offpeak-log-host", str(KEY.host_id).encode()),
            (b"offpeak-log-attempt", b"1"),
            (b"offpeak-log-reader", f"{WHO.tenant_id}/{WHO.user_id}/".encode()),
            (b"offpeak-log-size", str(self.logs.size(KEY) or 0).encode()),
            (b"content-type", b"text/plain"),
        ]
        await send({"type": "http.response.start", "status": self.status, "headers": head})
        await send({"type": "http.response.body", "body": b"" if self.status == 200 else b"no"})


class Reading:
    """One client: what it was sent so far, and when it goes."""

    def __init__(self, site: Site, *, query: str = "", **headers: str) -> None:
        self._site = site
        self.sent: list[Message] = []
        self.left = asyncio.Event()
        self.stuck = False
        self.scope: Scope = {
            "type": "http",
            "method": "GET",
            "path": f"/api/v1/leases/{KEY.lease_id}/logs/stdout",
            "query_string": query.encode(),
            "headers": [(name.replace("_", "-").encode(), value.encode())
                        for name, value in {"accept": "text/event-stream", **headers}.items()],
        }  # fmt: skip
        self.answering = asyncio.create_task(site.app(self.scope, self._receive, self._send))

    async def _receive(self) -> Message:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if self.stuck:
            await asyncio.Event().wait()
        self.sent.append(message)

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)

    @property
    def events(self) -> list[dict[str, Any]]:
        """Return the events as a browser would tell them."""
        found = []
        for block in self.body.decode().split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line[1:])
            if "data" in fields:
                found.append({**fields, "data": json.loads(fields["data"])})
        return found

    @property
    def text(self) -> str:
        return "".join(each["data"] for each in self.events if "event" not in each)

    async def until(self, ask: Callable[[], object]) -> None:
        async with asyncio.timeout(30):
            while not ask():
                await asyncio.sleep(0.01)

    async def end(self) -> None:
        self.left.set()
        async with asyncio.timeout(30):
            await self.answering


def ended_at(monkeypatch: pytest.MonkeyPatch, at: datetime | None) -> None:
    monkeypatch.setattr(keeping, "_ended_at", lambda lease_id: at)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    ended_at(monkeypatch, None)
    monkeypatch.setattr(keeping, "_row", lambda key: None)
    monkeypatch.setattr(work_logs, "close_old_connections", lambda: None)
    return Site(tmp_path)


def played(play: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await play()

    asyncio.run(bounded())


def test_what_is_there_and_what_comes_is_sent(site: Site) -> None:
    async def play() -> None:
        site.logs.append(KEY, 0, b"one\n")
        reading = Reading(site)
        await reading.until(lambda: reading.text == "one\n")
        site.logs.append(KEY, 4, "zwölf\n".encode())
        await reading.until(lambda: reading.text == "one\nzwölf\n")
        assert [each["id"] for each in reading.events] == ["4", "11"]
        site.logs.append(KEY, 11, b"", ended=True)
        await reading.until(lambda: reading.answering.done())
        last = reading.events[-1]
        assert last["event"] == "end"
        assert last["data"] == {"size": 11, "dropped": 0, "complete": True, "more": False}

    played(play)


def test_who_comes_again_goes_on_where_they_were(site: Site) -> None:
    async def play() -> None:
        site.logs.append(KEY, 0, b"one\ntwo\n", ended=True)
        by_browser = Reading(site, query="offset=0", last_event_id="4")
        by_offset = Reading(site, query="offset=4")
        for reading in (by_browser, by_offset):
            await reading.answering
            assert reading.text == "two\n"

    played(play)


def test_a_browser_that_has_all_is_told_to_ask_no_more(site: Site) -> None:
    async def play() -> None:
        site.logs.append(KEY, 0, b"one\n", ended=True)
        reading = Reading(site, last_event_id="4")
        await reading.answering
        assert reading.status == 204

    played(play)


def test_without_following_it_ends_with_what_is_there(site: Site) -> None:
    async def play() -> None:
        site.logs.append(KEY, 0, b"one\n")
        reading = Reading(site, query="follow=false")
        await reading.answering
        assert reading.text == "one\n"
        assert reading.events[-1]["data"]["more"] is True

    played(play)


def test_what_is_dropped_is_said_in_its_place(site: Site) -> None:
    async def play() -> None:
        site.logs.append(KEY, 0, b"one\n")
        site.logs.append(KEY, 100, b"two\n", skipped=True, ended=True)
        reading, whole = Reading(site), Reading(site, accept="*/*")
        await asyncio.gather(reading.answering, whole.answering)
        (dropped,) = [each for each in reading.events if each.get("event") == "dropped"]
        assert (dropped["data"], dropped["id"]) == (96, "100")
        assert whole.body == b"one\n\n[offpeak: 96 bytes are dropped here]\ntwo\n"

    played(play)


def test_a_follower_of_a_lease_without_a_log_ends_with_the_lease(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.logs.remove(KEY)
    ended_at(monkeypatch, timezone.now() - timedelta(minutes=5))

    async def play() -> None:
        reading = Reading(site)
        await reading.answering
        assert reading.events[-1]["data"]["complete"] is False

    played(play)


def test_who_may_not_read_is_told_what_the_endpoint_said(site: Site) -> None:
    site.status = 404

    async def play() -> None:
        reading = Reading(site, authorization="Bearer x")
        await reading.answering
        assert (reading.status, reading.body) == (404, b"no")
        (asked,) = site.asked
        assert asked["method"] == "HEAD"
        assert (b"authorization", b"Bearer x") in asked["headers"]

    played(play)


def test_a_reader_that_takes_nothing_holds_up_nobody(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_logs, "SEND_SECONDS", 0.3)

    async def play() -> None:
        stuck, reading = Reading(site), Reading(site)
        await reading.until(lambda: stuck.sent and reading.sent)
        stuck.stuck = True
        site.logs.append(KEY, 0, b"x" * 300_000)
        await reading.until(lambda: len(reading.text) == 300_000)
        await stuck.until(lambda: stuck.answering.done())
        assert len(stuck.body) < 1_000
        await reading.end()

    played(play)


def test_followers_are_bounded_and_forgotten_when_they_go(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_logs, "FOLLOWERS_OF_A_LEASE_MAX", 1)

    async def play() -> None:
        first = Reading(site)
        await first.until(lambda: first.sent)
        second = Reading(site)
        await second.answering
        assert second.status == 429
        await first.end()
        third = Reading(site)
        await third.until(lambda: third.sent)
        assert third.status == 200
        await third.end()
        assert site.app._followers == {}

    played(play)


def test_a_log_is_marked_as_followed(site: Site) -> None:
    async def play() -> None:
        reading = Reading(site)
        await reading.until(lambda: site.logs.is_followed(KEY.lease_id))
        await reading.end()

    played(play)


def test_no_character_is_cut_in_two() -> None:
    sent = "aä€😀z".encode()
    for at in range(len(sent) + 1):
        kept = sent[: len(sent[:at]) - _cut(sent[:at])]
        assert kept.decode() == "aä€😀z"[: len(kept.decode())]
        assert at - len(kept) < 4
    frames, offset = frames_of(0, 0, sent[:2], whole=True)
    assert offset == 2 and json.loads(frames.split(b"data: ")[1]) == "a�"


async def _posted(site: Site, pieces: list[wire.LogPiece], token: bytes = HOST) -> list[Message]:
    body = wire.dump(wire.LogBatch(pieces=tuple(pieces)).to_json())
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    scope: Scope = {"type": "http", "method": "POST", "path": wire.LOGS_PATH,
                    "query_string": b"", "headers": [(b"authorization", token)]}  # fmt: skip
    await site.app(scope, receive, send)
    return sent


def piece(offset: int, data: bytes, **more: Any) -> wire.LogPiece:
    return wire.LogPiece(
        lease_id=KEY.lease_id, attempt=1, stream="stdout", offset=offset,
        data=wire.LogPiece.written(data), **more,
    )  # fmt: skip


def test_an_agent_is_answered_and_its_readers_hear_of_it(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_of_ours(token: str) -> UUID | None:
        return KEY.host_id if token == "offp_host_x" else None

    monkeypatch.setattr(work_logs, "_host_of", one_of_ours)
    monkeypatch.setattr("metering.ingest.logs._is_here", lambda *_: True)
    monkeypatch.setattr(work_logs, "LOOK_SECONDS", 60)

    async def play() -> None:
        reading = Reading(site)
        await reading.until(lambda: reading.sent)
        sent = await _posted(site, [piece(0, b"one\n"), piece(4, b"two\n")])
        assert sent[0]["status"] == 200
        answer = wire.LogsTaken.from_json(wire.parse(sent[1]["body"]))
        assert [(each.outcome, each.size) for each in answer.pieces] == [
            ("taken", 4),
            ("taken", 8),
        ]
        await reading.until(lambda: reading.text == "one\ntwo\n")
        await reading.end()
        assert site.asked[-1]["method"] == "HEAD"  # none of it went through Django
        await _posted(site, [piece(8, b"x")], token=b"Bearer other")
        assert site.asked[-1]["method"] == "POST"  # who is not known is answered there

    played(play)


def test_who_may_read_no_more_is_ended_at_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """By news, in whichever process the token was revoked; the next look is far."""
    monkeypatch.setattr(work_logs, "IDLE_SECONDS", 3_600)

    async def play() -> None:
        site.logs.append(KEY, 0, b"one\n")
        reading = Reading(site)
        await reading.until(lambda: reading.text == "one\n")
        site.may = set()
        revoked = TokenRevoked(token_id=TokenId(uuid4()), at=timezone.now())
        site.store.append("token-x", [NewEvent(uuid4(), revoked)], expected=Expect.ANY, by=SOMEBODY)
        await reading.answering
        assert reading.text == "one\n"
        assert "offpeak-log-reader" not in str(reading.sent), "that is between us"

    played(play)
