"""Everybody may see what happens on the market as it happens, and nobody sees whose it is."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from asgiref.testing import ApplicationCommunicator
from django.contrib.auth.models import AnonymousUser

from config.models import TapeSubjectRow
from config.site.live.relay import QUEUE_MAX, Fragment, Hub, MarketConsumer, _put
from config.site.live.tape import PROJECTIONS, latest, line_of, path_of
from ledger.domain.event import Event
from ledger.domain.ids import LeaseId, OfferId, TenantId
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import NO_STREAM, NewEvent, Position
from ledger.following import follow_projections
from listings.domain.events import OfferWithdrawn
from marketplace.domain.facts.events import (
    LeaseClosed,
    ReclaimRequested,
    RoundCleared,
)
from tests.conftest import NOON, SOMEBODY
from tests.pages.tape import WAIT_SECONDS, granted


def put(store: MemoryStore, event: Event, stream: str = "market-main") -> None:
    store.append(stream, [NewEvent(UUID(int=7), event)], expected=NO_STREAM, by=SOMEBODY)


def test_a_grant_is_a_trade_without_names() -> None:
    line = line_of(granted())

    assert line is not None
    assert line.text == "Leased 2 \N{MULTIPLICATION SIGN} H100-80GB, 6 h"
    assert line.is_trade
    assert "GPU-1" not in line.text


def test_a_line_says_where_to_read_on() -> None:
    line = line_of(granted())

    assert line is not None and line.path == f"/rounds/{UUID(int=0xA6)}"
    assert path_of(None, "A100 80GB & more") == "/?gpu=A100+80GB+%26+more"
    assert path_of(None, "") == ""


def test_the_end_of_a_lease_says_which_gpus_it_had() -> None:
    told = line_of(granted())
    assert told is not None and told.subject is not None
    subject = told.subject
    closed = LeaseClosed(
        lease_id=granted().lease_id,
        market="main",
        reason=301,
        failed=False,
        compensation=None,
        compensation_from=None,
        at=NOON,
    )

    line = line_of(closed, {subject.key: subject}.get)
    alone = line_of(closed)

    assert line is not None and line.text.startswith("2 \N{MULTIPLICATION SIGN} H100-80GB: ended.")
    assert line.gpu_model == "H100-80GB" and str(closed.lease_id) not in line.text + line.path
    assert alone is not None and alone.text.startswith("A lease ended.") and alone.path == ""


@pytest.mark.django_db
def test_the_rows_tell_later_lines_what_they_are_about() -> None:
    store = MemoryStore()
    owner, offer_id = TenantId(UUID(int=0xA3)), OfferId(UUID(int=0xA1))
    reclaim = ReclaimRequested(
        lease_id=granted().lease_id, owner_id=owner, stop_at=NOON + timedelta(minutes=10), at=NOON
    )
    withdrawn = OfferWithdrawn(offer_id=offer_id, at=NOON)
    for number, event in enumerate((granted(), withdrawn, reclaim)):
        new = NewEvent(UUID(int=70 + number), event)
        store.append(f"stream-{number}", [new], expected=NO_STREAM, by=SOMEBODY)

    follow_projections(store, PROJECTIONS)

    shown = [row.text for row in latest()]
    assert shown[0].endswith("H100-80GB: an owner takes GPUs back in 10 min")
    assert shown[1] == "An offer was withdrawn"  # nothing told of it before
    assert shown[2].startswith("Leased 2")
    assert TapeSubjectRow.objects.get().pk == granted().lease_id


def test_a_round_without_bids_is_not_told() -> None:
    quiet = RoundCleared(
        market="main",
        round_id=UUID(int=1),
        lane="round",
        through=1,
        bids=0,
        offers=9,
        grants=0,
        gpus=0,
        unmatched=(),
        price_low=0,
        price_high=0,
        rule="1",
        at=NOON,
    )

    assert line_of(quiet) is None


def test_the_end_of_a_lease_says_why() -> None:
    closed = LeaseClosed(
        lease_id=LeaseId(UUID(int=1)),
        market="main",
        reason=101,
        failed=False,
        compensation=None,
        compensation_from=None,
        at=NOON,
    )

    line = line_of(closed)

    assert line is not None
    assert line.text == "A lease ended. The work finished by itself."


def test_what_is_recorded_reaches_every_page_once(installed: MemoryStore) -> None:
    async def listen() -> tuple[str, str, bool]:
        hub = Hub()
        one, other = await hub.join(), await hub.join()
        # Once: whoever has joined misses nothing that happens from then on.
        installed.append(
            "market-1", [NewEvent(UUID(int=1), granted())], expected=NO_STREAM, by=SOMEBODY
        )
        first = await asyncio.wait_for(one.get(), WAIT_SECONDS)
        second = await asyncio.wait_for(other.get(), WAIT_SECONDS)
        hub.leave(one)
        hub.leave(other)
        return first.text, second.text, first is second

    first, second, same_text = asyncio.run(listen())

    assert 'id="tape" hx-swap-oob="afterbegin"' in first
    assert "Leased 2 \N{MULTIPLICATION SIGN} H100-80GB, 6 h" in first
    assert '<price-tick data-series="H100-80GB"' in first
    assert 'data-p="2.14"' in first
    assert same_text, "rendered once, not once for each page"
    assert second == first


def test_a_page_that_cannot_keep_up_loses_the_oldest() -> None:
    async def overflow() -> list[str]:
        queue: asyncio.Queue[Fragment] = asyncio.Queue(QUEUE_MAX)
        for number in range(QUEUE_MAX + 3):
            _put(queue, Fragment(str(number), Position(number)))
        return [queue.get_nowait().text for _ in range(QUEUE_MAX)]

    kept = asyncio.run(overflow())

    assert kept[0] == "3"
    assert kept[-1] == str(QUEUE_MAX + 2)


def test_a_guest_is_shown_out() -> None:
    connect: Any = ApplicationCommunicator  # asgiref's testing tools have no types

    async def knock() -> list[dict[str, object]]:
        scope = {"type": "websocket", "path": "/ws/market", "user": AnonymousUser()}
        socket = connect(MarketConsumer.as_asgi(), scope)
        await socket.send_input({"type": "websocket.connect"})
        return [await socket.receive_output(WAIT_SECONDS) for _ in range(2)]

    accepted, closed = asyncio.run(knock())

    assert accepted["type"] == "websocket.accept"
    assert (closed["type"], closed["code"]) == ("websocket.close", 4401)
