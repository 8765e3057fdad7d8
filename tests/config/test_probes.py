"""Probes of the process are answered beside its threads."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

from config.probes import Probes


async def held_up(scope: MutableMapping[str, Any], receive: object, send: object) -> None:
    """Never answer, as an application whose threads all wait for the database."""
    await asyncio.Event().wait()


def asked(
    path: str, *, method: str = "GET", seconds: float = 5.0
) -> list[MutableMapping[str, Any]]:
    sent: list[MutableMapping[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {"type": "http", "path": path, "method": method, "headers": [(b"host", b"10.1.2.3")]}
    asyncio.run(asyncio.wait_for(Probes(held_up)(scope, receive, send), seconds))
    return sent


def test_a_process_whose_threads_are_all_held_up_says_that_it_is_up() -> None:
    start, body = asked("/healthz")

    assert start["status"] == 200
    assert body["body"] == b'{"status": "up"}'


def test_a_probe_may_ask_for_the_head_alone() -> None:
    start, body = asked("/healthz", method="HEAD")

    assert start["status"] == 200
    assert body["body"] == b""
