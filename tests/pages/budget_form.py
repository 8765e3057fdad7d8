"""The form of a budget, filled in and sent."""

from __future__ import annotations

from uuid import uuid4

from django.test import Client

from tests.marketplace.support.spent import Spender

BUDGET = {
    "title": "Language models",
    "scope": "tenant",
    "amount": "10.00",
    "period": "month",
    "roll_over": "none",
    "unused": "0",
    "notify_first": "50",
    "notify_second": "80",
    "full": "100",
    "action": "block",
    "zone": "Europe/Berlin",
}


def made(spender: Spender, finance: Client, **changed: str) -> str:
    """Send the form; return where the budget is."""
    answer = finance.post("/budgets", {**BUDGET, "token": str(uuid4()), **changed})
    assert answer.status_code == 302, answer.content.decode()
    spender.look()
    return answer["Location"].split("?")[0]
