"""`offpeak offers publish`: how a GPU is divided is typed in one word."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from marketplace.sdk import __main__ as line
from marketplace.sdk.client import Client

HOST = "0ff9ea40-0000-4000-8000-000000000001"
PUBLISH = ["offers", "publish", HOST, "--from", "now", "--for", "8h", "--floor", "0.40"]


def publish(monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, list[Any]]:
    """Run the command; return how it ended and the offers that it asked for."""
    asked: list[Any] = []

    def handle(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            asked.append(json.loads(request.content))
        return httpx.Response(200, json={"id": HOST, "position": 7, "gpus": [{"uuid": "GPU-a"}]})

    transport = httpx.MockTransport(handle)
    monkeypatch.setattr(
        line, "Client", lambda server, token: Client(server, token, transport=transport)
    )
    result = CliRunner().invoke(line.app, [*PUBLISH, *words])
    return result.exit_code, asked


@pytest.mark.parametrize(
    ("said", "shares"),
    [
        ("mps:4", {"kind": "mps", "count": 4}),
        ("timeslice:2", {"kind": "timeslice", "count": 2}),
        (
            "mig:3g.40gb, 2x1g.10gb+me",
            {"kind": "mig", "profiles": ["3g.40gb", "1g.10gb+me", "1g.10gb+me"]},
        ),
        (
            "mps:40GiB@60,20000MiB@25%",
            {
                "kind": "mps",
                "parts": [
                    {"memory_mib": 40_960, "compute_percent": 60},
                    {"memory_mib": 20_000, "compute_percent": 25},
                ],
            },
        ),
        (
            "timeslice:60GiB,10GiB",
            {"kind": "timeslice", "parts": [{"memory_mib": 61_440}, {"memory_mib": 10_240}]},
        ),
    ],
)
def test_shares_are_typed_in_one_word(
    monkeypatch: pytest.MonkeyPatch, said: str, shares: dict[str, Any]
) -> None:
    code, asked = publish(monkeypatch, "--shares", said)

    assert code == 0
    assert [each["shares"] for each in asked] == [shares]


def test_forms_by_demand_are_typed_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    ways = ["whole=2.00", "mps:4=0.60", "mig:3g.40gb,1g.10gb"]
    code, asked = publish(
        monkeypatch, *(word for way in ways for word in ("--by-demand", way)), "--form-min", "2h"
    )

    assert code == 0
    assert asked[0]["by_demand"] == {
        "forms": [
            {"shares": None, "floor": "2.00"},
            {"shares": {"kind": "mps", "count": 4}, "floor": "0.60"},
            {"shares": {"kind": "mig", "profiles": ["3g.40gb", "1g.10gb"]}},
        ],
        "form_min_seconds": 7_200,
    }
    assert "shares" not in asked[0]


def test_without_the_word_gpus_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    _, asked = publish(monkeypatch)

    assert "shares" not in asked[0]
    (window,) = asked[0]["windows"]
    # A window begins on a whole second: so does what is listed from now on.
    assert "." not in window["starts_at"]


@pytest.mark.parametrize(
    "said", ["mps", "mps:", "mps:40GiB@x", "mps:40 GB", "mig:", "mig:yx1g.10gb"]
)
def test_a_word_that_cannot_be_read_is_not_sent(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    code, asked = publish(monkeypatch, "--shares", said)

    assert (code, asked) == (2, [])
