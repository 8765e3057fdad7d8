"""`offpeak wallet`: what is said is what is asked, and its exit codes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.marketplace.cli.pretending import BID, Market, offpeak

WALLET: dict[str, Any] = {
    "account_id": BID, "title": "Astro", "kind": "prepaid", "currency": "USD", "total": "50.00",
    "held": "10.00", "available": "40.00", "short": "0.000000000", "refundable": "40.00",
    "automatic": {"below": "20.00", "amount": "100.00", "most_per_day": "300.00", "method": "pm_1"},
    "ended_because": "", "takes_cards": True, "said": "",
}  # fmt: skip
TOP_UP: dict[str, Any] = {
    "payment_id": BID, "state": "open", "amount": "100.00", "currency": "USD", "reason": "",
    "url": "https://pay.example/1",
}  # fmt: skip


@pytest.fixture
def mine(market: Market) -> Market:
    """A market in which the caller sees one wallet."""
    market.answers["GET accounts"] = 200, {"data": [WALLET], "next": None}
    market.answers[f"GET accounts/{BID}/wallet"] = 200, WALLET
    market.answers[f"POST accounts/{BID}/top-ups"] = 201, {"payment_id": BID, "position": 1}
    return market


def test_the_one_wallet_is_shown_without_naming_it(mine: Market) -> None:
    done = offpeak(mine, "wallet", "show")

    assert done.returncode == 0, done.stderr
    assert "40.00 USD" in done.stdout and "below 20.00 USD it adds 100.00 USD" in done.stdout
    assert "below what it may be" not in done.stdout
    assert json.loads(offpeak(mine, "wallet", "show", "-o", "json").stdout) == WALLET


def test_where_there_are_several_it_has_to_be_said_which(mine: Market) -> None:
    other = {**WALLET, "title": "Bio"}
    mine.answers["GET accounts"] = 200, {"data": [WALLET, other], "next": None}

    done = offpeak(mine, "wallet", "show")

    assert done.returncode == 2 and "Bio" in done.stderr


def test_a_top_up_says_where_it_is_paid(mine: Market) -> None:
    mine.answers[f"GET accounts/{BID}/top-ups/{BID}"] = 200, TOP_UP

    done = offpeak(mine, "wallet", "top-up", "100")

    assert done.returncode == 0, done.stderr
    assert "https://pay.example/1" in done.stdout
    assert {"amount": "100", "currency": "USD"} in [body for _, _, body in mine.heard]


@pytest.mark.parametrize(("state", "code"), [("succeeded", 0), ("failed", 4)])
def test_a_saved_card_that_is_declined_is_an_exit_code(mine: Market, state: str, code: int) -> None:
    over = {**TOP_UP, "state": state, "url": "", "reason": "Your card was declined."}
    mine.answers[f"GET accounts/{BID}/top-ups/{BID}"] = 200, over

    done = offpeak(mine, "wallet", "top-up", "100", "--method", "pm_1")

    assert done.returncode == code, done.stderr
    assert ("Your card was declined." in done.stderr) is (code == 4)


def test_a_rule_is_set_whole_or_ended(mine: Market) -> None:
    place = f"accounts/{BID}/automatic-top-up"
    mine.answers[f"PUT {place}"] = mine.answers[f"DELETE {place}"] = 200, {"position": 1}

    assert offpeak(mine, "wallet", "auto").returncode == 2
    assert "--method" in offpeak(mine, "wallet", "auto", "--below", "20").stderr
    terms = ("--below", "20", "--amount", "100", "--most-per-day", "300", "--method", "pm_1")
    assert offpeak(mine, "wallet", "auto", *terms).returncode == 0
    assert offpeak(mine, "wallet", "auto", *terms, "--off").returncode == 2
    assert offpeak(mine, "wallet", "auto", "--off").returncode == 0

    [said] = [body for asked, _, body in mine.heard if asked == f"PUT {place}"]
    assert said == {"below": "20", "amount": "100", "most_per_day": "300", "method": "pm_1"}


def test_a_refund_is_asked_for_and_approved_by_its_id(mine: Market) -> None:
    place = f"accounts/{BID}/refunds"
    mine.answers[f"POST {place}"] = 201, {"refund_id": BID, "position": 1}
    own = {"code": "own-refund", "detail": "Nobody approves their own refund."}
    mine.answers[f"POST {place}/{BID}/approve"] = 403, own

    asked = offpeak(mine, "wallet", "refund", "40", "--reason", "not needed")
    approved = offpeak(mine, "wallet", "approve", BID)

    assert asked.returncode == 0 and BID in asked.stderr
    assert approved.returncode == 5 and "Nobody approves" in approved.stderr


def test_saved_cards_are_listed_and_removed(mine: Market) -> None:
    card = {"method": "pm_1", "label": "Visa ending in 4242, 12/2030"}
    mine.answers[f"GET accounts/{BID}/payment-methods"] = 200, {"data": [card], "next": None}
    mine.answers[f"DELETE accounts/{BID}/payment-methods/pm_1"] = 200, {"position": 1}

    assert "Visa ending in 4242" in offpeak(mine, "wallet", "methods").stdout
    assert offpeak(mine, "wallet", "methods", "--remove", "pm_1").returncode == 0


def test_what_is_owed_is_listed_paid_and_written_off(market: Market) -> None:
    row = {
        "number": "INV-2026-0001", "state": "overdue", "due_at": "2026-12-01T00:00:00Z",
        "left": "1.73", "total": "1.73", "currency": "USD", "url": "", "paid_by": "",
    }  # fmt: skip
    place = "invoices/INV-2026-0001"
    market.answers["GET receivables"] = 200, {"data": [row], "next": None}
    market.answers[f"POST {place}/payments"] = 201, {"position": 1}
    market.answers[f"POST {place}/write-off"] = 201, {"write_off_id": BID, "position": 1}
    own = {"code": "second-person-needed", "detail": "Whoever asked cannot approve it as well."}
    market.answers[f"POST {place}/write-off/approve"] = 403, own

    assert "1.73 USD" in offpeak(market, "invoices", "owed", "--state", "overdue").stdout
    words = ("invoices", "paid", "INV-2026-0001", "--reference", "TX 1")
    assert offpeak(market, *words).returncode == 0
    assert {"reference": "TX 1"} in [body for _, _, body in market.heard]
    give_up = ("invoices", "write-off", "INV-2026-0001")
    assert offpeak(market, *give_up).returncode == 2
    assert offpeak(market, *give_up, "--reason", "insolvent").returncode == 0
    assert offpeak(market, *give_up, "--approve").returncode == 5
