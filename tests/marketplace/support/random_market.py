"""Facts of a random market, one by one: small enough that bids and offers meet all the time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import time, timedelta
from random import Random
from typing import Any
from uuid import UUID, uuid5

from ledger.domain.event import Event
from ledger.domain.ids import BidId, HostId, LeaseId, TenantId
from ledger.eventstore.port import START
from listings.domain.events import WeeklyRule
from listings.domain.terms import LeaseMinOutOfBounds
from marketplace.domain.book.book import Book
from marketplace.domain.decisions.decide import on_fact
from marketplace.domain.facts.events import (
    Continues,
    ExtensionRequested,
    GpuRequest,
    KeptOff,
    LeaseClosed,
    MarketEvent,
    ReclaimRequested,
)
from marketplace.domain.facts.instants import from_above
from marketplace.domain.orderbook.triggers import Trigger
from tests.conftest import NOON
from tests.marketplace.support.market import MARKET, OWNER, Market, named
from tests.marketplace.support.promising import promise

ROUNDS = UUID(int=0xFACE)
HOSTS = ("a", "b", "c", "d")
TENANT = TenantId(named("a tenant with several bids"))


@dataclass
class Lane:
    """A book, and what an engine decides on each fact."""

    book: Book
    decided: list[MarketEvent] = field(default_factory=list)

    def take_in(self, event: Event, position: int, *, now: int) -> list[MarketEvent]:
        """Fold a fact, decide, fold the decisions; return them."""
        return self.answer(self.book.apply(event, position), position, now=now)

    def answer(self, trigger: Trigger | None, position: int, *, now: int) -> list[MarketEvent]:
        """Decide on what a fact may have made possible, fold the decisions; return them."""
        self.book.read_to = position
        if trigger is None:
            return []
        round_id = uuid5(ROUNDS, str(position))
        events = on_fact(self.book, trigger, now=now, round_id=round_id)
        self.book.decided(events, position)
        self.decided += events
        return events


@dataclass
class Crowd:
    """People who do something at random. `book` tells them what there is to change."""

    random: Random
    market: Market = field(default_factory=Market)
    position: int = START
    words: int = 0

    @property
    def now(self) -> int:
        """Return the moment in milliseconds."""
        return from_above(self.market.now)

    def acts(self, book: Book) -> Iterator[tuple[Event, int]]:
        """Do one thing; give its events with their positions."""
        rng = self.random
        self.market.wait(seconds=rng.choice((0, 0, 1, 61, 1_800)))
        act = rng.choices(
            (
                *(self._offer, self._bid, self._change, self._amend, self._cancel, self._lease),
                *(self._health, self._agent),
            ),
            (4, 8, 2, 1, 1, 3, 2, 1),
        )[0]
        act(book)
        page = self.market.store.read_all(after=self.position)  # type: ignore[arg-type]
        for recorded in page.events:
            self.position = recorded.position
            yield recorded.event, recorded.position

    def _word(self) -> str:
        self.words += 1
        return str(self.words)

    def _offer(self, book: Book) -> None:
        rng = self.random
        host = rng.choice(HOSTS)
        start = self.market.now.replace(minute=0, second=0) + timedelta(hours=rng.randint(-1, 6))
        first = (start, start + timedelta(hours=rng.randint(1, 8)))
        later = (first[1] + timedelta(hours=1), first[1] + timedelta(hours=rng.randint(2, 4)))
        is_weekly = rng.random() < 0.2
        word = self._word()
        self.market.offer(
            word,
            host=host,
            gpus=4,
            only=sorted(rng.sample(range(4), rng.randint(1, 4))),
            model="T4" if host == "d" else "H100-80GB",
            nvlink=2 if host in "ab" else None,
            at=rng.choice((0.5, 1, 1.5, 2)),
            windows=() if is_weekly else (first, later) if rng.random() < 0.3 else (first,),
            weekly=_nights(rng) if is_weekly else None,
            lease_min=timedelta(minutes=rng.choice((1, 1, 90))),
            grace=timedelta(seconds=(15, 60, 300)[int(word) % 3]),
            kinds=rng.choice(((), (), ("rendering",))),
            region=rng.choice(("eu-west", "eu-west", "us")),
            labels=rng.choice(((), (("team", "x"),))),
            reserved_for=str(rng.randint(1, 30)) if rng.random() < 0.1 else None,
        )

    def _bid(self, book: Book) -> None:
        rng = self.random
        start = self.market.now + timedelta(hours=rng.choice((0, 0, 1, 3)))
        hours = rng.choice((0.5, 1, 1, 2, 5))
        slack = timedelta(hours=rng.choice((0, 1, 24, 24 * 20)))
        word = self._word()
        self.market.bid(
            word,
            gpus=rng.choice((1, 1, 2, 3, 4, 6)),
            hours=hours,
            at=rng.choice((0.5, 1, 1.5, 2, 3)),
            start=start,
            deadline=start + timedelta(hours=hours) + slack,
            request=GpuRequest(
                models=rng.choice(((), (), ("H100",), ("T4",), ("V100",))),
                memory_mib_min=rng.choice((None, None, 40_960)),
                nvlink=rng.random() < 0.15,
                region=rng.choice((None, None, "eu", "eu-west", "us")),
                labels=rng.choice(((), (), (("team", "x"),))),
                grace_seconds_min=60 if int(word) % 4 == 0 else None,
                sandbox_min=rng.choice((None,) * 6 + ("account", "full")),
                network="open" if int(word) % 9 == 0 else None,
                start_seconds_max=60 if int(word) % 11 == 0 else None,
                availability_min_ppm=990_000 if int(word) % 13 == 0 else None,
            ),
            tenant=rng.choice((None, TENANT)),
            gang=rng.random() < 0.25,
            kind=rng.choice(("other", "rendering")),
            currency=rng.choice(("USD",) * 9 + ("EUR",)),
            continues=self._continues(int(word)) if int(word) % 5 == 0 else None,
        )

    def _continues(self, number: int) -> Continues:
        """Return what a bid goes on from whose work failed on one or two hosts."""
        kept = [HOSTS[(number // 5 + more) % len(HOSTS)] for more in range(1 + number % 2)]
        until = self.market.now + timedelta(minutes=(5, 40, 150)[number % 3], milliseconds=number)
        return Continues(
            BidId(named("bid 1")),
            *(BidId(named("bid 1")), 2, None, True),
            keeps_off=tuple(KeptOff(HostId(named(f"host {each}")), until) for each in kept),
        )

    def _change(self, book: Book) -> None:
        offers = [str(word) for word in range(1, self.words + 1)]
        there = [word for word in offers if named(f"offer {word}") in book.offers]
        if there:
            what = self.random.choice(("reprice", "terms", "pause", "resume", "withdraw"))
            word = self.random.choice(there)
            number = self.market.now.minute + int(word)
            if number % 3 == 0:
                start, below = ((60, 0), (90, 990_000), (None, 0))[number // 3 % 3]
                promise(self.market, word, start=start, below=below)
            if what == "terms":
                self._change_terms(word)
            else:
                self.market.change_offer(word, what, self.random.choice((0.5, 2)))

    def _health(self, book: Book) -> None:
        rng, health = self.random, book.quarantine
        host = rng.choice(HOSTS)
        host_id, gpu = HostId(named(f"host {host}")), rng.randrange(4)
        if rng.random() < 0.2:
            planned = host_id in health.maintenance
            since = self.market.now + timedelta(minutes=rng.choice((0, 30, 90)))
            until = None if planned else since + timedelta(minutes=rng.choice((20, 120)))
            self.market.maintain(host, since, until, *((gpu,) if rng.random() < 0.5 else ()))
        elif rng.random() < 0.4:
            self.market.health(host, "returned" if host_id in health.silent else "silent")
        else:
            is_unfit = f"{host}:{gpu}" in health.unfit.get(host_id, ())
            self.market.health(host, "fit" if is_unfit else "unfit", gpu)

    def _agent(self, book: Book) -> None:
        rng = self.random
        self.market.agent(rng.choice(HOSTS), rng.choice(("account", "account", "process", "full")))

    def _change_terms(self, word: str) -> None:
        rng = self.random
        said: dict[str, Any] = {
            "lease_min_seconds": rng.choice((None, 60, 5_400)),
            "notice_seconds": rng.choice((None, 60, 1_800)),
            "grace_seconds": rng.choice((None, 15, 60)),
            "reclaim_fee_ppm": rng.choice((None, 0, 200_000)),
            "workload_kinds": rng.choice((None, (), ("rendering",))),
        }
        with suppress(LeaseMinOutOfBounds):
            self.market.change_terms(word, **said)

    def _amend(self, book: Book) -> None:
        word = self._waiting(book)
        if word is not None:
            bid = book.bids[BidId(named(f"bid {word}"))]
            deadline = bid.terms.deadline + timedelta(hours=self.random.choice((0, 5)))
            self.market.amend(word, at=self.random.choice((1, 2, 4)), deadline=deadline)

    def _cancel(self, book: Book) -> None:
        word = self._waiting(book)
        if word is not None:
            self.market.cancel(word)

    def _waiting(self, book: Book) -> str | None:
        words = [str(word) for word in range(1, self.words + 1)]
        there = [word for word in words if named(f"bid {word}") in book.bids]
        return self.random.choice(there) if there else None

    def _lease(self, book: Book) -> None:
        if not book.held:
            return
        lease_id = self.random.choice(sorted(book.held))
        held = book.held[lease_id]
        self.market.put(f"lease-{lease_id}", self._of_lease(lease_id, held.granted.window.ends_at))

    def _of_lease(self, lease_id: LeaseId, ends_at: object) -> Event:
        now = self.market.now
        match self.random.choice(("close", "close", "reclaim", "extend")):
            case "close":
                return LeaseClosed(
                    lease_id=lease_id,
                    market=MARKET,
                    reason=100,
                    failed=False,
                    compensation=None,
                    compensation_from=None,
                    at=now,
                )
            case "reclaim":
                stop_at = now + timedelta(minutes=5)
                return ReclaimRequested(
                    lease_id=lease_id, owner_id=TenantId(OWNER), stop_at=stop_at, at=now
                )
            case _:
                until = max(now, NOON) + timedelta(hours=self.random.randint(1, 9))
                return ExtensionRequested(lease_id=lease_id, market=MARKET, ends_at=until, at=now)


def _nights(rng: Random) -> WeeklyRule:
    return WeeklyRule(
        zone="Europe/Berlin",
        days=tuple(sorted(rng.sample(range(7), rng.randint(1, 7)))),
        since=time(18),
        until=time(6),
        first=NOON.date(),
    )
