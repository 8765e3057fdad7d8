"""`offpeak hosts`: a host is made known with a token for its agent, listed, and retired."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

import httpx
import pytest
from typer.testing import CliRunner, Result

from marketplace.sdk import __main__ as line
from marketplace.sdk.client import Client

HOST = UUID("0ff9ea40-0000-4000-8000-000000000002")
ROW = {"id": str(HOST), "title": "rack nine", "state": "known", "region": "eu", "market": "main"}
Sent = list[tuple[str, str, Any]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Result, Sent]]:
    def said(*words: str) -> tuple[Result, Sent]:
        sent: Sent = []

        def handle(request: httpx.Request) -> httpx.Response:
            body = json.loads(request.content) if request.content else None
            sent.append((request.method, request.url.path.removeprefix("/api/v1/"), body))
            if request.method == "GET":
                return httpx.Response(200, json={"data": [ROW | {"gpus": [{}, {}]}], "next": None})
            if request.url.path.endswith("/enrolment-codes"):
                made = {"code": "K7Q4M-2XD9F", "expires_at": "2026-01-05T12:15:00Z", "position": 3}
                return httpx.Response(201, json=made)
            if request.url.path.endswith("/tokens"):
                return httpx.Response(201, json={"id": "t", "token": "offp_host_x", "position": 2})
            return httpx.Response(201, json={"id": str(HOST), "position": 1})

        transport = httpx.MockTransport(handle)
        monkeypatch.setattr(
            line, "Client", lambda server, token: Client(server, token, transport=transport)
        )
        return CliRunner().invoke(line.app, ["hosts", *words]), sent

    return said


def test_a_host_is_added_with_a_token_that_is_shown_once(run: Any) -> None:
    result, sent = run("add", "rack nine", "--region", "eu", "--label", "rack=9", "--label", "a=")

    assert result.exit_code == 0, result.output
    assert "offp_host_x" in result.output and str(HOST) in result.output
    labels = {"rack": "9", "a": ""}
    assert sent == [
        ("POST", "hosts", {"title": "rack nine", "region": "eu", "labels": labels}),
        ("POST", f"hosts/{HOST}/tokens", {"title": "agent of rack nine"}),
    ]


def test_the_longest_name_of_a_host_has_a_token_too(run: Any) -> None:
    _, sent = run("add", "r" * 120, "--region", "eu")

    assert sent[-1][2] == {"title": "agent of " + "r" * 111}


def test_a_label_without_a_value_is_refused_before_anything_is_sent(run: Any) -> None:
    result, sent = run("add", "rack nine", "--region", "eu", "--label", "nonsense")
    assert result.exit_code == 2 and "NAME=VALUE" in result.output
    assert sent == []


def test_hosts_are_listed_with_their_gpus(run: Any) -> None:
    result, _ = run("list")
    assert result.exit_code == 0, result.output
    assert "rack nine" in result.output and " 2" in result.output


@pytest.mark.parametrize("verb", ["pause", "drain", "release", "resume"])
def test_the_switch_of_a_host_is_turned(run: Any, verb: str) -> None:
    result, sent = run(verb, str(HOST))
    assert result.exit_code == 0, result.output
    assert sent == [("POST", f"hosts/{HOST}/{verb}", None)]


def test_a_host_is_retired(run: Any) -> None:
    result, sent = run("retire", str(HOST))
    assert result.exit_code == 0, result.output
    assert sent == [("POST", f"hosts/{HOST}/retire", None)]


@pytest.mark.parametrize("said", ["rack nine", str(HOST)])
def test_a_code_for_a_host_by_its_name_or_id_says_what_to_type_there(run: Any, said: str) -> None:
    result, sent = run("enrol", said)

    assert result.exit_code == 0, result.output
    assert sent[-1] == ("POST", f"hosts/{HOST}/enrolment-codes", None)
    assert "offpeak-agent enrol http" in result.output and "K7Q4M-2XD9F" in result.output


def test_a_host_that_is_not_there_gets_no_code(run: Any) -> None:
    result, sent = run("enrol", "rack ten")

    assert result.exit_code == 2 and "no host of the name 'rack ten'" in result.output
    assert [each[0] for each in sent] == ["GET"]


WINDOW = UUID("0ff9ea40-0000-4000-8000-000000000003")


def test_maintenance_is_announced_moved_and_cancelled(run: Any) -> None:
    words = ("announce", str(HOST), "--until", "2026-01-05T06:00:00Z", "--reason", "new fans")
    result, sent = run("maintenance", *words, "--gpu", "GPU-1", "--yes")
    assert result.exit_code == 0, result.output
    body = {"ends_at": "2026-01-05T06:00:00Z", "reason": "new fans", "gpu_uuids": ["GPU-1"]}
    assert sent == [("POST", f"hosts/{HOST}/maintenance", body)]

    _, sent = run("maintenance", "move", str(HOST), str(WINDOW), "--from", "2026-01-05T05:00:00Z")
    moved = {"starts_at": "2026-01-05T05:00:00Z"}
    assert sent == [("PATCH", f"hosts/{HOST}/maintenance/{WINDOW}", moved)]

    _, sent = run("maintenance", "cancel", str(HOST), str(WINDOW))
    assert sent == [("DELETE", f"hosts/{HOST}/maintenance/{WINDOW}", None)]


def test_a_window_is_moved_to_some_time(run: Any) -> None:
    result, sent = run("maintenance", "move", str(HOST), str(WINDOW))
    assert result.exit_code == 2 and sent == []


def test_a_drained_host_takes_work_again(run: Any) -> None:
    result, sent = run("undrain", str(HOST))
    assert result.exit_code == 0
    assert sent == [("POST", f"hosts/{HOST}/resume", None)]
