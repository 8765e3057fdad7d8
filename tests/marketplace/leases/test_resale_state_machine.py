"""Bids, sales of rests, reclaims and ends in any order: no GPU has two leases at one instant."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ledger.domain.ids import TenantId
from ledger.domain.money import Rate
from marketplace.domain.facts.events import LeaseGranted, ResaleEnded, ResaleOpened
from tests.marketplace.support.invariants import audit
from tests.marketplace.support.market import MARKET, Market, named

HOUR = timedelta(hours=1)


class AnyOrder(RuleBasedStateMachine):
    """Facts as they come, an engine that is sometimes another one."""

    @initialize()
    def start(self) -> None:
        self.market = Market()
        self.market.offer("a", gpus=3, at=1)
        self.market.offer("b", gpus=2, at="1.50")
        self.words: list[str] = []
        self.over: set[str] = set()

    def _leases(self) -> list[tuple[str, LeaseGranted]]:
        found = [(word, self.market.grant(word)) for word in self.words if word not in self.over]
        return [(word, granted) for word, granted in found if granted is not None]

    @rule(
        gpus=st.integers(1, 3),
        hours=st.integers(1, 6),
        limit=st.integers(1, 5),
        wait=st.integers(0, 5),
        room=st.integers(0, 8),
        kind=st.sampled_from(["on-demand", "interruptible"]),
    )
    def somebody_bids(
        self, gpus: int, hours: int, limit: int, wait: int, room: int, kind: str
    ) -> None:
        word = f"b{len(self.words)}"
        self.words.append(word)
        start = self.market.now + wait * HOUR
        self.market.bid(
            word,
            gpus=gpus,
            hours=hours,
            at=limit,
            start=start,
            deadline=start + (hours + room) * HOUR,
            service_class=kind,  # type: ignore[arg-type]  # one of the classes
        )

    @rule(which=st.integers(0, 50), after=st.integers(-1, 5), more=st.sampled_from(["0", "0.5"]))
    def a_rest_is_for_sale(self, which: int, after: int, more: str) -> None:
        leases = self._leases()
        if not leases:
            return
        word, granted = leases[which % len(leases)]
        since = max(granted.window.starts_at, self.market.now) + max(after, 0) * HOUR
        if since >= granted.window.ends_at or granted.shares[0].resold:
            return
        floor = granted.price.nanos_per_gpu_hour + round(float(more) * 10**9)
        self.market.put(
            f"lease-{granted.lease_id}",
            ResaleOpened(
                lease_id=granted.lease_id,
                market=MARKET,
                tenant_id=TenantId(named(f"tenant {word}")),
                since=since,
                ends_at=granted.window.ends_at,
                floor=Rate(floor),
                lease_min_seconds=60,
                at=self.market.now,
            ),
        )

    @rule(which=st.integers(0, 50))
    def a_rest_is_kept(self, which: int) -> None:
        leases = self._leases()
        if leases:
            lease_id = leases[which % len(leases)][1].lease_id
            self.market.put(
                f"lease-{lease_id}",
                ResaleEnded(lease_id=lease_id, market=MARKET, at=self.market.now),
            )

    @rule(which=st.integers(0, 50))
    def a_lease_closes(self, which: int) -> None:
        leases = self._leases()
        if leases:
            word, _ = leases[which % len(leases)]
            self.market.close(word)
            self.over.add(word)

    @rule(which=st.integers(0, 50))
    def an_owner_reclaims(self, which: int) -> None:
        leases = self._leases()
        if leases:
            self.market.reclaim(leases[which % len(leases)][0])

    @rule(which=st.integers(0, 50), hours=st.integers(1, 3))
    def a_holder_wants_longer(self, which: int, hours: int) -> None:
        leases = self._leases()
        if leases:
            word, granted = leases[which % len(leases)]
            self.market.extend(word, granted.window.ends_at + hours * HOUR)

    @rule(minutes=st.integers(1, 180))
    def time_passes(self, minutes: int) -> None:
        self.market.wait(minutes=minutes)

    @rule()
    def the_engine_runs(self) -> None:
        self.market.run()

    @rule()
    def another_engine_takes_over(self) -> None:
        self.market.engine = self.market.new_engine()
        self.market.run()

    @invariant()
    def nobody_is_granted_what_another_has(self) -> None:
        audit(self.market.events())

    @invariant()
    def a_cut_is_where_the_grant_begins_and_only_of_what_was_longer(self) -> None:
        grants = {granted.lease_id: granted for granted in self.market.grants().values()}
        for granted in grants.values():
            for cut in granted.cuts:
                assert cut.lease_id in grants
                assert cut.ends_at >= grants[cut.lease_id].window.starts_at
                if cut.because == "resold":
                    assert cut.ends_at == granted.window.starts_at
                    first = grants[cut.lease_id].price
                    assert granted.price >= first


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
