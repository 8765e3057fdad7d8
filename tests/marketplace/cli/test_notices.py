"""`offpeak notices` and `offpeak webhooks`: what is asked of the market, and what is shown."""

from __future__ import annotations

from typing import Any

from tests.marketplace.cli.pretending import Market, offpeak

NOTICE = "0ff9ea40-0000-4000-8000-00000000000a"
WEBHOOK = "0ff9ea40-0000-4000-8000-00000000000b"


def page(*entries: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    return 200, {"data": list(entries), "next": None}


def test_what_one_was_told_is_listed(market: Market) -> None:
    told = {"notice_id": NOTICE, "topic": "money", "title": "It runs low", "read_at": None}
    market.answers["GET notices"] = page({**told, "at": "2026-01-05T12:00:00Z"})
    done = offpeak(market, "notices", "list", "--unread", "--topic", "money")
    assert done.returncode == 0, done.stderr
    assert "It runs low" in done.stdout


def test_notices_are_marked_as_read(market: Market) -> None:
    market.answers["POST notices/read"] = 200, {"unread": 2}
    done = offpeak(market, "notices", "read", NOTICE)
    assert "2 are left unread" in done.stderr
    offpeak(market, "notices", "read")
    assert [body for _, _, body in market.heard] == [{"notice_ids": [NOTICE]}, {}]


def test_the_secret_of_a_webhook_is_shown_once(market: Market) -> None:
    market.answers["POST webhooks"] = 201, {"webhook_id": WEBHOOK, "secret": "whsec_abc"}
    done = offpeak(market, "webhooks", "add", "https://hooks.example/x", "--topic", "money")
    assert "whsec_abc" in done.stdout
    assert market.heard[-1][2] == {"url": "https://hooks.example/x", "topics": ["money"]}


def test_the_log_of_a_webhook_counts_attempts(market: Market) -> None:
    market.answers[f"GET webhooks/{WEBHOOK}/deliveries"] = page(
        {
            "delivery_id": NOTICE,
            "created_at": "2026-01-05T12:00:00Z",
            "title": "It runs low",
            "state": "through",
            "attempts": [{}, {}, {}],
        }
    )
    done = offpeak(market, "webhooks", "log", WEBHOOK)
    assert "through" in done.stdout and "3" in done.stdout
