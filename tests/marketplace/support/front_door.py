"""Requests that place bids, sent to the front of the web process at the same moment."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any
from uuid import UUID, uuid4

import pytest

from config.web.front import PATH, Front
from ledger.eventstore import default_store
from ledger.following import names_of
from ledger.rest import gathering
from ledger.rest.asked import Asked
from marketplace.api.many_bids import place_together
from marketplace.domain.facts.events import BidPlaced
from tests.access.world import Party, founded

ASKED: dict[str, Any] = {
    "gpus": 1,
    "duration_seconds": 3_600,
    "limit": "1",
    "service_class": "on-demand",
    "workload": {"kind": "other"},
}
OWN = ("x-request-id", "ratelimit-remaining", "ratelimit-reset", "content-length", "vary")
PATIENCE_SECONDS = 60.0


@dataclass
class Answered:
    """What came back, and whether it went the short way."""

    status: int
    headers: dict[str, str]
    body: Any
    short: bool


@pytest.fixture
def party(committed_store: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Party]:
    """An organisation with a thousand dollars; threads end with the test."""
    monkeypatch.setattr(gathering, "END_SECONDS", 0.05)
    monkeypatch.setattr(gathering, "GATHER_SECONDS", 0.2)
    yield founded("bidders")
    for thread in [each for each in threading.enumerate() if each.name == "bids"]:
        thread.join(PATIENCE_SECONDS)


def asked(party: Party, **fields: Any) -> dict[str, Any]:
    return {**ASKED, "subscriber_id": str(party.ids["subscriber_id"]), **fields}


def together(
    party: Party, bodies: Sequence[Any], token: str | None = None, **headers: str
) -> list[Answered]:
    """Send requests to the front at the same moment."""
    ordinary: list[int] = []

    async def other(scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        ordinary.append(len(body))
        await send({"type": "http.response.start", "status": 299, "headers": []})
        await send({"type": "http.response.body", "body": b'"ordinary"'})

    front = Front(other)

    async def one(body: Any) -> Answered:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        given = {
            "host": "localhost",
            "content-type": "application/json",
            "authorization": f"Bearer {token or party.caller.token}",
            **{name.replace("_", "-").lower(): value for name, value in headers.items()},
        }
        scope = {
            "type": "http",
            "method": "POST",
            "path": PATH,
            "query_string": b"",
            "scheme": "http",
            "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        }
        halves = [data[: len(data) // 2], data[len(data) // 2 :]]
        incoming = [
            {"type": "http.request", "body": halves[0], "more_body": True},
            {"type": "http.request", "body": halves[1], "more_body": False},
        ]
        sent: list[Any] = []

        async def receive() -> Any:
            return incoming.pop(0)

        async def send(message: Any) -> None:
            sent.append(message)

        await front(scope, receive, send)
        names = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
        content = json.loads(sent[1]["body"])
        return Answered(sent[0]["status"], names, content, sent[0]["status"] != 299)

    async def all_of_them() -> list[Answered]:
        return list(await asyncio.gather(*(one(body) for body in bodies)))

    return asyncio.run(all_of_them())


def at_once(party: Party, bodies: Sequence[Any], keys: Sequence[str | None] = ()) -> list[Answered]:
    """Answer requests in one turn."""
    requests = [
        Asked(
            party.caller.token,
            body if isinstance(body, bytes) else json.dumps(body).encode(),
            PATH,
            uuid4(),
            key,
        )
        for body, key in zip_longest(bodies, keys)
    ]
    return [
        Answered(299, {}, "ordinary", short=False)
        if each is None
        else Answered(
            each.status,
            {name.lower(): value for name, value in each.headers.items()},
            json.loads(each.content),
            short=True,
        )
        for each in place_together(requests)
    ]


def placed() -> list[UUID]:
    events = default_store().read_all(only=names_of(BidPlaced)).events
    return [each.event.bid_id for each in events if isinstance(each.event, BidPlaced)]
