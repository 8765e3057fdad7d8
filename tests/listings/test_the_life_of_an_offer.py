from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from ledger.domain.money import Rate
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import load
from listings import commands
from listings.domain.offers import (
    CurrencyDiffers,
    Offer,
    OfferIsExpired,
    OfferIsWithdrawn,
    OfferNotOver,
)
from tests.conftest import NOON
from tests.listings.conftest import ADA, OFFER, OTHER_OFFER, publish

AFTER = NOON + timedelta(hours=14)
"""When the one window of the offer ends."""

Ask = Callable[[MemoryStore], object]


def reprice(store: MemoryStore) -> object:
    return commands.reprice_offer(
        store, offer_id=OFFER, floor=Rate(2_000_000_000), by=ADA, now=NOON
    )


def pause(store: MemoryStore) -> object:
    return commands.pause_offer(store, offer_id=OFFER, by=ADA, now=NOON)


def resume(store: MemoryStore) -> object:
    return commands.resume_offer(store, offer_id=OFFER, by=ADA, now=NOON)


def withdraw(store: MemoryStore) -> object:
    return commands.withdraw_offer(store, offer_id=OFFER, by=ADA, now=NOON)


def expire(store: MemoryStore) -> object:
    return commands.expire_offer(store, offer_id=OFFER, by=ADA, now=AFTER)


@pytest.mark.parametrize("ask", [reprice, pause, resume, withdraw, expire])
def test_asking_twice_is_asking_once(market: MemoryStore, ask: Ask) -> None:
    publish(market)
    if ask is resume:
        pause(market)
    first, head = ask(market), market.head()

    again = ask(market)

    assert again == first
    assert market.head() == head


def test_a_paused_offer_is_listed_again_at_its_new_floor(market: MemoryStore) -> None:
    publish(market)

    pause(market)
    reprice(market)
    resume(market)

    offer = load(market, Offer, OFFER)
    assert offer is not None
    assert (offer.state, offer.floor) == ("listed", Rate(2_000_000_000))


@pytest.mark.parametrize("ask", [reprice, pause, resume])
def test_a_withdrawn_offer_does_not_change(market: MemoryStore, ask: Ask) -> None:
    publish(market)
    withdraw(market)

    with pytest.raises(OfferIsWithdrawn):
        ask(market)


def test_an_offer_that_is_over_does_not_change_before_it_is_swept(market: MemoryStore) -> None:
    publish(market)

    with pytest.raises(OfferIsExpired):
        commands.pause_offer(market, offer_id=OFFER, by=ADA, now=AFTER)


@pytest.mark.parametrize("first", [None, pause])
def test_every_open_state_expires(market: MemoryStore, first: Ask | None) -> None:
    publish(market)
    if first:
        first(market)

    expire(market)

    offer = load(market, Offer, OFFER)
    assert offer is not None
    assert offer.state == "expired"
    publish(market, OTHER_OFFER)


def test_an_offer_with_a_window_to_come_does_not_expire(market: MemoryStore) -> None:
    publish(market)

    with pytest.raises(OfferNotOver):
        commands.expire_offer(market, offer_id=OFFER, by=ADA, now=AFTER - timedelta(microseconds=1))


def test_withdrawing_is_always_possible(market: MemoryStore) -> None:
    publish(market)
    pause(market)
    withdraw(market)

    commands.withdraw_offer(market, offer_id=OFFER, by=ADA, now=AFTER)

    offer = load(market, Offer, OFFER)
    assert offer is not None
    assert offer.state == "withdrawn"


def test_the_floor_stays_in_its_currency(market: MemoryStore) -> None:
    publish(market)

    with pytest.raises(CurrencyDiffers):
        commands.reprice_offer(market, offer_id=OFFER, floor=Rate(1, "EUR"), by=ADA, now=NOON)
