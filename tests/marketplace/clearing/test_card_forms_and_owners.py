"""What an owner does to an offer by demand holds, also while the market changes its form."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from ledger.domain.ids import OfferId
from ledger.domain.refusal import Refusal
from ledger.eventstore.port import EventStore, load
from ledger.eventstore.postgres import PostgresStore
from ledger.eventstore.together import record_together
from listings import commands
from listings.domain.changes import TermsChange
from listings.domain.hosts import Host
from listings.domain.offers import Offer
from tests.marketplace.support.card_forms import (
    BY_OWNER,
    FIRST,
    HOST,
    QUARTERS,
    WHOLE,
    list_card,
    listed,
    reform,
    usd,
)
from tests.marketplace.support.market import Market

BETTER = TermsChange(notice_seconds=7_200, reclaim_fee_ppm=300_000)


def change(store: EventStore, market: Market) -> None:
    commands.change_offer(
        store, offer_id=FIRST, floor=usd("3.00"), terms=BETTER, by=BY_OWNER, now=market.now
    )


def pause(store: EventStore, market: Market) -> None:
    commands.pause_offer(store, offer_id=FIRST, by=BY_OWNER, now=market.now)


def withdraw(store: EventStore, market: Market, offer_id: OfferId = FIRST) -> None:
    commands.withdraw_offer(store, offer_id=offer_id, by=BY_OWNER, now=market.now)


def test_terms_that_changed_meanwhile_go_into_the_new_form(monkeypatch: pytest.MonkeyPatch) -> None:
    market = Market()
    list_card(market)
    seen = listed(market)
    market.wait(minutes=10)

    def late(*asked: Any, **how: Any) -> Any:
        change(market.store, market)
        return record_together(*asked, **how)

    monkeypatch.setattr(commands, "record_together", late)
    reform(market.store, seen, QUARTERS, now=market.now)

    offer = listed(market)
    assert offer.offer_id != FIRST and offer.by_demand is not None
    assert (offer.notice_seconds, offer.reclaim_fee_ppm) == (7_200, 300_000)
    assert offer.by_demand.forms[0].floor == usd("3.00"), "of the form it was in"


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("committed_store")
@pytest.mark.parametrize("does", [change, pause, withdraw])
def test_what_an_owner_was_told_is_done_holds_however_close_it_comes(
    monkeypatch: pytest.MonkeyPatch, does: Callable[[EventStore, Market], None]
) -> None:
    """The owner asks when the change of form is decided and not yet written."""
    store, plain = PostgresStore(), PostgresStore.append_each
    market = Market(store)
    list_card(market)
    seen = listed(market)
    market.wait(minutes=10)
    decided, refused = threading.Event(), list[str]()

    def owner() -> None:
        try:
            assert decided.wait(20)
            does(PostgresStore(), market)
        except Refusal as refusal:
            refused.append(refusal.code)
        finally:
            connection.close()

    thread = threading.Thread(target=owner)

    def slow(self: PostgresStore, writes: Sequence[Any]) -> Any:
        if not decided.is_set():
            decided.set()
            thread.join(0.5)  # long enough to come in between, if nothing keeps it out
        return plain(self, writes)

    thread.start()
    monkeypatch.setattr(PostgresStore, "append_each", slow)
    try:
        reform(store, seen, QUARTERS, now=market.now)
    except Refusal as refusal:
        assert refusal.code in {"offer-is-paused", "offer-is-withdrawn", "offer-is-gone"}
    thread.join(20)

    host = load(store, Host, HOST)
    assert host is not None
    if refused:
        assert does is not withdraw, "an owner can always withdraw"
        assert refused == ["offer-is-withdrawn"], "it is told that this one is no more"
        return
    if does is withdraw:
        assert not host.listed
        return
    (offer,) = host.listed.values()
    if does is pause:
        assert offer.offer_id == FIRST, "a paused card is on the market"
    else:
        assert offer.notice_seconds == 7_200


def test_an_offer_is_withdrawn_in_whatever_form_it_is_by_now() -> None:
    """Its owner has the id of the first; a loop has changed its form twice."""
    market = Market()
    list_card(market)
    for number, form in ((701, QUARTERS), (702, WHOLE)):
        market.wait(minutes=10)
        reform(
            market.store, listed(market), form, now=market.now, offer_id=OfferId(UUID(int=number))
        )
    assert listed(market).offer_id == UUID(int=702)

    withdraw(market.store, market)
    withdraw(market.store, market)

    host = load(market.store, Host, HOST)
    assert host is not None and not host.listed
    states = [load(market.store, Offer, OfferId(UUID(int=each))) for each in (701, 702)]
    assert [each.state for each in states if each is not None] == ["withdrawn", "withdrawn"]


def test_an_offer_that_was_listed_anew_is_not_withdrawn_for_one_before() -> None:
    market = Market()
    list_card(market)
    market.wait(minutes=10)
    reform(market.store, listed(market), QUARTERS, now=market.now)
    withdraw(market.store, market)
    market.wait(minutes=10)
    list_card(market, offer_id=OfferId(UUID(int=800)))

    withdraw(market.store, market)

    assert listed(market).offer_id == UUID(int=800)
