"""From an idle GPU to a balanced book: HTTP, command line, real work on the scripted driver."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ledger.domain.money import nanos_of
from marketplace.sdk.client import Client
from tests.journeys import books
from tests.journeys.hosts import Machine, register
from tests.journeys.installation import Installation, until
from tests.journeys.work import Work
from tests.nvml.library import build
from tests.nvml.script import Proc, Script

FLOOR = "1.234567891"
LIMIT = "3"
FEE_PPM = 50_000
REGION = "night"


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """The fake driver's script: two cards and the wall clock."""
    script = Script(tmp_path / "nvml.txt")
    for letter in "ab":
        script.card(f"GPU-{tmp_path.name}-{letter}", "name=NVIDIA_H100_80GB_HBM3 nvlink=1")
    return script


@pytest.fixture
def machine(
    market: Installation, script: Script, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Machine]:
    """Ada's host with two GPUs, known to the market, its agent at work."""
    library = build(tmp_path_factory.getbasetemp().parent / "offpeak-nvml")
    machine = register(market, "ada", REGION, tmp_path)
    driver = {"LD_LIBRARY_PATH": str(library.parent), "FAKE_NVML_STATE": str(script.path)}
    machine.start_agent(environment=driver)
    yield machine
    machine.retire()


def test_every_millisecond_on_the_gpu_is_paid_for_and_no_other(
    market: Installation, machine: Machine, script: Script, tmp_path: Path
) -> None:
    gpus = machine.gpus()
    assert sorted(gpus) == sorted(card.split("uuid=")[1].split()[0] for card in script.cards)
    machine.list_for(4, floor=FLOOR, gpus=gpus)

    by_cli, by_api = Work(tmp_path / "by-cli"), Work(tmp_path / "by-api")
    lease = _bid_by_cli(market, by_cli)
    other = _bid_by_api(market, by_api)

    assert lease["state"] == other["state"] == "active"
    assert {*lease["gpu_uuids"], *other["gpu_uuids"]} == set(gpus)
    holder = _occupy(market, script, gpus, lease, by_cli)
    by_cli.finish()
    asked_ms = _now_ms()
    done = market.cli("grace", "leases", "end", other["id"])
    assert done.code == 0, done.err
    ended_ms = (asked_ms, _now_ms())
    _closes(market, lease, reason=101)
    script.end(holder.pid, int(_said(by_cli, "finished")["at"] * 1000))
    _closes(market, other, reason=102)
    assert by_api.told("term")

    for each, ended in ((lease, None), (other, ended_ms)):
        _is_charged_what_was_granted(market, machine, each, ended)
        _is_on_the_statement(market, each)
    _was_seen_on_the_gpu(market, machine, lease, holder)
    _is_in_the_exports(market, [lease, other], tmp_path)


def _bid_by_cli(market: Installation, work: Work) -> dict[str, Any]:
    words = ["bids", "create", f"gpu=H100 region={REGION}", "--gpus", "1", "--for", "10m"]
    words += ["--max", LIMIT, "--wait", "--timeout", "60s", "--", *work.command]
    placed: dict[str, Any] = market.cli("grace", *words).json
    assert _said(work, "started")
    return placed


def _bid_by_api(market: Installation, work: Work) -> dict[str, Any]:
    query, key = f"gpu=H100 region={REGION}", "a-night-by-api"
    bid_id = market.bid("grace", query, work.command, key=key, limit=LIMIT)
    assert market.bid("grace", query, work.command, key=key, limit=LIMIT) == bid_id
    lease = market.lease_of("grace", bid_id, state="active")
    assert _said(work, "started")
    return lease


def _said(work: Work, what: str) -> dict[str, Any]:
    return until(lambda: work.told(what), why=f"the work never told of {what!r}") or {}


def _occupy(
    market: Installation, script: Script, gpus: list[str], lease: dict[str, Any], work: Work
) -> Proc:
    """Let the driver list the work on its GPU until some busy time has reached the market."""
    pid = _said(work, "started")["pid"]
    (gpu,) = lease["gpu_uuids"]
    index = next(number for number, card in enumerate(script.cards) if f"uuid={gpu} " in card)
    # The driver's samples are of whole seconds.
    start_ms = int(datetime.now(UTC).timestamp()) * 1000
    holder = script.proc(Proc(index, pid, sm=70, start_ms=start_ms))
    with market.client("grace") as api:
        until(lambda: (api.get(f"leases/{lease['id']}/usage")["busy_ms"] or 0) > 1_500)
    return holder


def _closes(market: Installation, lease: dict[str, Any], *, reason: int) -> None:
    closed = market.lease_of("grace", lease["bid_id"], state="closed")
    assert closed["close_reason"]["code"] == reason


def _now_ms() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)


def _is_charged_what_was_granted(
    market: Installation,
    machine: Machine,
    lease: dict[str, Any],
    ended_ms: tuple[int, int] | None,
) -> None:
    """ended_ms: between which moments the consumer ended it: the grace after it is not billed."""
    use = books.final_use(market, "grace", lease["id"])
    spooled = machine.spooled(lease["id"])
    for earlier, later in pairwise(spooled):
        assert earlier["end_ms"] == later["start_ms"]
    truth_ms = use["granted_ms"]
    first, last = (
        min(spooled[-1]["end_ms"], end) for end in ended_ms or (spooled[-1]["end_ms"],) * 2
    )
    assert 0 < first - spooled[0]["start_ms"] <= truth_ms <= last - spooled[0]["start_ms"]
    assert use["rated_ms"] == truth_ms
    assert use["gap_ms"] == use["live_ms"] == 0

    charge = books.charge_of(lease, truth_ms)
    assert nanos_of(use["charged"]) == nanos_of(use["cost"]) == charge.nanos > 0
    period = f"{datetime.now(UTC):%Y-%m}"
    with market.client("grace") as api:
        funds = books.account(api, kind="prepaid", title="Language models")
        paid = books.entries(api, funds["account_id"], lease["id"], period=period)
        assert sum(paid.values()) == -charge.nanos
        until(lambda: not _held(api, funds["account_id"], lease), why="the hold is not released")
    with market.client("ada") as api:
        earnings = books.account(api, kind="earnings")
        earned = books.entries(api, earnings["account_id"], lease["id"], period=period)
    with market.client("joan") as api:
        fees = books.account(api, kind="fees")
        kept = books.entries(api, fees["account_id"], lease["id"], period=period)
        balance = api.get("trial-balance")
    fee_nanos = charge.share(FEE_PPM).nanos
    assert abs(sum(kept.values()) - fee_nanos) <= len(kept)
    assert sum(earned.values()) + sum(kept.values()) == charge.nanos
    assert sum(books.signed_nanos(line["total"]) for line in balance["data"]) == 0
    assert not any(books.signed_nanos(rest) for rest in balance["others"].values())


def _held(api: Client, account_id: str, lease: dict[str, Any]) -> bool:
    holds = api.all(f"accounts/{account_id}/holds")
    return any(hold["hold_id"] == lease["bid_id"] and not hold["released_at"] for hold in holds)


def _was_seen_on_the_gpu(
    market: Installation, machine: Machine, lease: dict[str, Any], holder: Proc
) -> None:
    spooled = machine.spooled(lease["id"])
    end_ms = spooled[-1]["end_ms"]
    with market.client("grace") as api:
        use = api.get(f"leases/{lease['id']}/usage")
    assert use["occupied_ms"] == sum(each["occupied_ms"] for each in spooled)
    assert use["busy_ms"] == sum(each["busy_ms"] for each in spooled)
    # Within a look at either end, for the clock is real.
    assert abs(use["occupied_ms"] - holder.resident_ms(holder.start_ms, end_ms)) <= 2_000
    missed = holder.busy_ms(holder.start_ms, end_ms) - use["busy_ms"]
    assert -len(spooled) <= missed <= 2_500  # each interval is rounded by itself


def _is_in_the_exports(market: Installation, leases: list[dict[str, Any]], folder: Path) -> None:
    period = f"{datetime.now(UTC):%Y-%m}"
    with market.client("joan") as api:
        exported = b"".join(api.download("exports", format="focus", period=period)).decode()
        said = api.get("exports/manifest", format="focus", period=period)
    rows = list(csv.DictReader(io.StringIO(exported, newline="")))
    assert len(rows) == said["rows"]
    for lease in leases:
        use = books.final_use(market, "grace", lease["id"])
        billed = [row for row in rows if lease["id"] in row["ResourceId"]]
        assert billed, "the lease is not in the FOCUS export"
        total = sum(books.signed_nanos(row["EffectiveCost"]) for row in billed)
        assert total == nanos_of(use["charged"])

    path = folder / "month.beancount"
    done = market.cli("joan", "export", "beancount", "--period", period, "--to", str(path))
    assert done.code == 0, done.err
    check = Path(sys.executable).with_name("bean-check")
    checked = subprocess.run([check, path], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def _is_on_the_statement(market: Installation, lease: dict[str, Any]) -> None:
    with market.client("grace") as api:
        funds = books.account(api, kind="prepaid", title="Language models")
    lines = market.cli("grace", "statement", funds["account_id"]).json
    charged = [line for line in lines if line["lease_id"] == lease["id"]]
    use = books.final_use(market, "grace", lease["id"])
    assert -sum(books.signed_nanos(line["amount"]) for line in charged) == nanos_of(use["charged"])
