"""How long leases run at least, as the command line says it: what is in force, and of a bid."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import httpx
import pytest
from typer.testing import CliRunner

from marketplace.sdk import __main__ as line
from marketplace.sdk.client import Client

BID = UUID("0ff9ea40-0000-4000-8000-000000000002")
EXPLAINED: dict[str, Any] = {
    "state": "open",
    "funnel": [
        {"constraint": "notice", "gpus": 5, "fewer": 12, "asked": "notice>=30m"},
        {"constraint": "taken", "gpus": 0, "fewer": 5, "asked": ""},
    ],
    "reason": {"code": "taken", "text": "The GPUs are leased at that time."},
    "can_be_placed": False,
    "price_needed": None,
    "as_of": None,
}
LATER = {
    "leases": 2,
    "gpus": 3,
    "until": "2030-01-05T14:00:00Z",
    "starts_by": "2030-01-05T13:00:00Z",
    "least_run_seconds": 7_200,
}


def said(monkeypatch: pytest.MonkeyPatch, path: str, answer: dict[str, Any], *words: str) -> str:
    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path == f"/api/v1/burst/bids/{BID}":
            return httpx.Response(200, json={"bid_id": str(BID), "waiting": None, "attempts": []})
        assert (request.method, request.url.path) == ("GET", f"/api/v1/{path}")
        return httpx.Response(200, json=answer)

    transport = httpx.MockTransport(handle)
    monkeypatch.setattr(
        line, "Client", lambda server, token: Client(server, token, transport=transport)
    )
    result = CliRunner().invoke(line.app, list(words))
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


def test_what_is_in_force_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    path = "quotas/least-run"
    classes = [{"gpu_class": "H100", "seconds": 60}]
    answer = {"seconds": 7_200, "firm_seconds": 3_600, "classes": classes}

    shown = said(monkeypatch, path, answer, "quotas", "least-run")
    as_json = said(monkeypatch, path, answer, "-o", "json", "quotas", "least-run")

    assert "No lease is interrupted before it ran 7200 s. None of H100 before it ran 60 s." in shown
    assert "No work is paused before 3600 s of it are done." in shown
    assert json.loads(as_json) == answer


@pytest.mark.parametrize("later", [LATER, None])
def test_a_bid_is_told_what_runs_undisturbed_yet(
    monkeypatch: pytest.MonkeyPatch, later: dict[str, Any] | None
) -> None:
    answer = EXPLAINED | {"undisturbed": later}

    shown = said(monkeypatch, f"bids/{BID}/explain", answer, "bids", "explain", str(BID))

    assert "notice notice>=30m 5 12" in shown
    assert ("(2, on 3 GPUs) have not run for their least time yet" in shown) is bool(later)
    assert ("until 2030-01-05T14:00:00Z" in shown) is bool(later)
