"""What an agent may send of logs, and who may read it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from marketplace.storage.logs import OpenLogs
from metering.agent import wire
from tests.access.conftest import Caller, admit
from tests.metering.host_agent import HostAgent
from tests.metering.host_agent import owner as owner
from tests.metering.leased import lease_on

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.metering.leased")]


@dataclass
class Logged:
    host: HostAgent
    consumer: Caller

    def send(self, *pieces: dict[str, Any], host: HostAgent | None = None) -> Any:
        known = {
            "lease_id": str(self.host.lease_id),
            "attempt": 1,
            "stream": "stdout",
            "offset": 0,
            "data": "",
        }
        body = {"pieces": [known | each for each in pieces]}
        return (host or self.host).call("POST", wire.LOGS_PATH, body)

    def read(self, caller: Caller, path: str = "/stdout") -> Any:
        return caller.get(f"/api/v1/leases/{self.host.lease_id}/logs{path}")


def text(data: bytes) -> str:
    return wire.LogPiece.written(data)


@pytest.fixture
def logged(owner: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Logged]:
    logs = OpenLogs(tmp_path / "logs")
    for module in ("marketplace.api.logs", "metering.api.agent"):
        monkeypatch.setattr(f"{module}.default_logs", lambda: logs)
    host, consumer = HostAgent(owner), admit("bob-works", "consumer")
    lease_on(host, consumer)
    yield Logged(host, consumer)


def test_a_log_is_taken_and_read_by_the_people_of_the_lease(logged: Logged, owner: Caller) -> None:
    answer = logged.send(
        {"data": text(b"one\n")}, {"offset": 4, "data": text(b"two\n"), "ended": True}
    )
    assert [(each["outcome"], each["size"]) for each in answer.json()["pieces"]] == [
        ("taken", 4),
        ("taken", 8),
    ]

    for caller in (logged.consumer, owner):
        read = logged.read(caller)
        assert b"".join(read.streaming_content) == b"one\ntwo\n"
        assert read.headers["Offpeak-Log-Complete"] == "true"
    (listed,) = logged.read(logged.consumer, "").json()["data"]
    assert (listed["stream"], listed["size_bytes"], listed["is_complete"]) == ("stdout", 8, True)


def test_it_is_read_from_an_offset_on(logged: Logged) -> None:
    logged.send({"data": text(b"one\ntwo\n")})

    read = logged.read(logged.consumer, "/stdout?offset=4")

    assert b"".join(read.streaming_content) == b"two\n"


def test_nobody_else_reads_it(logged: Logged) -> None:
    logged.send({"data": text(b"one\n")})
    stranger = admit("carol-works", "consumer")

    assert logged.read(stranger).status_code == 404
    assert logged.read(stranger, "").status_code == 404


def test_only_the_host_of_the_lease_adds_to_it(logged: Logged, owner: Caller) -> None:
    other = HostAgent(owner)

    answer = logged.send({"data": text(b"forged\n")}, host=other)

    assert (answer.status_code, answer.json()["code"]) == (409, "lease-not-here")
    assert b"".join(logged.read(logged.consumer).streaming_content) == b""


def test_one_lease_that_is_not_here_holds_up_no_other(logged: Logged) -> None:
    answer = logged.send({"lease_id": str(uuid4()), "data": text(b"x")}, {"data": text(b"one\n")})

    assert [each["outcome"] for each in answer.json()["pieces"]] == ["refused", "taken"]


def test_a_token_of_a_person_adds_nothing(logged: Logged) -> None:
    body = {"pieces": [{"lease_id": str(logged.host.lease_id), "attempt": 1, "stream": "stdout",
                        "offset": 0, "data": text(b"x")}]}  # fmt: skip

    assert logged.consumer.post(wire.LOGS_PATH, body).status_code == 403


@pytest.mark.parametrize(
    "wrong",
    [
        {"data": "no base64!"},
        {"offset": -1},
        {"attempt": 0},
        {"data": "A" * 65_540},
    ],
)
def test_what_is_not_a_piece_is_refused(logged: Logged, wrong: dict[str, Any]) -> None:
    assert logged.send(wrong).status_code == 422


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ("/stdin", 404),
        ("/stdout?offset=-1", 422),
        ("/stdout?offset=x", 422),
        ("/stdout?host=x", 422),
        ("/stdout?host=0ff9ea40-0000-4000-8000-00000000dead", 404),
        ("/stdout?follow=perhaps", 422),
        ("/stdout?unknown=1", 422),
    ],
)
def test_what_is_no_log_is_refused(logged: Logged, asked: str, status: int) -> None:
    assert logged.read(logged.consumer, asked).status_code == status
