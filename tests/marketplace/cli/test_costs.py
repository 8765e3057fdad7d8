"""`offpeak costs`, `owed` and `export-plans`: what is asked, and how it is shown."""

from __future__ import annotations

from tests.marketplace.cli.pretending import BID, Market, offpeak


def test_costs_are_told_by_name_and_nothing_is_said_for_none(market: Market) -> None:
    part = {"then_key": "", "then_title": "", "currency": "USD", "entries": 5}
    market.answers["GET costs"] = (
        200,
        {
            "data": [
                part
                | {"key": BID, "title": "Lab", "cost": "16.00", "gpu_milliseconds": 28_800_000},
                part | {"key": "", "title": "", "cost": "2.00", "gpu_milliseconds": 0},
            ],
            "next": None,
        },
    )

    done = offpeak(market, "costs", "--period", "2026-01", "--only", "project=vision")

    assert done.returncode == 0, done.stderr
    assert "Lab" in done.stdout and "16.00 USD" in done.stdout and BID not in done.stdout
    assert "(none)" in done.stdout and " 8 " in done.stdout


def test_what_costs_are_narrowed_by_is_said_with_its_value(market: Market) -> None:
    done = offpeak(market, "costs", "--only", "project")

    assert done.returncode == 2 and "project=llm-eval" in done.stderr
    assert market.heard == []


def test_the_matrix_and_what_is_left_of_it(market: Market) -> None:
    cell = {
        "tenant": "Cirrus", "unit": "Lab", "other": "", "currency": "USD", "gross": "3.00",
        "against": "1.00", "left": "2.00",
    }  # fmt: skip
    net = {"debtor": "Cirrus", "creditor": "Aurora", "currency": "USD", "amount": "2.00"}
    market.answers["GET owed"] = 200, {"data": [cell], "next": None}
    market.answers["GET owed/netted"] = 200, {"data": [net], "next": None}

    shown = offpeak(market, "owed").stdout
    assert "Lab, Cirrus" in shown and "(nobody yet)" in shown and "3.00 USD" in shown
    assert "Aurora" in offpeak(market, "owed", "--netted").stdout


def test_a_plan_of_exports_is_made_listed_and_ended(market: Market) -> None:
    plan = {
        "plan_id": BID, "every": "day", "formats": ["focus", "gl"], "folder": "lake", "due": "",
        "words": "The disk is full.", "brought_at": None,
    }  # fmt: skip
    market.answers["POST exports/plans"] = 201, {"plan_id": BID, "position": 1}
    market.answers["GET exports/plans"] = 200, {"data": [plan], "next": None}
    market.answers[f"DELETE exports/plans/{BID}"] = 200, {"position": 2}

    assert BID in offpeak(market, "export-plans", "make", "focus", "gl").stderr
    assert market.heard[-1][2] == {"every": "day", "formats": ["focus", "gl"], "folder": "lake"}
    shown = offpeak(market, "export-plans", "list").stdout
    assert "focus, gl" in shown and "The disk is full." in shown
    assert "Ended." in offpeak(market, "export-plans", "end", BID).stderr


def test_spending_is_told_by_name_with_what_of_it_was_for_volumes(market: Market) -> None:
    unit = {
        "key": BID, "title": "Lab", "currency": "USD", "spent": "12.00", "storage": "1.50",
        "gpu_milliseconds": 9_000_000, "leases": 2,
    }  # fmt: skip
    market.answers["GET spending"] = 200, {"data": [unit], "next": None}

    done = offpeak(market, "spend", "--gpu", "H100")

    assert done.returncode == 0, done.stderr
    for shown in ("Lab", "12.00 USD", "1.50 USD", "2.5"):
        assert shown in done.stdout
    assert BID not in done.stdout


def test_work_that_waits_names_its_account_and_the_budget_without_room(market: Market) -> None:
    wait = {
        "bid_id": BID, "lease_id": None, "account": "Language models", "needs": "2.00",
        "missing": "0.00", "currency": "USD", "since": "2026-12-01T12:00:00Z",
        "until": "2026-12-08T12:00:00Z", "budget": "Evaluation", "opens_at": "2027-01-01T00:00:00Z",
    }  # fmt: skip
    market.answers["GET money-waits"] = 200, {"data": [wait], "next": None}

    shown = offpeak(market, "accounts", "waiting").stdout

    assert "Language models" in shown and "Evaluation" in shown and "01 Jan" in shown
