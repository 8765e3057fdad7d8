"""Every command and program that the documents show is one that works."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import marketplace.sdk
from marketplace.sdk import from_git, from_s3
from marketplace.sdk.ending import REFUSED
from marketplace.sdk.from_git import Fetched
from tests.marketplace.cli.pretending import BID, ROOT, Market, offpeak

PLACES = (
    "BID", "LEASE", "OFFER", "HOST", "UNIT", "REQUEST", "TOKEN", "ACCOUNT", "INVITATION", "FOLDER",
    "CHARGE", "PROPOSAL", "BUDGET", "GRANT", "CARD", "REFUND",
)  # fmt: skip
LASTING = ("logs", "run", "ssh", "port-forward", "cp")
"""Commands that last as long as what they reach: here the market refuses their first request."""
LOCAL = ("modules",)
"""Commands that ask nobody."""
EMPTY = b'{"format": "offpeak-folder-1", "blobs": [], "files": []}'
"""The list of files of a folder without any."""
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
OF_CLIENT = re.compile(r"^(?:import|from) offpeak\b(?!\.checkpoint)", re.MULTILINE).search
"""Tells programs that use the client; those that save themselves are tried in tests/checkpoints."""
COMMAND = re.compile(r"^(?:\.venv/bin/)?offpeak (.*)$", re.MULTILINE)
ANSWER: dict[str, Any] = {
    "id": BID,
    "lease_id": BID,
    "position": 1,
    "version": 1,
    "tenant_id": BID,
    "subscriber_id": BID,
    "account_id": BID,
    "invitation_id": BID,
    "credit_id": BID,
    "dispute_id": BID,
    "plan_id": BID,
    "link": "https://gpu.example/invitations/offp_invite_x",
    "expires_at": "2026-12-06T12:00:00Z",
    "state": "active",
    "data": [],
    "next": None,
    "currency": "USD",
    "token": "offp_host_x",
    "gpus": [{"uuid": "GPU-1"}],
    "reclaim": [],
    "funnel": [],
    "choices": [],
    "listed": False,
    "margin_percent": None,
    "platform_moves": True,
    "platform_margin_percent": 10,
    "places": [],
    "half_life_seconds": 60,
    "seconds": 60,
    "classes": [],
    "counts": "whole",
    "bid_changes": [],
    "lease_changes": [],
    "queues": [],
    "bids": 0,
    "code": "K7Q4M-2XD9F",
    "admitted_before": 0,
    "admitted_after": 0,
    "again": {},
    "variant": {},
    "parties": [],
    "considered": [],
    "moves": [],
    "output_folders": [{"host_id": BID, "folder_id": BID}],
    "outputs_failed": [],
    "name": "data",
    "size_gib": 1,
    "manifest": sha256(EMPTY).hexdigest(),
    "links": {sha256(EMPTY).hexdigest(): {"url": "/api/v1/blob", "headers": {}}},
}
BUDGET: dict[str, Any] = {
    "id": BID,
    "title": "Language models",
    "scope": "tenant",
    "subject": "",
    "amount": "500.000000000",
    "currency": "USD",
    "period": "month",
    "period_starts_at": "2026-12-01T00:00:00Z",
    "period_ends_at": "2027-01-01T00:00:00Z",
    "roll_over": "none",
    "unused_percent": 0,
    "zone": "UTC",
    "blocked": False,
    "thresholds": [{"at_percent": 80, "action": "notify"}],
    "forecast": {"expected": "1.000000000", "low": "0.500000000", "high": "2.000000000"},
}
WALLET: dict[str, Any] = {
    "account_id": BID,
    "title": "Astro",
    "kind": "prepaid",
    "currency": "USD",
    "short": "0.000000000",
    "automatic": None,
}
TOP_UP: dict[str, Any] = {"payment_id": BID, "state": "succeeded", "url": "", "reason": ""}
EXPORTED = b"a,b\n"
MANIFEST = {"bytes": len(EXPORTED), "sha256": sha256(EXPORTED).hexdigest(), "position": 1}


def documents() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "config" / "docs").glob("*.md"))]


def examples(*languages: str) -> Iterator[tuple[str, str]]:
    for document in documents():
        for language, text in BLOCK.findall(document.read_text()):
            if language in languages:
                yield document.name, text


def commands() -> list[Any]:
    return [
        pytest.param(words, id=f"{document}: {' '.join(words)[:60]}")
        for document, block in examples("sh", "bash", "console")
        for line in COMMAND.findall(block)
        if (words := shlex.split(line, comments=True))
    ]


def test_there_are_examples() -> None:
    assert len(commands()) > 30
    assert len(list(examples("python"))) >= 1


@pytest.mark.parametrize("words", commands())
def test_a_documented_command_is_understood_and_asks_the_market(
    words: list[str], market: Market, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "term.json").write_text("[]")
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "train.py").touch()
    for elsewhere in (from_git, from_s3):
        found = Fetched(tmp_path / "train", "elsewhere.example/train")
        monkeypatch.setattr(elsewhere, "fetch", lambda wanted, into, found=found: found)
    tenants = {"data": [{"slug": "ada-labs", "tenant_id": BID}], "next": None}
    known: dict[str, Any] = {"GET exports": EXPORTED, "GET tenants": tenants, "GET blob": EMPTY}
    known[f"GET leases/{BID}/idle"] = {"rule": None}
    known["GET accounts"] = {"data": [WALLET], "next": None}
    known[f"GET accounts/{BID}/wallet"] = WALLET
    known[f"POST accounts/{BID}/top-ups"] = known[f"GET accounts/{BID}/top-ups/{BID}"] = TOP_UP
    known[f"POST accounts/{BID}/refunds"] = {"refund_id": BID, "position": 1}
    known["GET exports/manifest"], known[f"GET budgets/{BID}"] = MANIFEST, BUDGET
    known["POST folders/missing"] = known["POST volumes/data/missing"] = {"links": {}}
    lasts = words[0] in LASTING
    refusal = {"code": "not-now", "detail": "Not now."}
    market.answer = lambda asked: (409, refusal) if lasts else (200, known.get(asked, ANSWER))

    said = (
        BID if word in PLACES else word.replace("lease:LEASE", f"lease:{BID}") for word in words
    )
    done = offpeak(market, *said, typed="a value of a secret\n")

    assert done.returncode == (REFUSED if lasts else 0), done.stderr
    assert market.heard or words[0] in LOCAL


@pytest.mark.parametrize("program", [text for _, text in examples("python") if OF_CLIENT(text)])
def test_a_documented_program_runs(
    program: str,
    market: Market,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lease = {"id": BID, "gpu_model": "H100", "ends_at": "2026-11-29T12:00:00Z"}
    market.answers["GET leases"] = 200, {"data": [lease], "next": None}
    monkeypatch.setenv("OFFPEAK_TOKEN", "offp_user_x")
    monkeypatch.setitem(sys.modules, "offpeak", marketplace.sdk)

    exec(compile(re.sub(r"https://[a-z.]+", market.url, program), "example", "exec"), {})

    assert "print" not in program or BID in capsys.readouterr().out
