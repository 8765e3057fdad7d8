"""The price of a lease that runs changes by consent of both its sides, and never otherwise."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.domain.accounts import FundsInsufficient
from ledger.domain.agreed_rates import HoldRepriced
from ledger.domain.ids import TenantId
from ledger.domain.money import NANOS_PER_UNIT, Money
from ledger.domain.refusal import Refusal
from listings.commands import reprice_offer
from marketplace.commands.leases import request_extension, sell_rest
from marketplace.commands.price_changes import PriceNotCovered
from marketplace.domain.facts.events import LeaseGranted, LeaseRepriced
from marketplace.domain.leases.actions import LeaseOver, NotAParty, PriceTooSoon, RestOnSale
from marketplace.domain.leases.price_changes import (
    NotYourProposal,
    OwnProposal,
    PriceBelowFloor,
    PriceUnchanged,
    PriceUnreadable,
    ProposalIsOpen,
    ProposalOver,
    ProposalUnknown,
)
from marketplace.domain.leases.renewals import BudgetSpent
from tests.conftest import NOON
from tests.marketplace.support.market import OWNER, named, rate, somebody
from tests.marketplace.support.pricing import Priced
from tests.marketplace.support.site import HOUR, TENANT


def units(amount: float) -> Money:
    return Money(round(amount * NANOS_PER_UNIT))


def repriced(site: Priced) -> list[LeaseRepriced]:
    return [each.event for each in site.events() if isinstance(each.event, LeaseRepriced)]


def test_a_price_that_is_only_proposed_changes_nothing() -> None:
    site = Priced()
    before = site.set_aside()

    site.propose("2.50")

    assert (site.state_of(), site.set_aside(), repriced(site)) == ("open", before, [])
    assert site.lease.price_at(NOON + 3 * HOUR) == rate(2)


def test_what_both_agree_to_holds_from_then_on_and_not_before() -> None:
    site = Priced()
    site.propose("2.50")

    site.agree()

    assert site.state_of() == "agreed"
    assert site.lease.price_at(NOON + 2 * HOUR - timedelta(seconds=1)) == rate(2)
    assert site.lease.price_at(NOON + 2 * HOUR) == rate("2.50")
    assert site.lease.cost_at_most(ends_at=NOON + 4 * HOUR) == units(2 * (2 * 2 + 2 * 2.5))


def test_the_hold_is_what_it_costs_at_most_whichever_way_the_price_goes() -> None:
    dearer, cheaper = Priced(), Priced(limit=5)
    reprice_offer(
        cheaper.store,
        offer_id=cheaper.lease.terms.shares[0].offer_id,
        floor=rate(1),
        by=somebody(),
        now=cheaper.now,
    )
    dearer.propose("2.50")
    dearer.agree()
    cheaper.propose("1.50", who=TENANT)
    cheaper.agree(who=OWNER)

    assert dearer.set_aside() == units(18)
    assert cheaper.set_aside() == units(14)
    for site in (dearer, cheaper):
        [told] = [each.event for each in site.events() if isinstance(each.event, HoldRepriced)]
        assert (told.before, told.since) == (rate(2), NOON + 2 * HOUR)


def test_the_consumer_may_propose_as_well_and_the_owner_agrees() -> None:
    site = Priced()
    site.propose(3, who=TENANT)

    site.agree(who=OWNER)

    assert [each.price for each in repriced(site)] == [rate(3)]


def test_where_the_money_is_missing_nothing_changes() -> None:
    site = Priced(funds=24)
    site.propose(5)

    with pytest.raises(FundsInsufficient):
        site.agree()

    assert (site.state_of(), site.set_aside(), repriced(site)) == ("open", units(16), [])


def test_an_owner_who_agrees_is_not_told_what_money_the_consumer_has() -> None:
    poor, thrifty = Priced(funds=24), Priced(budget=units(17))
    poor.propose(5, who=TENANT)
    thrifty.propose("2.50", who=TENANT)

    for site in (poor, thrifty):
        with pytest.raises(PriceNotCovered) as refused:
            site.agree(who=OWNER)
        assert set(refused.value.details) == {"lease_id"}
        assert (site.state_of(), repriced(site)) == ("open", [])


def test_a_bids_own_budget_is_not_passed_by_consent() -> None:
    site = Priced(budget=units(17))
    site.propose("2.50")

    with pytest.raises(BudgetSpent):
        site.agree()


def test_nobody_agrees_to_their_own_proposal_nor_does_a_stranger() -> None:
    site = Priced()
    site.propose("2.50")

    with pytest.raises(OwnProposal):
        site.agree(who=OWNER)
    stranger = TenantId(named("stranger"))
    with pytest.raises(NotAParty):
        site.agree(who=stranger)
    with pytest.raises(NotAParty):
        site.propose(3, who=stranger, word="theirs")
    with pytest.raises(NotYourProposal):
        site.decline(who=stranger)
    with pytest.raises(ProposalUnknown):
        site.agree("another")


def test_a_declined_or_withdrawn_price_is_over() -> None:
    site = Priced()
    site.propose("2.50")
    site.decline()
    site.decline()
    with pytest.raises(ProposalOver):
        site.agree()

    site.propose("2.40", word="second")
    site.decline("second", who=OWNER)

    assert (site.state_of(), site.state_of("second")) == ("declined", "withdrawn")
    assert repriced(site) == []


def test_a_proposal_lapses_when_its_time_to_answer_is_over() -> None:
    site = Priced()
    site.propose("2.50", answer_by=NOON + HOUR)
    site.wait(minutes=60)

    with pytest.raises(ProposalOver):
        site.agree()


def test_agreeing_twice_is_agreeing_once() -> None:
    site = Priced()
    site.propose("2.50")
    site.agree()
    site.agree()

    assert len(repriced(site)) == 1


def test_a_price_below_what_the_offer_asks_for_is_refused_when_proposed_and_when_agreed() -> None:
    site = Priced()
    with pytest.raises(PriceBelowFloor):
        site.propose("1.99", who=TENANT)
    site.propose("2.50", who=TENANT)
    offer_id = site.lease.terms.shares[0].offer_id
    reprice_offer(site.store, offer_id=offer_id, floor=rate(4), by=somebody(), now=site.now)

    with pytest.raises(PriceBelowFloor):
        site.agree(who=OWNER)


def test_a_price_is_proposed_in_time_and_only_one_at_a_time() -> None:
    site = Priced()
    with pytest.raises(PriceTooSoon):
        site.propose(3, hours=4 / 60)
    with pytest.raises(PriceTooSoon):
        site.propose(3, hours=4)
    with pytest.raises(PriceTooSoon):
        site.propose(3, answer_by=NOON + 2 * HOUR)
    with pytest.raises(PriceUnchanged):
        site.propose(2)
    with pytest.raises(PriceUnreadable):
        site.propose(-1)
    site.propose(3)
    with pytest.raises(ProposalIsOpen):
        site.propose(4, word="second")


def test_a_second_price_holds_after_the_first_and_what_was_open_is_overtaken() -> None:
    site = Priced()
    site.propose("2.50")
    site.propose(3, who=TENANT, word="theirs", hours=3)
    site.agree()
    assert site.state_of("theirs") == "overtaken"
    with pytest.raises(PriceTooSoon):
        site.propose(3, hours=1, word="back")

    site.propose(2, hours=3, word="again")
    site.agree("again")

    assert [(each.before, each.price) for each in repriced(site)] == [
        (rate(2), rate("2.50")),
        (rate("2.50"), rate(2)),
    ]
    assert site.set_aside() == units(2 * (2 + 2 + 2.5 + 2))


def test_what_is_asked_for_later_is_held_at_the_price_of_then() -> None:
    site = Priced()
    site.propose(3)
    site.agree()

    request_extension(
        site.store,
        lease_id=site.of_lease,
        ends_at=NOON + 5 * HOUR,
        by=somebody(),
        now=site.now,
    )
    site.run()
    site.go()

    assert site.lease.ends_at == NOON + 5 * HOUR
    assert site.set_aside() == units(2 * (2 * 2 + 3 * 3))


def test_a_reclaim_pays_by_the_price_that_holds() -> None:
    plain, site = Priced(), Priced()
    site.propose(3, hours=1)
    site.agree()

    owed, usual = (
        each.lease.compensation(OWNER, asked_at=NOON, stop_at=NOON + 2 * HOUR)
        for each in (site, plain)
    )

    assert owed.nanos * 2 == usual.nanos * 3


def test_a_lease_that_is_for_sale_or_over_keeps_its_price() -> None:
    site = Priced()
    site.propose(3)
    sell_rest(
        site.store, lease_id=site.of_lease, since=None, floor=rate(2), by=somebody(), now=site.now
    )
    with pytest.raises(RestOnSale):
        site.agree()

    over = Priced()
    over.propose(3)
    over.stop(exit_code=0)
    with pytest.raises(LeaseOver):
        over.agree()


def test_what_the_market_traded_at_is_not_touched() -> None:
    site = Priced()
    traded = [each.event for each in site.events() if isinstance(each.event, LeaseGranted)]
    site.propose(3)
    site.agree()

    site.run()
    found = [each.event for each in site.events() if isinstance(each.event, LeaseGranted)]
    assert found == traded
    book = site.engine._book
    assert book is not None
    assert book.held[site.of_lease].granted.price == rate(3), "it counts as who pays that"


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["propose", "agree", "decline", "floor", "rival", "wait", "extend"]),
        st.sampled_from([OWNER, TENANT]),
        st.integers(0, 5),
    ),
    max_size=12,
)


@settings(max_examples=40, deadline=None)
@given(STEPS)
def test_without_consent_of_both_no_price_ever_changes(
    steps: list[tuple[str, TenantId, int]],
) -> None:
    site, agreed = Priced(funds=400), 0
    for number, (what, who, choice) in enumerate(steps):
        with suppress(Refusal):
            match what:
                case "propose":
                    site.propose(2 + choice, who=who, hours=2 + choice / 4, word=f"p{number}")
                case "agree":
                    before = len(repriced(site))
                    site.agree(f"p{max(0, number - 1 - choice)}", who=who)
                    agreed += len(repriced(site)) - before
                case "decline":
                    site.decline(f"p{max(0, number - 1 - choice)}", who=who)
                case "floor":
                    offer_id = site.lease.terms.shares[0].offer_id
                    reprice_offer(
                        site.store,
                        offer_id=offer_id,
                        floor=rate(1 + choice),
                        by=somebody(),
                        now=site.now,
                    )
                case "rival":
                    site.offer(f"b{number}", gpus=2, at=1 + choice)
                    site.run()
                case "wait":
                    site.wait(minutes=choice * 3)
                case "extend":
                    request_extension(
                        site.store,
                        lease_id=site.of_lease,
                        ends_at=site.lease.ends_at + HOUR,
                        by=somebody(),
                        now=site.now,
                    )
                    site.run()
                    site.go()
    changes = repriced(site)
    assert len(changes) == agreed
    if not changes:
        assert site.lease.price_at(site.lease.ends_at) == rate(2)
    ends = (site.lease.ends_at, site.lease.extension_asked or site.lease.ends_at)
    assert site.set_aside() in [site.lease.cost_at_most(ends_at=until) for until in ends]
    assert all(before.since < after.since for before, after in pairwise(changes))
