"""How long a bid waits, with how little it makes do and what it may cost, over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from ledger.domain.ids import LeaseId, TenantId
from marketplace.domain.facts.events import Continues
from tests.access.conftest import Caller
from tests.marketplace.support.market import Market, named
from tests.marketplace.support.over_http import ada, body, market, read, unit

__all__ = ["ada", "market", "unit"]

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.marketplace.support.routes")]


def test_the_terms_are_shown_as_they_were_asked(ada: Caller, unit: str) -> None:
    until = (datetime.now(UTC) + timedelta(hours=3)).replace(microsecond=0)
    moment = until.isoformat().replace("+00:00", "Z")
    asked = {
        "gpus": 4,
        "gpus_min": 1,
        "duration_min_seconds": 600,
        "budget": "9.50",
        "good_till": moment,
        "auto_extend_until": moment,
        "seeks": "soonest",
    }

    placed = ada.post("/api/v1/bids", body(unit, **asked))
    read()
    shown = ada.get(f"/api/v1/bids/{placed.json()['id']}").json()

    assert placed.status_code == 201, placed.content
    assert {name: shown[name] for name in asked} == asked


def test_work_that_may_be_paused_is_resumed_too(ada: Caller, unit: str) -> None:
    asked = body(unit, pausable=True)
    asked["workload"] = asked["workload"] | {"checkpoint_seconds": 600}
    placed = ada.post("/api/v1/bids", asked)
    read()
    shown = ada.get(f"/api/v1/bids/{placed.json()['id']}").json()

    assert placed.status_code == 201, placed.content
    names = ("pausable", "resume", "pauses", "done_seconds")
    assert [shown[name] for name in names] == [True, True, 0, 0]


def test_without_them_a_bid_is_what_it_was(ada: Caller, unit: str) -> None:
    placed = ada.post("/api/v1/bids", body(unit))
    read()
    shown = ada.get(f"/api/v1/bids/{placed.json()['id']}").json()

    named = ("gpus_min", "duration_min_seconds", "budget", "auto_extend_until")
    assert [shown[name] for name in named] == [None] * 4
    assert (shown["good_till"], shown["ended_because"]) == ("deadline", "")


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"good_till": "for ever"}, "good-till-unreadable"),
        ({"good_till": "fill-or-kill", "gpus_min": 1}, "fill-or-kill-is-whole"),
        ({"good_till": "fill-or-kill", "patience": "patient"}, "never-waits"),
        ({"gpus_min": 3}, "minimum-out-of-bounds"),
        ({"query": "driver>=new"}, "value-unreadable"),
        ({"seeks": "soonest", "patience": "patient"}, "soonest-is-at-once"),
        ({"pausable": True}, "pausable-saves-nothing"),
    ],
)
def test_terms_that_cannot_be_are_refused(
    ada: Caller, unit: str, changed: dict[str, object], code: str
) -> None:
    answer = ada.post("/api/v1/bids", body(unit, **changed))

    assert answer.status_code == 422
    assert answer.json()["code"] == code


def test_a_preview_of_a_bid_that_makes_do_with_less_says_how_much_it_gets(
    ada: Caller, unit: str, market: Market
) -> None:
    quote = ada.post("/api/v1/bids/preview", body(unit, gpus=8, gpus_min=1, budget="20.00")).json()

    assert (quote["matched"], quote["gpus"], quote["price"]) == (True, 2, "1.50")
    assert (quote["cost"], quote["hold"]) == ("6.00", "20.00")
    assert quote["explanation"]["can_be_placed"]


def test_a_preview_names_the_smallest_that_fits_the_workload(
    ada: Caller, unit: str, market: Market
) -> None:
    told = ada.post("/api/v1/bids/preview", body(unit, gpus=1)).json()["workload"]

    assert (told["kind"], told["memory_mib"]) == ("inference-7b", 18 * 1024)
    assert "PagedAttention" in told["because"]
    assert told["slices"][0]["profile"] == "1g.20gb"
    assert all(each["memory_mib"] >= 18 * 1024 for each in told["slices"])


def test_a_bid_that_never_waits_ends_at_once_and_says_why(
    ada: Caller, unit: str, market: Market
) -> None:
    late = (timezone.now() + timedelta(hours=2, minutes=1)).isoformat()
    asked = body(unit, gpus=3, good_till="fill-or-kill", deadline=late)
    placed = ada.post("/api/v1/bids", asked).json()
    market.now = timezone.now()

    market.run()
    read()
    shown = ada.get(f"/api/v1/bids/{placed['id']}").json()

    assert (shown["state"], shown["ended_because"]) == ("expired", "not-at-once")


def test_a_chain_is_shown_and_ended(ada: Caller, unit: str) -> None:
    until = (datetime.now(UTC) + timedelta(days=9)).replace(microsecond=0)
    moment = until.isoformat().replace("+00:00", "Z")
    asked = body(unit, repeat_until=moment, resume=True, limit="0.01")
    bid_id = ada.post("/api/v1/bids", asked).json()["id"]
    read()

    chain = ada.get(f"/api/v1/bids/{bid_id}/chain").json()
    ended = ada.delete(f"/api/v1/bids/{bid_id}/chain")
    read()
    shown = ada.get(f"/api/v1/bids/{bid_id}").json()

    assert [each["id"] for each in chain["data"]] == [bid_id]
    first = chain["data"][0]
    assert (first["repeat_until"], first["resume"]) == (moment, True)
    assert first["chain"] == {
        "first_id": bid_id,
        "number": 1,
        "continues_id": None,
        "resumes_lease_id": None,
        "ended_because": None,
    }
    assert ended.status_code == 200
    assert (shown["state"], shown["chain"]["ended_because"]) == ("cancelled", "consumer")


def test_a_bid_that_stands_alone_has_no_chain_to_end(ada: Caller, unit: str) -> None:
    bid_id = ada.post("/api/v1/bids", body(unit, limit="0.01")).json()["id"]
    read()

    answer = ada.delete(f"/api/v1/bids/{bid_id}/chain")

    assert (answer.status_code, answer.json()["code"]) == (409, "bid-stands-alone")
    assert ada.get(f"/api/v1/bids/{bid_id}").json()["chain"] is None


def test_a_chain_lists_its_bids_first_to_last(ada: Caller, unit: str, market: Market) -> None:
    tenant = TenantId(ada.tenant_id)
    first = market.bid("first", tenant=tenant, at="0.01", resume=True)
    lease_id = LeaseId(named("lease"))
    link = Continues(first_id=first, bid_id=first, number=2, lease_id=lease_id, resumes=True)
    second = market.bid("second", tenant=tenant, at="0.01", resume=True, continues=link)
    read()

    chain = ada.get(f"/api/v1/bids/{second}/chain").json()["data"]

    assert [each["id"] for each in chain] == [str(first), str(second)]
    assert chain[1]["chain"] == {
        "first_id": str(first),
        "number": 2,
        "continues_id": str(first),
        "resumes_lease_id": str(lease_id),
        "ended_because": None,
    }
