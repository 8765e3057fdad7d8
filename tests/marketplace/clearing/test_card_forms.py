"""Offers by demand: an idle card takes the form that the bids that wait would pay most for."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.domain.ids import OfferId
from ledger.domain.money import Money, Rate
from ledger.domain.refusal import Refusal
from ledger.eventstore.port import load
from listings import commands
from listings.domain.changes import TermsChange
from listings.domain.divisions import SharesUnfit, card_of
from listings.domain.events import (
    ByDemand,
    Chosen,
    Division,
    Form,
    FormChosen,
    OfferPublished,
    OfferWithdrawn,
)
from listings.domain.forms import (
    FormNotAllowed,
    FormsUnfit,
    FormTooYoung,
    check_by_demand,
)
from listings.domain.hosts import Host, OfferIsGone
from listings.domain.offers import Offer
from listings.domain.permit_events import ListingAllowed
from listings.policies import POLICIES
from marketplace.domain.bids.query_language import read_query
from marketplace.domain.clearing.card_form import Worth, better
from marketplace.domain.facts.events import LeaseClosed, LeaseGranted
from marketplace.forming import choose_forms
from tests.marketplace.support.card_forms import (
    BY_OWNER,
    FIRST,
    HOST,
    QUARTERS,
    WHOLE,
    by_demand,
    list_card,
    listed,
    reform,
    usd,
)
from tests.marketplace.support.card_forms import market as market
from tests.marketplace.support.market import MARKET, Market

HALVES = Division("mps", 2)
HOUR = timedelta(hours=1)


def choose(market: Market) -> int:
    return choose_forms(market.store, market=MARKET, now=market.now)


def small(market: Market, word: str, at: str = "0.80", hours: float = 1) -> None:
    market.bid(word, at=float(at), hours=hours, request=read_query("isolation=mps memory>=8GiB"))


def test_a_card_that_nobody_wants_whole_is_divided_for_those_who_want_parts(
    market: Market,
) -> None:
    list_card(market)
    for word in "abc":
        small(market, word)
    market.wait(minutes=10)
    assert listed(market).division is None

    assert choose(market) == 1

    offer = listed(market)
    assert offer.division == Division("mps", 4) and offer.isolation == "mps"
    assert offer.floor == usd("0.60")
    assert offer.chosen is not None
    assert offer.chosen.instead_of == FIRST
    assert (offer.chosen.bids, offer.chosen.bids_before) == (3, 0)
    assert offer.chosen.worth == Money(2_400_000_000, "USD")
    assert offer.chosen.worth_before == Money(0, "USD")
    old = load(market.store, Offer, FIRST)
    assert old is not None and old.state == "withdrawn"
    market.run()
    assert len(market.grants()) == 3
    assert {granted.shares[0].offer_id for granted in market.grants().values()} == {offer.offer_id}


def test_a_divided_card_becomes_whole_again_for_who_pays_more(market: Market) -> None:
    list_card(market, by_demand((Division("mps", 4), "0.60"), (None, "2.00")))
    market.bid("big", at=2.5, hours=2, request=read_query("memory>=60GiB"))
    market.wait(minutes=10)

    assert choose(market) == 1

    assert listed(market).isolation == "whole"
    market.run()
    assert len(market.grants()) == 1


def test_mig_layouts_are_forms_too(market: Market) -> None:
    halves, sevenths = (
        Division("mig", profiles=("3g.40gb", "3g.40gb")),
        Division("mig", profiles=("1g.10gb",) * 7),
    )
    list_card(market, by_demand((sevenths, "0.30"), (halves, "1.00")), mig=True)
    for word in "ab":
        market.bid(word, at=1.5, request=read_query("isolation=mig memory>=30GiB"))
    market.wait(minutes=10)

    assert choose(market) == 1

    assert [gpu.uuid for gpu in listed(market).gpus] == [
        "GPU-a/mig-3g.40gb@0-3",
        "GPU-a/mig-3g.40gb@4-7",
    ]
    market.run()
    assert len(market.grants()) == 2


def test_a_form_stays_for_as_long_as_its_owner_wants(market: Market) -> None:
    list_card(market)
    small(market, "a")
    market.wait(minutes=10, seconds=-1)
    assert choose(market) == 0

    market.wait(seconds=1)

    assert choose(market) == 1
    assert choose(market) == 0


@pytest.mark.parametrize("starts_in", [0, 5])
def test_a_card_that_is_leased_now_or_later_keeps_its_form(market: Market, starts_in: int) -> None:
    list_card(market)
    market.bid(
        "whole", at=2, hours=1, start=market.now + starts_in * HOUR, request=read_query("gpu=H100")
    )
    market.run()
    assert len(market.grants()) == 1
    for word in "abcd":
        small(market, word, hours=10)
    market.wait(minutes=20)

    assert choose(market) == 0

    market.wait(hours=7)
    market.run()
    assert choose(market) == 1


def test_what_other_gpus_can_serve_changes_nothing(market: Market) -> None:
    list_card(market)
    market.offer("other", at=0.5, division=Division("mps", 4))
    for word in "abc":
        market.bid(
            word, at=0.8, request=read_query("isolation=mps memory>=8GiB"), patience="patient"
        )
    market.wait(minutes=10)

    assert choose(market) == 0


def test_a_form_that_its_owner_may_no_longer_list_is_passed_over(market: Market) -> None:
    list_card(market, by_demand((None, "2.00"), (Division("mps", 4), "0.60"), (HALVES, "0.60")))
    for word in "abc":
        small(market, word)
    permitted = ListingAllowed(
        market=MARKET, tenant_id=None, gpu_class="H100-mps.25.20gb", allowed=False, at=market.now
    )
    commands.allow_listing(market.store, permitted=permitted, by_platform=True, by=BY_OWNER)
    market.wait(minutes=10)

    assert choose(market) == 1

    assert listed(market).division == HALVES


def test_a_paused_offer_and_one_that_is_gone_are_left_alone(market: Market) -> None:
    list_card(market)
    small(market, "a")
    market.wait(minutes=10)
    commands.pause_offer(market.store, offer_id=FIRST, by=BY_OWNER, now=market.now)
    assert choose(market) == 0
    commands.withdraw_offer(market.store, offer_id=FIRST, by=BY_OWNER.step("gone"), now=market.now)

    assert choose(market) == 0


def test_a_new_floor_of_the_owner_stays_with_its_form(market: Market) -> None:
    list_card(market)
    commands.reprice_offer(
        market.store, offer_id=FIRST, floor=usd("1.70"), by=BY_OWNER, now=market.now
    )
    small(market, "a")
    market.wait(minutes=10)
    choose(market)
    offer = listed(market)
    assert offer.by_demand == by_demand((None, "1.70"), (Division("mps", 4), "0.60"))
    market.bid("big", at=1.8, hours=9, request=read_query("memory>=60GiB"))
    market.wait(minutes=10)

    assert choose(market) == 1

    assert (listed(market).isolation, listed(market).floor) == ("whole", usd("1.70"))
    assert listed(market).offer_id not in (FIRST, offer.offer_id)


def test_new_terms_of_the_owner_go_along_into_the_next_form(market: Market) -> None:
    list_card(market)
    stale = listed(market)
    commands.change_offer(
        market.store,
        offer_id=FIRST,
        terms=TermsChange(notice_seconds=7_200, reclaim_fee_ppm=300_000),
        by=BY_OWNER,
        now=market.now,
    )
    market.wait(minutes=10)

    reform(market.store, stale, QUARTERS, now=market.now)

    offer = listed(market)
    assert (offer.isolation, offer.offer_id) != ("whole", FIRST)
    assert (offer.notice_seconds, offer.reclaim_fee_ppm) == (7_200, 300_000)


def test_whoever_withdraws_first_is_obeyed(market: Market) -> None:
    """The choice rests on a book that may lag; the streams decide."""
    list_card(market)
    small(market, "a")
    market.wait(minutes=10)
    offer = listed(market)
    commands.withdraw_offer(market.store, offer_id=FIRST, by=BY_OWNER, now=market.now)
    head = market.store.head()

    with pytest.raises(OfferIsGone):
        reform(market.store, offer, QUARTERS, now=market.now)

    assert market.store.head() == head


def test_forms_that_the_owner_does_not_allow_and_changes_too_soon_are_refused(
    market: Market,
) -> None:
    list_card(market)
    offer = listed(market)
    with pytest.raises(FormTooYoung):
        reform(market.store, offer, QUARTERS, now=market.now + timedelta(seconds=599))
    later = market.now + timedelta(seconds=600)
    for form in (WHOLE, Form(Division("mps", 3), usd("1"))):
        with pytest.raises(FormNotAllowed):
            reform(market.store, offer, form, now=later)


@pytest.mark.parametrize(
    "wanted",
    [
        by_demand((None, "1")),
        by_demand((None, "1"), (None, "2")),
        by_demand(*((Division("mps", n), "1") for n in range(2, 11))),
        by_demand((None, "1"), (Division("mps", 2), "1"), seconds=299),
        by_demand((None, "1"), (Division("mps", 2), "1"), seconds=700_000),
        ByDemand((WHOLE, Form(Division("mps", 2), Rate(1, "EUR")))),
    ],
)
def test_forms_are_two_to_eight_and_all_different(wanted: ByDemand) -> None:
    with pytest.raises(FormsUnfit):
        check_by_demand(wanted, usd("1"))


def test_every_form_must_be_one_that_the_card_can_take(market: Market) -> None:
    """MIG mode is on or off, so no card can be whole at one time and in instances at another."""
    ways = by_demand((None, "2.00"), (Division("mig", profiles=("1g.10gb",) * 7), "0.30"))

    for mig in (True, False):
        with pytest.raises(Refusal) as refused:
            list_card(Market(), ways, mig=mig)
        assert refused.value.code == ("mig-mode-on" if mig else "shares-unfit")
    with pytest.raises(SharesUnfit):
        list_card(market, by_demand((None, "2.00"), (Division("mps", 99), "0.30")))


def test_a_process_that_dies_half_way_is_finished_by_policies(market: Market) -> None:
    list_card(market)
    offer = listed(market)
    market.wait(minutes=10)
    host = load(market.store, Host, HOST)
    assert host is not None and offer.by_demand is not None
    (chosen,) = host.reform(
        offer,
        offer.by_demand.forms[1],
        floor=offer.floor,
        offer_id=OfferId(UUID(int=701)),
        chosen=Chosen(FIRST, Money(2, "USD"), Money(1, "USD"), 1, 1),
        now=market.now,
    )
    market.put(f"host-{HOST}", chosen)

    for recorded in market.store.read_all(limit=1_000).events:
        for policy in POLICIES:
            if recorded.event.name in policy.on:
                policy.react(recorded, market.store)

    old = load(market.store, Offer, FIRST)
    assert old is not None and old.state == "withdrawn"
    assert listed(market).offer_id == OfferId(UUID(int=701))


amounts = st.integers(0, 10**12)


@given(amounts, st.lists(amounts, max_size=7))
def test_a_form_changes_only_for_a_tenth_more(current: int, others: list[int]) -> None:
    worths = [Worth(Form(Division("mps", n + 2)), nanos, ()) for n, nanos in enumerate(others)]

    best = better(Worth(WHOLE, current, ()), worths)

    if best is None:
        assert all(nanos * 10 <= current * 11 for nanos in others)
    else:
        assert best.nanos == max(others) and best.nanos * 10 > current * 11
        assert best is worths[others.index(best.nanos)]
        # So the one there was is no better than the new one: nothing goes back and forth.
        assert better(best, [Worth(WHOLE, current, ()), *worths]) is None


def play(seed: int) -> Iterator[Market]:
    """Play a random day of one card by demand, and yield the market after each pass."""
    rng = Random(seed)
    market = Market()
    ways = (
        ((None, "2.00"), (Division("mps", 4), "0.50"), (Division("timeslice", 2), "0.80")),
        (
            (Division("mig", profiles=("7g.80gb",)), "2.00"),
            (Division("mig", profiles=("3g.40gb", "2g.20gb", "1g.10gb")), "0.50"),
            (Division("mig", profiles=("1g.10gb",) * 7), "0.20"),
        ),
    )[seed % 2]
    list_card(market, by_demand(*ways), mig=bool(seed % 2))
    queries = ("", "memory>=60GiB", "isolation=mig", "isolation=mps", "isolation=timeslice")
    for act in range(60):
        market.wait(minutes=rng.choice((1, 7, 20)))
        if rng.random() < 0.6:
            market.bid(
                f"b{act}",
                at=rng.choice((0.3, 0.7, 1, 2.5, 4)),
                hours=rng.choice((0.25, 1, 2)),
                start=market.now + rng.choice((0, 0, 1)) * HOUR,
                deadline=market.now + rng.choice((4, 12)) * HOUR,
                request=read_query(rng.choice(queries)),
                patience=rng.choice(("immediate", "patient")),
            )
        if rng.random() < 0.5:
            market.run()
        choose(market)
        yield market


@pytest.mark.parametrize("seed", [0, 1, 3, 4, 5, 6, 7, 8, 9, 11])
def test_whatever_comes_a_card_changes_only_while_it_is_idle_and_is_in_one_form(seed: int) -> None:
    *_, market = play(seed)
    market.run()

    events = [each.event for each in market.store.read_all(limit=100_000).events]
    chosen = [each for each in events if isinstance(each, FormChosen)]
    grants = [each for each in events if isinstance(each, LeaseGranted)]
    assert chosen and grants
    for each in chosen:
        # No lease that was granted before stands on the card at that moment or later.
        before = events[: events.index(each)]
        standing = [
            granted
            for granted in before
            if isinstance(granted, LeaseGranted) and granted.window.ends_at > each.at
        ]
        closed = {done.lease_id for done in before if isinstance(done, LeaseClosed)}
        assert not [granted for granted in standing if granted.lease_id not in closed]
        why = each.offer.chosen
        assert why is not None and why.worth.nanos * 10 > why.worth_before.nanos * 11
    published = [each for each in events if isinstance(each, OfferPublished)]
    gone = {each.offer_id: each.at for each in events if isinstance(each, OfferWithdrawn)}
    for old, new in pairwise(published):
        assert gone[old.offer_id] <= new.at
        assert new.at - old.at >= timedelta(seconds=600)
        assert (new.windows, new.weekly, new.notice_seconds) == (
            old.windows,
            old.weekly,
            old.notice_seconds,
        )
        assert {card_of(gpu.uuid) for gpu in new.gpus} == {"GPU-a"}
    spans = sorted(
        (granted.window.starts_at, granted.window.ends_at, granted.shares[0].offer_id)
        for granted in grants
    )
    for starts, ends, offer_id in spans:
        for begins, over, other in spans:
            assert offer_id == other or ends <= begins or over <= starts
