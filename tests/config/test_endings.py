"""What ends somebody's right is heard of in each process, at once and a few times more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from uuid import uuid4

from django.utils import timezone

from config.web.endings import AGAIN_SECONDS, Endings
from ledger.domain.event import Event
from ledger.domain.events import MemberRemoved, TokenRevoked
from ledger.domain.ids import HostId, TenantId, TokenId, UserId
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import Expect, NewEvent
from listings.domain.events import HostReturned
from tests.conftest import SOMEBODY

FAR = 3_600.0


def tell(store: MemoryStore, event: Event) -> None:
    store.append(f"told-{uuid4()}", [NewEvent(uuid4(), event)], expected=Expect.ANY, by=SOMEBODY)


def revoked() -> TokenRevoked:
    return TokenRevoked(token_id=TokenId(uuid4()), at=timezone.now())


def played(play: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await play()

    asyncio.run(bounded())


def test_everybody_who_waits_hears_and_looks_again_a_few_times() -> None:
    store = MemoryStore()
    endings = Endings(lambda: store)

    async def play() -> None:
        with endings.heard() as one, endings.heard() as other:
            waiting = [asyncio.create_task(each.wait(FAR)) for each in (one, other)]
            await asyncio.sleep(0)
            while not all(each.done() for each in waiting):
                tell(store, revoked())
                await asyncio.wait(waiting, timeout=0.05)
            assert [each.result() for each in waiting] == [True, True]
            while not await one.wait(0.01):
                pass
        again = [True for _ in AGAIN_SECONDS]
        with endings.heard() as one:
            one.ring()
            assert await one.wait(FAR)
            assert [await one.wait(FAR) for _ in again] == again
            assert not await one.wait(0.01), "then only at news"

    played(play)


def test_what_ends_nobody_wakes_nobody() -> None:
    store = MemoryStore()
    endings = Endings(lambda: store)

    async def play() -> None:
        with endings.heard() as news:
            tell(store, HostReturned(host_id=HostId(uuid4()), at=timezone.now()))
            assert not await news.wait(0.3)

    played(play)


def test_following_begins_again_for_who_comes_after_all_had_gone() -> None:
    store = MemoryStore()
    endings = Endings(lambda: store)
    removed = MemberRemoved(tenant_id=TenantId(uuid4()), user_id=UserId(uuid4()), at=timezone.now())

    async def play() -> None:
        for _ in range(3):
            with endings.heard() as news:
                waiting = asyncio.create_task(news.wait(FAR))
                while not waiting.done():
                    tell(store, removed)
                    await asyncio.wait([waiting], timeout=0.05)

    played(play)
