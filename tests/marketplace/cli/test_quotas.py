"""`offpeak quotas`: what is typed becomes the request meant; what is left out stays out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from marketplace.sdk import __main__ as line
from marketplace.sdk.client import Client
from marketplace.sdk.quotas_together import SHOWN

UNIT = "0ff9ea40-0000-4000-8000-000000000001"
Asked = list[tuple[str, str, Any]]
HALF_LIFE = {"half_life_seconds": 60}


@pytest.fixture
def offpeak(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[str, Asked]]:
    """Return what runs a command; it returns what was printed and what was asked."""

    def run(*words: str, answer: Any = None) -> tuple[str, Asked]:
        asked: Asked = []

        def handle(request: httpx.Request) -> httpx.Response:
            body = json.loads(request.content) if request.content else None
            asked.append((request.method, request.url.path.removeprefix("/api/v1/"), body))
            return httpx.Response(200, json={"position": 7} if answer is None else answer)

        transport = httpx.MockTransport(handle)
        monkeypatch.setattr(
            line, "Client", lambda server, token: Client(server, token, transport=transport)
        )
        result = CliRunner().invoke(line.app, ["quotas", *words])
        assert result.exit_code == 0, result.output
        return result.output, asked

    return run


def test_a_quota_that_is_left_out_is_not_sent(
    offpeak: Callable[..., tuple[str, Asked]],
) -> None:
    _, asked = offpeak("set", UNIT, "H100", "--nominal", "8", "--lending", "0", "--why", "theirs")

    body = {"node": UNIT, "gpu_class": "H100", "nominal": 8, "lending": 0, "why": "theirs"}
    assert asked == [("POST", "quotas", body)]


@pytest.mark.parametrize(
    ("words", "path", "body"),
    [
        (["counting", "parts"], "quotas/counting", {"counts": "parts", "why": ""}),
        (["least-run", "90m"], "quotas/least-run", {"seconds": 5_400, "why": ""}),
        (
            ["least-run", "2h", "--class", "H100"],
            "quotas/least-run",
            {"seconds": 7_200, "gpu_class": "H100", "why": ""},
        ),
        (
            ["least-run", "--class", "H100", "--lift"],
            "quotas/least-run",
            {"lift": True, "gpu_class": "H100", "why": ""},
        ),
        (["half-life", "2d"], "quotas/half-life", {"seconds": 172_800, "why": ""}),
        (["weight", UNIT, "500000"], "quotas/weights", {"node": UNIT, "weight_ppm": 500_000}),
        (["allow", "list", "B200", "--forbid"], "quotas/listings", {"allowed": False}),
        (["allow", "borrow", "any", "--who", UNIT], "quotas/uses", {"who": UNIT, "allowed": True}),
        (["limit", "user", "--gpus", "4"], "quotas/limits", {"scope": "user", "gpus": 4}),
        (["approve", UNIT], f"quotas/requests/{UNIT}/approve", {}),
        (["take-up", UNIT, UNIT], f"quotas/requests/{UNIT}/take-up", {"token_id": UNIT}),
    ],
)
def test_each_command_asks_its_route(
    offpeak: Callable[..., tuple[str, Asked]],
    words: list[str],
    path: str,
    body: dict[str, Any],
) -> None:
    _, [(method, asked, sent)] = offpeak(*words)

    assert (method, asked) == ("POST", path)
    assert body.items() <= sent.items()


def test_a_request_says_from_when_until_when(
    offpeak: Callable[..., tuple[str, Asked]],
) -> None:
    words = ("request", UNIT, "A100", "12", "--from", "2030-01-05T10:00:00Z", "--for", "3d")

    _, [(_, _, sent)] = offpeak(*words, "--why", "the paper is due")

    assert sent["starts_at"].startswith("2030-01-05")
    assert sent["ends_at"].startswith("2030-01-08")


def test_a_trial_tells_what_would_change(offpeak: Callable[..., tuple[str, Asked]]) -> None:
    change = {"bid_id": "b1", "unit": UNIT, "before": "admitted", "after": "quota"}
    answer = {
        "bids": 3,
        "admitted_before": 2,
        "admitted_after": 1,
        "bid_changes": [change],
        "lease_changes": [],
        "queues": [{"unit": UNIT, **places(3, 1)}],
    }

    said, [(_, path, sent)] = offpeak("try", UNIT, "H100", "--nominal", "0", answer=answer)

    assert path == "quotas/trials"
    assert sent["policies"][0] | {"kind": "quota", "nominal": 0} == sent["policies"][0]
    assert "b1" in said and "admitted" in said
    assert f"{UNIT}  3      1" in said


def places(before: int, after: int) -> dict[str, Any]:
    return {"place_before": before, "place_after": after, **shares(0.25, 0.25)}


def shares(before: float | None, after: float | None) -> dict[str, Any]:
    return {"share_before": before, "share_after": after}


def test_shares_are_shown_level_by_level(offpeak: Callable[..., tuple[str, Asked]]) -> None:
    figures = {
        "gpu_class": "H100",
        "remembered_gpu_hours": 1.5,
        "weight_ppm": 1_000_000,
        "share": 0.125,
    }
    levels = [
        {"node": "science", "is_cohort": True, "depth": 0, "turn": 1, "beside": 2},
        {"node": UNIT, "is_cohort": False, "depth": 1, "turn": 1, "beside": 1},
    ]
    answer = {
        "places": [],
        "levels": [{**each, **figures, "before_the_next": "science 0 < b 1"} for each in levels],
        **HALF_LIFE,
    }

    said, _ = offpeak("shares", answer=answer)

    lines = said.splitlines()
    assert lines[1].startswith("science") and "1 of 2" in lines[1] and "science 0 < b 1" in said
    assert lines[2].startswith(f"\N{NO-BREAK SPACE}\N{NO-BREAK SPACE}{UNIT}")


def test_several_policies_of_a_file_are_tried_together_and_set_at_once(
    offpeak: Callable[..., tuple[str, Asked]], tmp_path: Path
) -> None:
    policies = [
        {"kind": "weight", "node": UNIT, "weight_ppm": 2_000_000},
        {"kind": "use", "gpu_class": "H100", "what": "borrow", "allowed": False},
    ]
    file = tmp_path / "term.json"
    file.write_text(json.dumps(policies))
    judged = {
        "kind": "lease",
        "id": "l1",
        "who": UNIT,
        "gpu_models": ["H100"],
        "before": "allowed",
        "after": "needs-approval",
    }
    answer = {
        "bids": 3,
        "admitted_before": 2,
        "admitted_after": 1,
        "bid_changes": [],
        "lease_changes": [],
        "run_changes": [
            {"lease_id": "l2", "unit": UNIT, "gpus": 1, "before": None, "after": "2030-01-05T14:00"}
        ],
        "queues": [
            {"unit": UNIT, **places(3, 1)},
            {"unit": "stays", **places(2, 2)},
        ],
        "cohorts": [
            {"cohort": "science", "turn_before": 2, "turn_after": None, **shares(0.5, None)}
        ],
        "past": {"changes": [judged]},
    }

    said, tried = offpeak("try-all", str(file), "--days", "3", "--market", "eu", answer=answer)
    _, made = offpeak("set-all", str(file), "--why", "a new term")

    asked = {"policies": policies, "market": "eu", "days": 3}
    assert tried == [("POST", "quotas/trials", asked)]
    assert "science" in said and UNIT in said and "stays" not in said
    assert "l2" in said and "may be interrupted" in said and "until 2030-01-05T14:00" in said
    assert "needs-approval" in said and "Of 3 open bids 2 fit now, 1 would." in said
    assert made == [("POST", "quotas/policies", {"policies": policies, "why": "a new term"})]


def test_the_last_hours_are_run_again_under_the_policies_of_a_file(
    offpeak: Callable[..., tuple[str, Asked]], tmp_path: Path
) -> None:
    file = tmp_path / "term.json"
    file.write_text("[]")
    figures = dict.fromkeys(SHOWN, 7)
    party = {"gpu_seconds": 60, "money": "1.00"}
    answer = {
        "bids": 0,
        "admitted_before": 0,
        "admitted_after": 0,
        "bid_changes": [],
        "lease_changes": [],
        "queues": [],
        "again": figures,
        "variant": figures | {"welfare": "12.50"},
        "parties": [
            {"side": "owner", "who": UNIT, "fares": "wins", "before": party, "after": party}
        ],
    }

    said, asked = offpeak("try-all", str(file), "--hours", "24", answer=answer)

    assert [path for _, path, _ in asked] == ["quotas/trials", "lab"]
    assert asked[1][2] == {"policies": [], "hours": 24}
    assert "12.50" in said and "wins" in said


def test_the_log_says_what_each_policy_says(offpeak: Callable[..., tuple[str, Asked]]) -> None:
    entry = {
        "at": "2026-01-05T12:00:00Z",
        "kind": "quota-set",
        "who": "user:olivia",
        "why": "theirs",
        "policy": {"node": UNIT, "nominal": 8, "lending": None, "market": "main"},
    }

    said, _ = offpeak("log", answer={"data": [entry], "next": None})

    assert f"node {UNIT}, nominal 8" in said
    assert "theirs" in said


@pytest.mark.parametrize(
    "words",
    [["list"], ["shares"], ["log"], ["overrides"], ["requests"], ["allowed"]],
)
def test_what_is_shown_is_of_the_market_named(
    monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    seen = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request.url.params.get("market"))
        return httpx.Response(200, json={"data": [], "next": None, "places": [], **HALF_LIFE})

    transport = httpx.MockTransport(handle)
    monkeypatch.setattr(
        line, "Client", lambda server, token: Client(server, token, transport=transport)
    )
    result = CliRunner().invoke(line.app, ["quotas", *words, "--market", "eu"])

    assert result.exit_code == 0, result.output
    assert set(seen) == {"eu"}


@pytest.mark.parametrize(
    "words",
    [
        ["cohort", "science"],
        ["unit", UNIT],
        ["set", UNIT, "H100", "--nominal", "8"],
        ["override", UNIT, "H100", "--from", "now", "--for", "2h", "--nominal", "8"],
        ["lift", UNIT, "--why", "the paper is out"],
        ["limit", "user", "--gpus", "4"],
        ["weight", UNIT, "500000"],
        ["half-life", "2d"],
        ["period", "7d", "--from", "2030-01-07T00:00:00Z"],
        ["allow", "lease", "H100"],
        ["allow", "list", "H100"],
        ["request", UNIT, "A100", "12", "--from", "now", "--for", "3d", "--why", "a paper"],
        ["approve", UNIT],
        ["decline", UNIT, "--why", "no"],
        ["take-up", UNIT, UNIT],
    ],
)
def test_what_is_set_is_set_in_the_market_named(
    offpeak: Callable[..., tuple[str, Asked]], words: list[str]
) -> None:
    _, [(_, _, body)] = offpeak(*words, "--market", "eu")

    assert body["market"] == "eu"


def test_a_trial_is_of_the_market_named(offpeak: Callable[..., tuple[str, Asked]]) -> None:
    answer = {
        "bids": 0,
        "admitted_before": 0,
        "admitted_after": 0,
        "bid_changes": [],
        "lease_changes": [],
        "queues": [],
    }

    words = ("try", UNIT, "H100", "--nominal", "8", "--market", "eu")

    _, [(_, path, body)] = offpeak(*words, answer=answer)

    assert (path, body["market"]) == ("quotas/trials", "eu")
    assert body["policies"] == [{"kind": "quota", "node": UNIT, "gpu_class": "H100", "nominal": 8}]
