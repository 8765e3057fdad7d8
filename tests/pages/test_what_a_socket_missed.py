"""A page is rendered before its socket opens, and may lose it: what it missed is told first."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from asgiref.testing import ApplicationCommunicator

from config.site.live import relay
from config.site.live.relay import Fragment, Hub, MarketConsumer, missed
from config.site.live.tape import PROJECTIONS
from ledger.domain.event import Event
from ledger.domain.ids import OfferId
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import NO_STREAM, START, EventStore, NewEvent, Position
from ledger.following import follow_projections
from listings.domain.events import OfferWithdrawn
from marketplace.domain.facts.events import RoundCleared
from tests.conftest import NOON, SOMEBODY
from tests.pages.tape import WAIT_SECONDS, SignedIn, granted

LEASED = "Leased 2 \N{MULTIPLICATION SIGN} H100-80GB, 6 h"


class Telling(Hub):
    """A hub that says when it has told something."""

    def __init__(self) -> None:
        super().__init__()
        self.told = threading.Event()

    def publish(self, fragment: Fragment) -> None:
        super().publish(fragment)
        self.told.set()


class Listening:
    """A page that shows the market up to a position, and hears what comes by its socket."""

    def __init__(self, after: Position | str, tail: Hub | None = None) -> None:

        class Socket(MarketConsumer):
            hub = tail or Hub()  # its tail follows the store of this test

        connect: Any = ApplicationCommunicator  # asgiref's testing tools have no types
        scope = {
            "type": "websocket",
            "path": "/ws/market",
            "query_string": f"after={after}".encode(),
            "user": SignedIn(),
        }
        self._socket = connect(Socket.as_asgi(), scope)

    async def __aenter__(self) -> Listening:
        await self._socket.send_input({"type": "websocket.connect"})
        assert (await self._socket.receive_output(WAIT_SECONDS))["type"] == "websocket.accept"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._socket.send_input({"type": "websocket.disconnect", "code": 1000})
        await self._socket.wait(WAIT_SECONDS)

    async def hears(self) -> str:
        heard: str = (await self._socket.receive_output(WAIT_SECONDS))["text"]
        return heard


def put(store: MemoryStore, event: Event, number: int) -> None:
    new = NewEvent(UUID(int=number), event)
    store.append(f"stream-{number}", [new], expected=NO_STREAM, by=SOMEBODY)


def cleared(bids: int) -> RoundCleared:
    return RoundCleared(
        market="main", round_id=UUID(int=1), lane="round", through=1, bids=bids, offers=9, grants=1,
        gpus=1, unmatched=(), price_low=0, price_high=0, rule="1", at=NOON,
    )  # fmt: skip


def test_what_happens_between_a_page_and_its_socket_is_told_first(installed: MemoryStore) -> None:
    put(installed, cleared(3), 1)
    rendered = installed.head()
    put(installed, granted(), 2)

    async def listen() -> tuple[str, str]:
        async with Listening(rendered) as page:
            first = await page.hears()
            put(installed, cleared(5), 3)
            return first, await page.hears()

    first, then = asyncio.run(listen())

    assert LEASED in first and "of 3 bids" not in first
    assert "of 5 bids" in then and LEASED not in then


def test_what_comes_while_it_is_read_what_was_missed_is_told_once(
    installed: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The socket has joined by then, so it hears of that from its tail too."""

    hub = Telling()

    def late(store: EventStore, after: Position) -> Fragment:
        put(installed, granted(), 2)
        assert hub.told.wait(WAIT_SECONDS)
        return missed(store, after)

    monkeypatch.setattr(relay, "missed", late)

    async def listen() -> tuple[str, str]:
        async with Listening(START, hub) as page:
            first = await page.hears()
            put(installed, cleared(5), 3)
            return first, await page.hears()

    first, then = asyncio.run(listen())

    assert LEASED in first
    assert LEASED not in then


@pytest.mark.django_db
def test_a_page_that_missed_much_gets_the_latest_lines_in_place_of_its_own(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "MISSED_MAX", 1)
    for number in (1, 2, 3):
        put(store, cleared(number), number)
    follow_projections(store, PROJECTIONS)

    told = missed(store, START)

    assert 'hx-swap-oob="innerHTML"' in told.text
    assert all(f"of {number} bids" in told.text for number in (1, 2, 3))
    assert told.position == store.head()


@pytest.mark.parametrize("after", ["", "yesterday", "-1", 10**17])
def test_a_position_that_cannot_be_read_is_no_fault(
    installed: MemoryStore, after: str | int
) -> None:
    async def listen() -> str:
        async with Listening(str(after)) as page:
            put(installed, granted(), 1)
            return await page.hears()

    assert LEASED in asyncio.run(listen())


def test_nothing_is_told_before_the_rows_of_pages_show_it(
    installed: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page asks at once for what changed; were its rows behind, it would ask no more."""
    waited: list[tuple[list[str], Position, bool]] = []

    async def listen() -> Fragment:
        hub = Hub(["marketplace.bids"])
        queue = await hub.join()

        def wait(names: Sequence[str], position: Position, *, timeout_seconds: float) -> bool:
            waited.append((list(names), position, queue.empty()))
            return True

        monkeypatch.setattr(relay, "wait_until_read", wait)
        put(installed, OfferWithdrawn(offer_id=OfferId(UUID(int=9)), at=NOON), 1)
        put(installed, granted(), 2)
        told = await asyncio.wait_for(queue.get(), WAIT_SECONDS)
        while told.position < installed.head():
            told = await asyncio.wait_for(queue.get(), WAIT_SECONDS)
        hub.leave(queue)
        return told

    monkeypatch.setattr(relay, "known_now", lambda _: None)
    told = asyncio.run(listen())

    assert LEASED in told.text
    assert waited[-1][:2] == (["marketplace.bids"], installed.head())
    assert waited[0][2], "it waits first"
