"""Sums kept step by step answer as adding everything up does, in whatever order things happen."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from ledger.domain.ids import LeaseId, UserId
from ledger.domain.money import MILLIS_PER_HOUR
from ledger.eventstore.port import START
from marketplace.domain.book.book import Book
from marketplace.domain.book.quota_following import KINDS
from marketplace.domain.facts.events import BidPlaced
from marketplace.domain.facts.instants import from_above
from marketplace.domain.facts.policy_events import CountingSet, LimitSet
from marketplace.domain.facts.values import Counts
from marketplace.domain.quotas.cohort_timeline import NOTHING, Headroom, Steps, added
from marketplace.domain.quotas.quota_book import KEPT, QuotaBook
from marketplace.domain.quotas.use import Gpus, Use
from tests.conftest import NOON
from tests.marketplace.quotas.governed_crowd import GovernedCrowd
from tests.marketplace.quotas.plain_quotas import PARTS, plain
from tests.marketplace.support.market import MARKET

HALF_HOUR, SOON = MILLIS_PER_HOUR // 2, from_above(NOON)
USERS = (UserId(UUID(int=77)), UserId(UUID(int=78)))
SPAN = st.tuples(st.integers(0, 30), st.integers(1, 12), st.integers(-3, 4))


@given(st.lists(SPAN, max_size=12), st.lists(SPAN, max_size=4))
def test_steps_are_what_the_spans_add_up_to(first: list[tuple[int, int, int]], then: list) -> None:  # type: ignore[type-arg]
    spans = [(starts, starts + lasts, size) for starts, lasts, size in first]
    steps = Steps.of(spans)
    for starts, lasts, size in then:
        steps = steps.plus(starts, starts + lasts, size)
        spans.append((starts, starts + lasts, size))
    halves = added([Steps.of(spans[::2]), Steps.of(spans[1::2]), NOTHING])

    for at in range(-1, 45):
        total = sum(size for starts, ends, size in spans if starts <= at < ends)
        assert steps.value(at) == halves.value(at) == total
        assert at < 20 or steps.since(20).value(at) == total
    assert (steps.times[1:] > steps.times[:-1]).all()


class People:
    """Uses of anybody, and policies of any kind. terms: of bids of three units."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.crowd = GovernedCrowd(random)
        for _ in range(8):
            self.crowd._bid(Book(MARKET))
        page = self.crowd.market.store.read_all(after=START)
        told = [each.event for each in page.events]
        self.terms = [
            replace(each, user_id=random.choice((None, *USERS)))
            for each in told
            if isinstance(each, BidPlaced)
        ]
        self.quotas = QuotaBook()
        for each in told:
            if isinstance(each, KINDS):
                self.quotas.apply(each)  # type: ignore[arg-type]  # a policy

    def policy(self) -> None:
        """Set some policy."""
        event = self.crowd._policy(Book(MARKET))
        if isinstance(event, LimitSet) and self.random.random() < 0.3:
            event = replace(event, scope="user", subject=None)
        self.quotas.apply(event)

    def count(self, counts: Counts) -> None:
        """Say how parts of cards are counted."""
        self.quotas.apply(CountingSet(market=MARKET, counts=counts, at=NOON))

    def use(self) -> Use:
        """Return a use, sometime in the next days, of one or two models."""
        rng = self.random
        models = sorted(rng.sample(("H100-80GB", "A100-80GB", *PARTS), rng.choice((1, 1, 2))))
        sizes = [(model, rng.randint(1, 3)) for model in models]
        gpus = tuple(Gpus(model, count, count * 81_559) for model, count in sizes)
        starts = SOON + rng.randint(0, 40) * HALF_HOUR
        ends = starts + rng.randint(1, 20) * HALF_HOUR
        return Use(rng.choice(self.terms), gpus, starts, ends, rng.randint(0, 4) * 10**9)

    def change(self, quotas: QuotaBook, *, is_fork: bool) -> None:
        """Take, extend or give back some use."""
        rng, lease_id = self.random, LeaseId(UUID(int=self.random.randint(1, 12)))
        held = quotas.uses.get(lease_id)
        if held is None:
            quotas.take(lease_id, self.use())
        elif rng.random() < 0.3:
            quotas.extend(lease_id, held.ends + rng.randint(-1, 4) * HALF_HOUR)
        elif rng.random() < 0.3:
            quotas.move(lease_id, self.use())
        elif not is_fork:
            quotas.release(lease_id, held.starts + rng.randint(0, 3) * HALF_HOUR)


def agree(people: People, quotas: QuotaBook) -> None:
    """Ask both rules; and that nothing sooner fits than is said."""
    use = people.use()
    answer = quotas.check(use)
    assert (answer.outcome, answer.reason) == plain(quotas, use)
    latest = use.starts + 60 * HALF_HOUR
    soonest = quotas.soonest(use, latest)
    if soonest is not None:
        assert quotas.check(at(use, soonest)).fits
    passed_over = range(use.starts, latest if soonest is None else soonest, HALF_HOUR)
    for starts in people.random.sample(passed_over, min(6, len(passed_over))):
        assert plain(quotas, at(use, starts))[0] == "refused"


def at(use: Use, starts: int) -> Use:
    return replace(use, starts=starts, ends=starts + use.ends - use.starts)


def test_what_is_held_is_added_up_once_however_many_forks_are_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    people, added_up = People(Random(5)), list[object]()
    for _ in range(12):
        people.policy()
    for _ in range(12):
        people.change(people.quotas, is_fork=True)
    once = Headroom.of.__func__  # type: ignore[attr-defined]  # a class method

    def noted(cls: type[Headroom], *said: Any) -> Any:
        added_up.append(said)
        return once(cls, *said)

    monkeypatch.setattr(Headroom, "of", classmethod(noted))

    for _ in range(10):
        people.quotas.fork().check(people.use())
    people.change(people.quotas, is_fork=True)
    for _ in range(10):
        agree(people, people.quotas.fork())

    assert 0 < len(added_up) <= len(people.quotas.policies.classes)  # type: ignore[union-attr]


@given(st.randoms(use_true_random=True))
@settings(max_examples=60, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
def test_what_was_asked_and_kept_is_what_all_uses_add_up_to(random: Random) -> None:
    people = People(random)
    if random.random() < 0.5:
        people.count(random.choice(("whole", "parts")))
    for _ in range(random.randint(1, 12)):
        people.policy()

    for _ in range(25):
        people.change(people.quotas, is_fork=False)
        agree(people, people.quotas)
        if random.random() < 0.15:
            people.policy()
        if random.random() < 0.1:
            people.quotas.forget_before(SOON - KEPT)
        if random.random() < 0.2:
            fork = people.quotas.fork()
            for _ in range(3):
                people.change(fork, is_fork=True)
                agree(people, fork)
            agree(people, fork.fork())
            agree(people, people.quotas)
