"""Contested charges on the command line."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from marketplace.sdk import __main__ as line
from marketplace.sdk.client import Client

DISPUTE = "0ff9ea40-0000-4000-8000-000000000007"
CHARGE = "0ff9ea40-0000-4000-8000-000000000008"
ONE: dict[str, Any] = {
    "dispute_id": DISPUTE,
    "entry_id": CHARGE,
    "lease_id": "0ff9ea40-0000-4000-8000-000000000009",
    "starts_at": "2026-01-05T12:00:00Z",
    "ends_at": "2026-01-05T13:00:00Z",
    "charged_millis": 3_600_000,
    "used_millis": 1_800_000,
    "contested": "0.865000000",
    "currency": "USD",
    "reason": "its own meter says less",
    "state": "open",
    "opened_by": None,
    "opened_at": "2026-01-05T14:00:00Z",
    "decide_by": "2026-01-19T14:00:00Z",
    "decision": "",
    "decided_by": None,
    "decided_at": None,
    "given_back": "0.00",
}
SAID = {
    "number": 1,
    "tenant_id": "0ff9ea40-0000-4000-8000-000000000001",
    "said_by": "0ff9ea40-0000-4000-8000-000000000002",
    "text": "it ran on",
    "at": "2026-01-05T15:00:00Z",
}


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """What was sent to a market that has one open dispute."""
    heard: list[tuple[str, Any]] = []

    def handle(request: httpx.Request) -> httpx.Response:
        path = request.url.path.removeprefix("/api/v1/")
        if request.method == "POST":
            heard.append((path, json.loads(request.content)))
            return httpx.Response(201, json={"dispute_id": DISPUTE, "position": 1})
        if path == "disputes":
            decided = {**ONE, "state": "upheld", "dispute_id": CHARGE}
            return httpx.Response(200, json={"data": [ONE, decided], "next_cursor": None})
        return httpx.Response(200, json={**ONE, "statements": [SAID]})

    transport = httpx.MockTransport(handle)
    monkeypatch.setattr(
        line, "Client", lambda server, token: Client(server, token, transport=transport)
    )
    return heard


def said(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(line.app, list(words))
    assert result.exit_code == code, result.output
    return result.output


def test_open_ones_and_what_was_said_are_shown(heard: list[tuple[str, Any]]) -> None:
    listed = said("disputes", "list", "--open")
    shown = said("disputes", "show", DISPUTE)

    assert DISPUTE in listed and CHARGE not in listed and "0.865 USD" in listed
    assert "its two meters" in shown and "it ran on" in shown
    assert "1.0000" in shown and "0.5000" in shown


def test_a_charge_is_contested_and_spoken_about(heard: list[tuple[str, Any]]) -> None:
    said("disputes", "open", CHARGE, "--used", "30m", "--reason", "it was gone")
    said("disputes", "say", DISPUTE, "see its log")

    assert heard == [
        ("disputes", {"entry_id": CHARGE, "used_millis": 1_800_000, "reason": "it was gone"}),
        (f"disputes/{DISPUTE}/statements", {"text": "see its log"}),
    ]


def test_it_is_decided_in_whole_in_part_or_not_at_all(heard: list[tuple[str, Any]]) -> None:
    because = ("--reason", "looked at")
    said("disputes", "resolve", DISPUTE, "--uphold", *because)
    said("disputes", "resolve", DISPUTE, "--uphold", "--part", "0.25", *because)
    said("disputes", "resolve", DISPUTE, "--dismiss", *because)
    said("disputes", "resolve", DISPUTE, "--dismiss", "--part", "0.25", *because, code=2)

    assert heard == [
        (f"disputes/{DISPUTE}/uphold", {"reason": "looked at"}),
        (f"disputes/{DISPUTE}/uphold", {"reason": "looked at", "given_back": "0.25"}),
        (f"disputes/{DISPUTE}/dismiss", {"reason": "looked at"}),
    ]
