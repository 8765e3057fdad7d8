"""A grant becomes a lease only where bid, supply and leases that give way are as it was decided on.

The engine reads, others go on, its grant is taken up: whatever was accepted before that moment is
not overruled by it. A refused grant leaves everybody as before, and the bid is offered again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial

import pytest

from ledger.commands.money import release_hold
from ledger.domain.ids import BidId, TenantId
from ledger.domain.money import Money
from ledger.eventstore.port import Appended, Meta, Write
from ledger.eventstore.together import record_together
from marketplace.commands import leases
from marketplace.commands.grants import opening
from marketplace.domain.facts.events import GpuRequest, GrantRefused, LeaseGranted, LeaseInterrupted
from marketplace.policies import policies
from tests.marketplace.support.invariants import audit
from tests.marketplace.support.market import OWNER, named, rate, somebody
from tests.marketplace.support.rounds import book_of
from tests.marketplace.support.several_units import FUNDS, Several

HOUR = timedelta(hours=1)
NOTHING = Money(0)


def refusals(site: Several) -> list[str]:
    return [each.event.reason for each in site.events() if isinstance(each.event, GrantRefused)]


def settled(site: Several) -> None:
    """Let engine and policies work until neither has anything to do."""
    for _ in range(6):
        head = site.store.head()
        site.go()
        if site.store.head() == head:
            return
    raise AssertionError("it goes on and on")


def held_as_needed(site: Several, *words: str) -> None:
    """Check that each unit has set aside what its bid may cost, or its lease, and nothing else."""
    for word in words:
        bid, lease = site.bid_of(word), site.found_lease(word)
        if lease is not None:
            assert site.account_of(word).held == lease.cost_at_most(ends_at=lease.ends_at)
        else:
            assert site.account_of(word).held == (bid.hold if bid.state == "open" else NOTHING)


def running_victims(*victims: str, gpus: int = 1) -> Several:
    """Return a market whose GPUs are all leased to interruptible bids that have run for a while."""
    site = Several(*victims, "taker")
    site.offer("a", gpus=gpus * len(victims), at=1, notice=timedelta(minutes=5))
    for word in victims:
        site.place(word, limit="1", hours=8, gpus=gpus, service_class="interruptible")
    site.go()
    for word in victims:
        site.begin(word)
    site.pump.run()
    site.wait(minutes=31)
    return site


def take(site: Several, *, gpus: int = 1) -> None:
    site.place("taker", limit="9", hours=6, gpus=gpus, deadline=site.later(7))


def nobody_was_cut(site: Several, *victims: str) -> None:
    for word in victims:
        lease = site.lease_of(word)
        assert lease.stop_at is None, f"{word} stops at {lease.stop_at}"
        assert not lease.rights.reclaims
    assert not any(isinstance(each.event, LeaseInterrupted) for each in site.events())
    audit(site.events())


# --- what others did to the bid -------------------------------------------------------------------


@pytest.mark.parametrize("victims", [("victim",), ("one", "two")])
def test_a_bid_cancelled_between_grant_and_policy_interrupts_nobody(
    victims: tuple[str, ...],
) -> None:
    site = running_victims(*victims)
    take(site, gpus=len(victims))
    site.run()
    granted = site.grant("taker")
    assert granted is not None and len(granted.cuts) == len(victims)
    site.withdraw("taker")

    settled(site)

    assert site.bid_of("taker").state == "cancelled"
    assert refusals(site) == ["bid-over"]
    nobody_was_cut(site, *victims)
    held_as_needed(site, *victims, "taker")


def test_a_bid_cancelled_before_the_engine_looked_interrupts_nobody() -> None:
    site = running_victims("victim")
    take(site)
    site.withdraw("taker")
    site.pump.run()
    site.wait(minutes=10)
    site.engine = site.new_engine()

    settled(site)

    assert site.bid_of("taker").state == "cancelled"
    nobody_was_cut(site, "victim")


def test_after_a_refusal_a_victim_may_be_interrupted_for_another_bid() -> None:
    site = running_victims("victim")
    take(site)
    site.run()
    site.withdraw("taker")
    settled(site)
    site.place("taker", "second", limit="9", hours=5, deadline=site.later(7))

    settled(site)

    assert site.bid_of("second").state == "filled"
    lease = site.lease_of("victim")
    assert lease.rights.interrupted and lease.stop_at is not None
    audit(site.events())


def test_a_limit_that_was_lowered_before_the_pass_is_kept() -> None:
    site = Several("taker")
    site.offer("a", gpus=1, at=2)
    site.place("taker", limit="3", hours=2)
    site.change("taker", limit="1.50")

    settled(site)

    assert site.found_lease("taker") is None
    assert (site.bid_of("taker").state, site.bid_of("taker").limit) == ("open", rate("1.50"))
    held_as_needed(site, "taker")


def test_a_limit_that_was_lowered_after_the_grant_is_kept() -> None:
    site = Several("taker")
    site.offer("a", gpus=1, at=2)
    site.place("taker", limit="3", hours=2)
    site.run()
    assert site.grant("taker") is not None
    site.change("taker", limit="1.50")

    settled(site)

    assert refusals(site) == ["bid-changed"]
    assert site.found_lease("taker") is None
    held_as_needed(site, "taker")
    site.change("taker", limit="2.50")
    settled(site)
    assert site.lease_of("taker").terms.price == rate(2)
    held_as_needed(site, "taker")


@pytest.mark.parametrize("before_the_pass", [True, False])
def test_as_many_gpus_are_leased_as_are_asked_for_now(before_the_pass: bool) -> None:
    site = Several("taker")
    site.offer("a", gpus=2, at=1)
    site.place("taker", limit="3", hours=2, gpus=2, deadline=site.later(20))
    if not before_the_pass:
        site.run()
    site.change("taker", gpus=1)

    settled(site)

    assert site.lease_of("taker").gpus == 1
    held_as_needed(site, "taker")
    audit(site.events())


def test_a_deadline_that_was_moved_forward_is_kept() -> None:
    site = Several("taker")
    start = site.later(3)
    site.offer("a", gpus=1, at=1, windows=[(start, start + 4 * HOUR)])
    site.place("taker", limit="3", hours=2, deadline=site.later(9))
    site.run()
    granted = site.grant("taker")
    assert granted is not None and granted.window.starts_at == start
    site.change("taker", deadline=site.later(4))

    settled(site)

    assert site.found_lease("taker") is None
    assert site.bid_of("taker").state == "open"


def test_an_amendment_that_the_grant_satisfies_takes_it() -> None:
    site = Several("taker")
    site.offer("a", gpus=1, at=2)
    site.place("taker", limit="3", hours=2)
    site.run()
    site.change("taker", limit="4")

    settled(site)

    assert refusals(site) == []
    assert site.lease_of("taker").terms.price == rate(2)
    held_as_needed(site, "taker")


def test_a_patient_bid_is_granted_in_the_next_round_on_its_new_terms() -> None:
    site = Several("taker")
    site.offer("a", gpus=2, at=1)
    site.place("taker", limit="3", hours=2, gpus=2, patience="patient", deadline=site.later(20))
    site.run()
    assert site.grant("taker") is not None
    site.change("taker", gpus=1)
    settled(site)
    assert site.bid_of("taker").state == "open"
    site.wait(seconds=61)

    settled(site)

    assert site.lease_of("taker").gpus == 1


# --- what others did to the supply and to the leases that give way --------------------------------


@pytest.mark.parametrize(
    ("what", "at"), [("withdraw", 0), ("pause", 0), ("reprice", 5), ("terms", 0)]
)
def test_supply_that_changed_before_the_grant_was_taken_up_is_not_leased(
    what: str, at: float
) -> None:
    site = Several("taker")
    site.offer("a", gpus=1, at=2)
    site.place("taker", limit="3", hours=2)
    site.run()
    assert site.grant("taker") is not None
    if what == "terms":
        site.change_terms("a", notice_seconds=7_200)
    else:
        site.change_offer("a", what, at)

    settled(site)

    assert refusals(site) == ["supply-changed"]
    lease = site.found_lease("taker")
    if what == "terms":
        assert lease is not None and lease.terms.shares[0].notice_seconds == 7_200
    else:
        assert lease is None and site.bid_of("taker").state == "open"
    held_as_needed(site, "taker")


def test_a_refused_grant_comes_again_on_other_supply() -> None:
    site = Several("taker")
    site.offer("a", gpus=1, at=1)
    site.offer("b", gpus=1, at=2)
    site.place("taker", limit="3", hours=2)
    site.run()
    site.change_offer("a", "withdraw")

    settled(site)

    assert site.lease_of("taker").terms.price == rate(2)
    audit(site.events())


def test_what_a_refused_grant_gives_back_serves_those_who_wait() -> None:
    site = Several("taker", "other")
    site.offer("a", gpus=1, at=2)
    site.place("taker", limit="3", hours=2)
    site.place("other", limit="2.50", hours=2, deadline=site.later(3))
    site.run()
    assert site.grant("other") is None
    site.withdraw("taker")

    settled(site)

    lease = site.lease_of("other")
    assert lease.starts_at - site.now < timedelta(minutes=1)
    held_as_needed(site, "taker", "other")


@pytest.mark.parametrize("first", ["one", "two"])
def test_an_owner_who_takes_one_victim_back_first_leaves_the_other_alone(first: str) -> None:
    site = running_victims("one", "two")
    take(site, gpus=2)
    site.run()
    assert len(site.grants()[BidId(named("bid taker"))].cuts) == 2
    site.take_back(first)

    site.pump.run()

    assert refusals(site) == ["lease-changed"]
    other = "two" if first == "one" else "one"
    assert site.lease_of(other).stop_at is None
    assert site.lease_of(first).rights.reclaims[0].owner_id == OWNER
    assert not site.lease_of(first).rights.interrupted
    assert site.found_lease("taker") is None
    settled(site)
    held_as_needed(site, "one", "two", "taker")
    audit(site.events())


def test_quotas_count_a_lease_that_was_to_be_cut_until_it_is() -> None:
    from tests.marketplace.support.policies import limit

    site = running_victims("victim")
    unit = TenantId(named("tenant victim"))
    site.put("governance-main", limit("subscriber", unit, gpus=1))
    site.offer("b", gpus=1, at=1)
    take(site)
    site.change_offer("b", "pause")
    site.run()
    book = book_of(site)
    assert book.quotas is not None
    before = {key: use.ends for key, use in book.quotas.uses.items()}
    site.withdraw("taker")

    settled(site)

    book = book_of(site)
    assert book.quotas is not None
    victim = site.lease_of("victim").terms.lease_id
    assert {key: use.ends for key, use in book.quotas.uses.items()} == {victim: before[victim]}


# --- money ----------------------------------------------------------------------------------------


def test_a_hold_follows_its_bid_whoever_amends_at_the_same_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two amendments at once: money for one of them, limit of the other, was what came out."""
    site = Several("taker")
    site.place("taker", limit="10", hours=10)
    append_whole, raced = site.store.append_whole, list[bool]()

    def overtaken(writes: Sequence[Write]) -> list[Appended]:
        if not raced:
            raced.append(True)
            site.change("taker", limit="90")
        return append_whole(writes)

    monkeypatch.setattr(site.store, "append_whole", overtaken)
    site.change("taker", limit="20")

    bid = site.bid_of("taker")
    assert bid.limit == rate(20)
    held_as_needed(site, "taker")


def test_money_that_came_free_by_an_amendment_stops_nobodys_lease() -> None:
    site = Several("taker", "victim")
    site.offer("a", gpus=1, at=2)
    site.place("taker", limit="499.5", hours=2)
    site.change("taker", limit="1.50")
    site.place("taker", "second", limit="498.5", hours=2, request=GpuRequest(models=("T4",)))
    site.run()
    site.pump.run()
    site.offer("c", gpus=128, at=1)
    for number in range(120):
        site.place("victim", f"n{number}", limit="1", hours=1)

    settled(site)

    assert {site.bid_of(f"n{number}").state for number in range(120)} == {"filled"}
    assert site.found_lease("taker") is not None, "at 1, within its new limit"


def test_a_bid_whose_money_is_gone_ends_and_is_not_granted_for_ever() -> None:
    site = Several("taker", "other")
    site.offer("a", gpus=1, at=2)
    site.place("taker", limit="3", hours=2)
    release_hold(
        site.store,
        account_id=site.account_id("taker"),
        hold_id=site.bid_of("taker").terms.hold_id,
        by=somebody(),
        now=site.now,
    )
    site.place("other", limit="2", hours=2, deadline=site.later(3))

    settled(site)

    assert refusals(site) == ["bid-unfunded"]
    assert site.bid_of("taker").state == "expired"
    assert site.lease_of("other").terms.price == rate(2)


def test_a_lease_that_is_over_before_its_hold_shrinks_stops_nothing() -> None:
    """The policy died after it had opened the lease, and is asked again after all of it is over."""
    site = Several("taker")
    site.offer("a", gpus=1, at=1)
    site.place("taker", limit="3", hours=2)
    site.run()
    [policy] = [each for each in site.pump._policies if each.name.endswith("lease-when-granted")]
    [granted] = [each for each in site.events() if isinstance(each.event, LeaseGranted)]
    assert isinstance(granted.event, LeaseGranted)
    by = Meta.because(granted, policy="open-lease-when-granted")
    opened = opening(granted.event, site.bid_of("taker"), 50_000, by, site.now)
    record_together(site.store, opened)
    lease = site.lease_of("taker").terms
    leases.close_lease(site.store, lease_id=lease.lease_id, by=somebody(), now=site.now)
    release_hold(
        site.store, account_id=lease.account_id, hold_id=lease.hold_id, by=somebody(), now=site.now
    )

    policy.react(granted, site.store)

    assert site.account_of("taker").held == NOTHING


# --- time -----------------------------------------------------------------------------------------


def away(site: Several, **length: float) -> None:
    """Let time pass before the policies take up what was granted."""
    at = site.now + timedelta(**length)
    [policy] = [
        each
        for each in policies(fee_ppm=50_000, clock=lambda: at)
        if each.name.endswith("open-lease-when-granted")
    ]
    others = [each for each in policies(fee_ppm=50_000) if not each.name.endswith("when-granted")]
    site.pump._policies = (policy, *others)
    site.now = at


def test_a_lease_that_would_begin_long_ago_is_decided_again_and_lasts_as_long_as_asked() -> None:
    site = Several("taker")
    site.offer("a", gpus=1, at=1)
    site.place("taker", limit="3", hours=2)
    site.run()
    away(site, minutes=20)

    settled(site)

    assert refusals(site) == ["too-late"]
    lease = site.lease_of("taker")
    assert lease.starts_at >= site.now
    assert lease.ends_at - lease.starts_at == 2 * HOUR


def test_work_that_is_interrupted_has_the_notice_it_was_promised() -> None:
    site = running_victims("victim")
    take(site)
    site.run()
    away(site, minutes=3)

    settled(site)

    assert refusals(site) == ["too-late"]
    stop_at = site.lease_of("victim").stop_at
    assert stop_at is not None and stop_at >= site.now + timedelta(minutes=5)
    assert site.found_lease("taker") is not None


def test_policies_that_are_always_late_grant_late_and_not_never() -> None:
    site = Several("taker")
    site.offer("a", gpus=1, at=1)
    site.place("taker", limit="3", hours=2)
    for _ in range(12):
        site.run()
        away(site, minutes=4)
        site.pump.run()

    assert site.bid_of("taker").state == "filled"
    assert 1 <= len(refusals(site)) <= 4


# --- a book that is folded afresh -----------------------------------------------------------------


@pytest.mark.parametrize("what", ["cancel", "reclaim", "stands"])
def test_another_engine_folds_the_same_book(what: str) -> None:
    from tests.marketplace.support.contents import NEVER, contents

    site = running_victims("one", "two", gpus=2)
    take(site, gpus=3)
    site.run()
    acts: dict[str, Callable[[], object]] = {
        "cancel": partial(site.withdraw, "taker"),
        "reclaim": partial(site.take_back, "one"),
        "stands": lambda: None,
    }
    for act in (lambda: None, acts[what], site.pump.run, site.run, site.pump.run):
        act()
        site.run()
        fresh = site.new_engine(round_seconds=NEVER)
        fresh.run_once(now=site.now)
        assert fresh._book is not None
        assert contents(fresh._book) == contents(book_of(site))
    audit(site.events())


def test_nothing_of_a_refused_grant_is_left_in_the_book() -> None:
    site = running_victims("victim")
    site.run()
    before = {uuid: book_of(site).calendar.of(uuid) for uuid in book_of(site).calendar.gpus()}
    take(site)
    site.run()
    site.withdraw("taker")

    settled(site)

    book = book_of(site)
    assert {uuid: book.calendar.of(uuid) for uuid in book.calendar.gpus()} == before
    assert (book.leases.claims, book.granted_bids) == ({}, {})
    assert [held.claim for held in book.held.values()] == [None]


def test_the_lease_of_a_seller_who_ended_it_is_not_sold() -> None:
    site = Several("seller", "buyer")
    site.offer("a", gpus=1, at=1)
    site.place("seller", limit="1", hours=8)
    site.go()
    site.begin("seller")
    lease_id = site.lease_of("seller").terms.lease_id
    leases.sell_rest(
        site.store, lease_id=lease_id, since=site.later(1), floor=rate("1.5"), by=somebody(),
        now=site.now,
    )  # fmt: skip
    site.wait(minutes=16)
    leases.advance_lease(
        site.store, lease_id=lease_id, start_grace=HOUR, by=somebody(), now=site.now
    )
    site.place("buyer", limit="2", hours=2, deadline=site.later(5))
    site.run()
    assert site.grants()[BidId(named("bid buyer"))].cuts
    leases.close_lease(site.store, lease_id=lease_id, by=somebody(), now=site.now)
    for host_id in site.lease_of("seller").hosts:
        leases.lease_stopped(
            site.store, lease_id=lease_id, host_id=host_id, exit_code=None, by=somebody(),
            now=site.now,
        )  # fmt: skip

    settled(site)

    bought = site.lease_of("buyer")
    assert [share.resold for share in bought.terms.shares] == [None]
    assert bought.terms.price == rate(1)
    assert site.account_of("seller").total == FUNDS
