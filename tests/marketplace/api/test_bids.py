"""Bids and the market over HTTP, on the PostgreSQL store and real rows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone

from ledger.eventstore.postgres import PostgresStore
from ledger.rebuilding import fingerprint, rebuild
from marketplace.domain.facts.events import BidFilled, LeaseGranted
from marketplace.projections import bids, rounds
from tests.access.conftest import Caller, admit
from tests.marketplace.support.market import Market
from tests.marketplace.support.over_http import ada as ada
from tests.marketplace.support.over_http import body, read, with_unit
from tests.marketplace.support.over_http import market as market
from tests.marketplace.support.over_http import unit as unit

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.marketplace.support.routes")]


@pytest.fixture
def eve(db: None) -> Caller:
    return admit("eve-works", "consumer")


def test_a_bid_over_http_becomes_a_grant_and_a_row(ada: Caller, unit: str, market: Market) -> None:
    placed = ada.post("/api/v1/bids", body(unit))
    assert placed.status_code == 201, placed.content
    market.now = timezone.now()
    market.run()
    read()

    answer = ada.get(f"/api/v1/bids/{placed.json()['id']}")

    assert placed.json()["service_class"] == "on-demand"
    shown = answer.json()
    assert answer["ETag"] == '"1"'
    assert (shown["state"], shown["limit"], shown["query"]) == ("open", "2.00", "gpu=H100")
    assert shown["cost_centre"] == "CC-7"
    assert shown["workload"] == {
        "kind": "inference-7b",
        "command": ["serve"],
        "environment": {"PORT": "80"},
        "checkpoint_seconds": None,
        "image": "",
        "inputs": None,
        "fetch": "",
        "fetch_secret": "",
        "outputs": [],
        "secrets": [],
        "secret_variables": [],
        "volumes": [],
        "end_when_idle_seconds": None,
        "project": "",
    }
    granted = next(iter(market.grants().values()))
    assert isinstance(granted, LeaseGranted)
    assert ada.get("/api/v1/market/tape").json()["data"] == [], "no trade before it is a lease"
    market.take_up()
    read()
    tape = ada.get("/api/v1/market/tape").json()["data"]
    assert [(trade["gpu_model"], trade["gpus"], trade["price"]) for trade in tape] == [
        ("H100-80GB", 2, "1.50")
    ]
    assert "tenant" not in str(tape) and "bid" not in str(tape)


def test_a_preview_says_what_the_engine_then_does_and_writes_nothing(
    ada: Caller, unit: str, market: Market
) -> None:
    head = PostgresStore().head()

    quote = ada.post("/api/v1/bids/preview", body(unit)).json()

    assert PostgresStore().head() == head
    assert (quote["matched"], quote["price"], quote["gpu_model"]) == (True, "1.50", "H100-80GB")
    assert (quote["cost"], quote["hold"]) == ("6.00", "8.00")
    ada.post("/api/v1/bids", body(unit))
    market.now = timezone.now()
    market.run()
    granted = next(iter(market.grants().values()))
    assert granted.price.nanos_per_gpu_hour == 1_500_000_000


def test_a_preview_of_a_patient_bid_takes_the_others_of_the_round_into_account(
    ada: Caller, unit: str, market: Market
) -> None:
    soon = (timezone.now() + timedelta(hours=2, minutes=10)).isoformat()
    first = body(unit, patience="patient", limit="5.00", deadline=soon)
    assert ada.post("/api/v1/bids", first).status_code == 201

    behind = ada.post("/api/v1/bids/preview", {**first, "limit": "4.00"}).json()
    before = ada.post("/api/v1/bids/preview", {**first, "limit": "6.00"}).json()

    assert (behind["matched"], behind["explanation"]["reason"]["constraint"]) == (False, "taken")
    assert (before["matched"], before["price"]) == (True, "5.00")


def test_the_funnel_of_a_waiting_bid(ada: Caller, unit: str, market: Market) -> None:
    placed = ada.post("/api/v1/bids", body(unit, query="", limit="1.00")).json()
    market.now = timezone.now()
    market.run()
    read()

    told = ada.get(f"/api/v1/bids/{placed['id']}").json()["reason"]
    explained = ada.get(f"/api/v1/bids/{placed['id']}/explain").json()

    assert told["constraint"] == "limit"
    funnel = {stage["constraint"]: stage["gpus"] for stage in explained["funnel"]}
    assert (funnel["listed"], funnel["memory"], funnel["taken"], funnel["limit"]) == (4, 4, 4, 0)
    assert explained["reason"]["constraint"] == "limit"
    assert explained["price_needed"] == "1.50"


def test_a_funnel_says_what_was_asked_of_owners_and_how_many_gpus_it_costs(
    ada: Caller, unit: str, market: Market
) -> None:
    placed = ada.post("/api/v1/bids", body(unit, query="grace>=1m notice>=90s")).json()
    market.now = timezone.now()
    market.run()
    read()

    told = ada.get(f"/api/v1/bids/{placed['id']}").json()["reason"]
    explained = ada.get(f"/api/v1/bids/{placed['id']}/explain").json()

    steps = {stage.pop("constraint"): stage for stage in explained["funnel"]}
    assert steps["listed"] == {"gpus": 4, "fewer": 0, "asked": ""}
    assert steps["notice"] == {"gpus": 4, "fewer": 0, "asked": "notice>=90s"}
    assert steps["reclaim"] == {"gpus": 4, "fewer": 0, "asked": ""}
    assert steps["grace"] == {"gpus": 0, "fewer": 4, "asked": "grace>=1m"}
    assert explained["reason"]["constraint"] == "grace"
    assert told["constraint"] == "host"


def test_a_bid_can_be_amended_at_the_version_seen_and_cancelled(ada: Caller, unit: str) -> None:
    placed = ada.post("/api/v1/bids", body(unit)).json()
    path = f"/api/v1/bids/{placed['id']}"
    read()

    amended = ada.ask("PATCH", path, {"limit": "3.00", "gpus": 1})
    read()
    shown = ada.get(path)
    stale = ada.delete(path, If_Match='"1"')
    cancelled = ada.delete(path, If_Match=shown["ETag"])
    again = ada.ask("PATCH", path, {"limit": "4.00"})

    assert amended.status_code == 200, amended.content
    assert (shown.json()["limit"], shown.json()["gpus"]) == ("3.00", 1)
    assert stale.status_code == 412
    assert cancelled.status_code == 200
    assert (again.status_code, again.json()["code"]) == (409, "bid-not-open")


def test_the_same_key_places_one_bid(ada: Caller, unit: str) -> None:
    answers = [ada.post("/api/v1/bids", body(unit), Idempotency_Key="one-bid-1") for _ in range(2)]
    read()

    assert answers[0].json() == answers[1].json()
    assert len(ada.get("/api/v1/bids").json()["data"]) == 1


def test_a_unit_without_the_money_gets_a_refusal_and_no_bid(ada: Caller) -> None:
    poor = with_unit(ada, overdraft_nanos=1_000)
    head = PostgresStore().head()

    answer = ada.post("/api/v1/bids", body(poor))

    assert (answer.status_code, answer.json()["code"]) == (409, "funds-insufficient")
    assert PostgresStore().head() == head


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"query": "gpu=H100 memory=40GiB"}, "comparison-unfit"),
        ({"query": "colour=red"}, "condition-unknown"),
        ({"service_class": "spot"}, "body-invalid"),
        ({"limit": 2.5}, "body-invalid"),
        ({"limit": "0.0000000001"}, "body-invalid"),
        ({"gpus": 2000}, "body-invalid"),
        ({"deadline": "2026-01-05T12:00:00"}, "body-invalid"),
        ({"deadline": "2020-01-05T12:00:00Z"}, "deadline-unreachable"),
        ({"workload": {"kind": "mining"}}, "workload-unknown"),
        ({"surprise": 1}, "body-invalid"),
    ],
)
def test_a_bid_that_cannot_be_meant_is_refused(
    ada: Caller, unit: str, wrong: dict[str, Any], code: str
) -> None:
    head = PostgresStore().head()

    answer = ada.post("/api/v1/bids", body(unit, **wrong))

    assert (answer.status_code, answer.json()["code"]) == (422, code), answer.content
    assert PostgresStore().head() == head


def test_the_service_class_must_be_said(ada: Caller, unit: str) -> None:
    asked = body(unit)
    del asked["service_class"]

    answer = ada.post("/api/v1/bids", asked)

    assert answer.json()["errors"][0]["pointer"] == "/service_class"


def test_nobody_bids_with_the_money_of_another_tenant(ada: Caller, eve: Caller, unit: str) -> None:
    answer = eve.post("/api/v1/bids", body(unit))

    assert (answer.status_code, answer.json()["code"]) == (404, "subscriber-unknown")


@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE", "EXPLAIN"])
def test_a_bid_is_unknown_to_every_other_tenant(
    ada: Caller, eve: Caller, unit: str, method: str
) -> None:
    placed = ada.post("/api/v1/bids", body(unit)).json()
    read()
    path = f"/api/v1/bids/{placed['id']}"

    if method == "EXPLAIN":
        answer = eve.get(f"{path}/explain")
    else:
        answer = eve.ask(method, path, {"limit": "9.00"} if method == "PATCH" else None)

    assert answer.status_code == 404
    assert eve.get("/api/v1/bids").json()["data"] == []


def test_the_market_at_a_glance(ada: Caller, unit: str, market: Market) -> None:
    ada.post("/api/v1/bids", body(unit))
    ada.post("/api/v1/bids", body(unit, query="gpu=A100", limit="1.25"))
    market.now = timezone.now()
    market.run()
    market.take_up()
    read()

    goods = {each["gpu_model"]: each for each in ada.get("/api/v1/market").json()["data"]}
    depth = {each["gpu_model"]: each for each in ada.get("/api/v1/market/depth").json()["data"]}
    hours = ada.get("/api/v1/market/prices?hours=2").json()["data"]

    assert (goods["H100-80GB"]["listed"], goods["H100-80GB"]["last_price"]) == (2, "1.50")
    assert (goods["A100-80GB"]["free"], goods["A100-80GB"]["lowest_floor"]) == (2, "2.50")
    assert (goods["A100-80GB"]["wanted"], goods["A100-80GB"]["highest_limit"]) == (2, "1.25")
    week = 2 * 7 * 86_400
    assert week - 7_200 < goods["A100-80GB"]["free_week_gpu_seconds"] <= week
    assert depth["A100-80GB"]["asks"] == [{"price": "2.50", "gpus": 2}]
    assert depth["A100-80GB"]["bids"] == [{"price": "1.25", "gpus": 2}]
    assert [(hour["mean_price"], hour["gpu_seconds"]) for hour in hours] == [("1.50", 14_400)]


def test_rounds_tell_how_many_got_nothing_and_why_but_not_who(
    ada: Caller, unit: str, market: Market
) -> None:
    placed = ada.post("/api/v1/bids", body(unit, limit="0.10")).json()
    market.now = timezone.now()
    market.run()
    read()

    listed = ada.get("/api/v1/rounds")

    only = listed.json()["data"][0]
    assert (only["grants"], only["unmatched"]) == (0, {"limit": 1})
    assert placed["id"] not in listed.content.decode()
    assert ada.get(f"/api/v1/rounds/{only['id']}").json() == only
    assert ada.get(f"/api/v1/rounds/{uuid4()}").status_code == 404
    assert ada.get(f"/api/v1/rounds/{uuid4()}/replay").status_code == 404
    replayed = ada.get(f"/api/v1/rounds/{only['id']}/replay")
    assert (replayed.json()["outcome"], replayed.json()["differences"]) == ("identical", [])
    assert placed["id"] not in replayed.content.decode()


def test_rows_equal_their_rebuild(market: Market) -> None:
    """I5, with bids that were filled, amended, cancelled and that wait."""
    market.bid("x", gpus=2, at=2)
    market.bid("y", gpus=2, at=1)
    market.bid("z", gpus=1, at=3)
    market.run()
    market.amend("y", at="1.20", deadline=market.now + timedelta(hours=9))
    market.cancel("z")
    market.run()
    granted = market.grant("x")
    assert granted is not None
    filled = BidFilled(bid_id=granted.bid_id, lease_id=granted.lease_id, at=market.now)
    market.put(f"bid-{granted.bid_id}", filled)
    read()

    for projection in (*bids.PROJECTIONS, *rounds.PROJECTIONS):
        live = fingerprint(projection.tables)
        rebuild(market.store, projection)
        assert fingerprint(projection.tables) == live
