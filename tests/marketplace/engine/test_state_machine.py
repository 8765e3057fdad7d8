"""A market lived at random: I1, I13 and the ghost reservations of the fault table.

Owners and bidders do anything in any order, leases end early, late or by reclaim, engines die and
race each other. After every pass the log is audited by code of its own, the live book must equal
one folded afresh, and a fresh engine must find nothing that the live one missed.
"""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from listings.domain.events import WeeklyRule
from marketplace.domain.facts.events import GpuRequest
from marketplace.engine import Engine
from tests.marketplace.support.beside import Hold, replayed
from tests.marketplace.support.contents import NEVER, contents
from tests.marketplace.support.invariants import audit
from tests.marketplace.support.market import Market, OpenStore

BEFORE_DST = datetime.fromisoformat("2026-03-27T12:00:00+00:00")
"""A Friday; on the night to Sunday clocks in Berlin jump from two to three."""


class MarketMachine(RuleBasedStateMachine):
    @initialize()
    def open(self) -> None:
        self.store = OpenStore()
        self.market = Market(self.store, now=BEFORE_DST)
        self.rival = self.market.new_engine()
        self.count = 0
        self.offered: list[str] = []

    def word(self) -> str:
        self.count += 1
        return str(self.count)

    @rule(
        host=st.sampled_from("abc"),
        gpus=st.integers(1, 3),
        at=st.integers(1, 5),
        hours=st.integers(1, 30),
        model=st.sampled_from(["H100-80GB", "T4"]),
    )
    def offer(self, host: str, gpus: int, at: int, hours: int, model: str) -> None:
        window = (self.market.now, self.market.now + timedelta(hours=hours))
        self.offered.append(self.word())
        self.market.offer(
            self.offered[-1], host=host, gpus=gpus, at=at, model=model, windows=[window]
        )

    @rule(host=st.sampled_from("de"), at=st.integers(1, 5), since=st.integers(0, 23))
    def offer_nights(self, host: str, at: int, since: int) -> None:
        weekly = WeeklyRule(
            zone="Europe/Berlin",
            days=(4, 5, 6),
            since=time(since),
            until=time((since + 7) % 24),
            first=date(2026, 3, 20),
        )
        self.offered.append(self.word())
        self.market.offer(self.offered[-1], host=host, gpus=2, at=at, weekly=weekly)

    @precondition(lambda self: self.count)
    @rule(data=st.data(), what=st.sampled_from(["reprice", "pause", "resume", "withdraw"]))
    def change_offer(self, data: st.DataObject, what: str) -> None:
        word = str(data.draw(st.integers(1, self.count)))
        self.market.change_offer(word, what, data.draw(st.integers(1, 5)))

    @precondition(lambda self: self.offered)
    @rule(
        data=st.data(),
        notice_seconds=st.sampled_from([None, 0, 60, 3_600]),
        lease_min_seconds=st.sampled_from([None, 60, 3_600]),
        reclaim_fee_ppm=st.sampled_from([None, 0, 300_000]),
    )
    def change_terms(self, data: st.DataObject, **said: Any) -> None:
        self.market.change_terms(data.draw(st.sampled_from(self.offered)), **said)

    @rule(
        gpus=st.integers(1, 4),
        hours=st.sampled_from([0.5, 1, 3, 8]),
        at=st.integers(1, 6),
        wait=st.integers(0, 20),
        room=st.integers(0, 30),
        gang=st.booleans(),
        patience=st.sampled_from(["immediate", "patient"]),
        big=st.booleans(),
    )
    def bid(self, *, wait: int, room: int, hours: float, big: bool, **said: Any) -> None:
        start = self.market.now + timedelta(hours=wait)
        self.market.bid(
            self.word(),
            hours=hours,
            start=start,
            deadline=start + timedelta(hours=hours + room),
            request=GpuRequest(memory_mib_min=40_000 if big else None),
            **said,
        )

    @precondition(lambda self: self.count)
    @rule(data=st.data())
    def change_bid(self, data: st.DataObject) -> None:
        word = str(data.draw(st.integers(1, self.count)))
        if data.draw(st.booleans()):
            self.market.cancel(word)
        else:
            deadline = self.market.now + timedelta(hours=data.draw(st.integers(1, 30)))
            self.market.amend(word, at=data.draw(st.integers(1, 6)), deadline=deadline)

    def leased(self) -> list[str]:
        return [str(n) for n in range(1, self.count + 1) if self.market.grant(str(n))]

    @precondition(lambda self: self.leased())
    @rule(data=st.data(), what=st.sampled_from(["close", "reclaim", "extend", "close"]))
    def change_lease(self, data: st.DataObject, what: str) -> None:
        word = data.draw(st.sampled_from(self.leased()))
        if what == "close":
            self.market.close(word)
        elif what == "reclaim":
            self.market.reclaim(word)
        else:
            granted = self.market.grant(word)
            assert granted is not None
            more = timedelta(hours=data.draw(st.integers(0, 4)))
            self.market.extend(word, granted.window.ends_at + more)

    @rule(minutes=st.integers(1, 600))
    def wait(self, minutes: int) -> None:
        self.market.wait(minutes=minutes)

    @rule()
    def run(self) -> None:
        self.market.run()
        self.check()

    @rule()
    def die(self) -> None:
        """Another engine takes over, knowing nothing."""
        self.market.engine = self.market.new_engine()

    @rule()
    def race(self) -> None:
        """A second engine decides between the first one's reading and its append."""
        self.store.before = lambda: self.rival.run_once(now=self.market.now)
        self.market.run()
        self.store.before = None

    def check(self) -> None:
        """The live book equals one folded afresh, and nothing more can be decided at once."""
        # What it did itself, such as ending a bid, the engine reads on its next pass.
        self.market.run()
        head = self.store.head()
        if self.market.engine._book is None:
            return
        # A new engine does not know when the last round was that decided nothing.
        fresh = self.market.new_engine(round_seconds=NEVER)
        live = contents(self.market.engine._book)
        assert fresh.run_once(now=self.market.now) == 0
        assert self.store.head() == head
        assert fresh._book is not None
        assert contents(fresh._book) == live

    @invariant()
    def nothing_is_leased_twice_and_terms_are_kept(self) -> None:
        audit(self.market.events())


class RoundsBesideMachine(MarketMachine):
    """The same where rounds are out while all this happens, come back some time, or are lost."""

    @initialize()
    def open(self) -> None:
        super().open()
        self.hold = Hold()
        self.market.engine = self.engine()

    def engine(self) -> Engine:
        return Engine(self.store, self.market.name, beside=self.hold)

    @rule()
    def die(self) -> None:
        self.market.engine = self.engine()

    @precondition(lambda self: self.hold.out)
    @rule()
    def come_back(self) -> None:
        self.hold.let_go()
        self.run()

    @precondition(lambda self: self.hold.out)
    @rule()
    def lose(self) -> None:
        self.hold.out[-1].lose()

    def teardown(self) -> None:
        replayed(self.market)


RoundsBesideMachine.TestCase.settings = settings(
    max_examples=15, stateful_step_count=40, deadline=None
)
TestRoundsBesideMachine = RoundsBesideMachine.TestCase


MarketMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestMarketMachine = MarketMachine.TestCase
