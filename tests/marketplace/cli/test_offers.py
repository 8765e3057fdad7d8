"""`offpeak offers`: an offer is made with its terms; why nobody takes one, as a table."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import httpx
import pytest
from typer.testing import CliRunner

from marketplace.sdk import __main__ as line
from marketplace.sdk.client import Client

OFFER = UUID("0ff9ea40-0000-4000-8000-000000000001")
ANSWER = {
    "listed": True,
    "waiting": 3,
    "fitting": 2,
    "in_time": 1,
    "floor": "2.00",
    "floor_needed": "1.50",
    "removed": [
        {"reason": "limit", "bids": 2, "gpus": 3, "limit": "1.50"},
        {"reason": None, "bids": 1, "gpus": 1, "limit": "2.50"},
    ],
    "changes": [
        {
            "what": "floor",
            "bids": 1,
            "gpus": 1,
            "limit": "1.50",
            "floor": "1.50",
            "duration_seconds": None,
            "starts_at": None,
        }
    ],
}


def explained(monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any]) -> str:
    def handle(request: httpx.Request) -> httpx.Response:
        assert request.url.path == f"/api/v1/offers/{OFFER}/explain"
        return httpx.Response(200, json=answer)

    transport = httpx.MockTransport(handle)
    monkeypatch.setattr(
        line, "Client", lambda server, token: Client(server, token, transport=transport)
    )
    result = CliRunner().invoke(line.app, ["offers", "explain", str(OFFER)])
    assert result.exit_code == 0, result.output
    return result.output


def test_it_tells_what_stands_in_the_way_and_what_would_change_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = explained(monkeypatch, ANSWER)

    for word in ("limit", "nothing", "floor needed", "1.50", "bids served"):
        assert word in said


def test_one_that_is_over_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "not on the market any more" in explained(monkeypatch, {"listed": False})


@pytest.mark.parametrize(("said", "sent"), [(["--grace", "90s"], 90), ([], None)])
def test_an_offer_is_listed_with_the_grace_that_is_said(
    monkeypatch: pytest.MonkeyPatch, said: list[str], sent: int | None
) -> None:
    asked: list[dict[str, Any]] = []

    def handle(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            asked.append(json.loads(request.content))
            return httpx.Response(201, json={"id": str(OFFER), "position": 1})
        return httpx.Response(200, json={"id": str(OFFER), "grace_seconds": 90})

    transport = httpx.MockTransport(handle)
    monkeypatch.setattr(
        line, "Client", lambda server, token: Client(server, token, transport=transport)
    )
    words = ["offers", "publish", str(OFFER), "--from", "now", "--for", "2h", "--floor", "1.50"]
    result = CliRunner().invoke(line.app, [*words, "--gpu", "GPU-a", *said])

    assert result.exit_code == 0, result.output
    assert [body.get("grace_seconds") for body in asked] == [sent]
    assert "grace, s" in result.output


def changed(monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[list[Any], Any]:
    """Run `offpeak offers` with some words; return what was sent, and how it ended."""
    sent: list[Any] = []

    def handle(request: httpx.Request) -> httpx.Response:
        assert request.url.path == f"/api/v1/offers/{OFFER}"
        if request.method == "PATCH":
            sent.append(json.loads(request.content))
            return httpx.Response(200, json={"id": str(OFFER), "position": 1})
        return httpx.Response(200, json={"id": str(OFFER), "currency": "EUR"})

    transport = httpx.MockTransport(handle)
    monkeypatch.setattr(
        line, "Client", lambda server, token: Client(server, token, transport=transport)
    )
    return sent, CliRunner().invoke(line.app, ["offers", *words])


def test_terms_change_and_what_is_not_said_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    said = ["--notice", "30m", "--grace", "60s", "--fee", "200000", "--lease-min", "1h"]
    more = ["--step", "24h=0", "--step", "2h=50000", "--only", "inference"]

    sent, ended = changed(monkeypatch, "terms", str(OFFER), *said, *more)
    short, _ = changed(monkeypatch, "terms", str(OFFER), "--step", "none", "--only", "anything")

    assert ended.exit_code == 0, ended.output
    assert sent == [
        {
            "notice_seconds": 1_800,
            "grace_seconds": 60,
            "lease_min_seconds": 3_600,
            "reclaim_fee_ppm": 200_000,
            "reclaim_steps": [
                {"notice_seconds": 7_200, "fee_ppm": 50_000},
                {"notice_seconds": 86_400, "fee_ppm": 0},
            ],
            "workload_kinds": ["inference"],
        }
    ]
    assert short == [{"reclaim_steps": [], "workload_kinds": []}]


def test_a_floor_changes_in_the_currency_of_the_offer(monkeypatch: pytest.MonkeyPatch) -> None:
    sent, ended = changed(monkeypatch, "reprice", str(OFFER), "1.60")

    assert ended.exit_code == 0, ended.output
    assert sent == [{"floor": "1.60", "currency": "EUR"}]


def test_a_change_of_nothing_says_what_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    sent, ended = changed(monkeypatch, "terms", str(OFFER))

    assert ended.exit_code == 2
    assert "--notice" in ended.output
    assert sent == []


@pytest.mark.parametrize(
    ("least", "most", "said"),
    [(300, 300, "5m"), (0, 5_400, "0s to 90m"), (90, 172_800, "90s to 2d")],
)
def test_the_market_says_what_owners_promise(
    monkeypatch: pytest.MonkeyPatch, least: int, most: int, said: str
) -> None:
    goods = {
        "gpu_model": "H100-80GB",
        "promised": {
            "notice_seconds_min": least,
            "notice_seconds_max": most,
            "grace_seconds_min": 15,
            "grace_seconds_max": 60,
        },
    }

    def handle(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"data": [goods, {"gpu_model": "L4"}], "next": None})

    transport = httpx.MockTransport(handle)
    monkeypatch.setattr(
        line, "Client", lambda server, token: Client(server, token, transport=transport)
    )
    wide = {"COLUMNS": "200"}
    told = CliRunner().invoke(line.app, ["market"], env=wide).output
    as_json = CliRunner().invoke(line.app, ["-o", "json", "market"], env=wide).output

    assert f"{said} " in told
    assert "15s to 1m" in told
    assert json.loads(as_json)[0] == goods
