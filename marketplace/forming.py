"""Offers by demand: a pass that puts idle ones into the form that waiting bids would pay most for.

It reads the market as a quote does and writes by the commands of the supply side, so a book that
lags costs a choice that the owner's streams refuse, or a form that waits for a lease to end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from uuid import uuid5

import structlog

from ledger.domain.ids import OfferId
from ledger.domain.money import Money, Rate
from ledger.domain.refusal import Refusal
from ledger.eventstore.port import EventStore, Meta, load
from ledger.turns import turns_of
from listings import commands
from listings.domain.events import Chosen, Form, OfferPublished
from listings.domain.hosts import Host
from listings.domain.permits import ListingPermits, need_permits
from listings.domain.terms import cards_of, in_pieces
from marketplace.domain.book.book import Book
from marketplace.domain.clearing.card_form import (
    Worth,
    better,
    is_due,
    is_idle,
    waiting_for,
    worth_of,
)
from marketplace.domain.facts.instants import Millis, from_above
from marketplace.domain.orderbook.listed_offer import Listed
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.queries.books import MarketCannotTell, book_of

LOOKED_AT = 50
"""Offers that are weighed in a pass: each with all bids that wait, once for each of its forms."""
FORMER = Meta(actor="loop:forms")

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Choice:
    """An offer, the form that it is to take, and why."""

    offer: OfferPublished
    form: Form
    chosen: Chosen


def choose_forms(store: EventStore, *, market: str, now: datetime) -> int:
    """Put idle offers by demand into the form that is worth most; return how many changed."""
    try:
        with book_of(store, market) as book:
            choices = list(_choices(store, book, from_above(now)))
    except MarketCannotTell:
        return 0  # logged there; the next pass reads the market anew
    return sum(_choose(store, choice, now) for choice in choices)


def _choices(store: EventStore, book: Book, now: Millis) -> Iterator[Choice]:
    """Yield what is to change, each bid counted on by one offer: the oldest first."""
    due = [
        listed
        for listed in sorted(book.offers.values(), key=lambda each: each.published)
        if not listed.paused and is_due(listed.terms, now=now)
    ]
    idle = {listed.published: listed for listed in due if is_idle(book, listed.terms, now=now)}

    def page(after: tuple[int] | None, limit: int) -> list[tuple[int]]:
        return [(key,) for key in idle if after is None or key > after[0]][:limit]

    taken: list[OpenBid] = []
    # Offers that keep their form stay due: the next pass looks at those behind them.
    for (key,) in turns_of(store, f"forms-{book.market}").take(page, LOOKED_AT):
        listed = idle[key]
        bids = waiting_for(book, listed, now=now, taken=taken)
        if not bids:
            continue
        worths = list(_worths(store, book, listed, bids, now))
        current = next(each for each in worths if each.form.division == listed.terms.division)
        best = better(current, [each for each in worths if each is not current])
        taken += (best or current).served
        if best is not None:
            yield Choice(listed.terms, best.form, _reasons(listed, current, best))


def _worths(
    store: EventStore, book: Book, listed: Listed, bids: list[OpenBid], now: Millis
) -> Iterator[Worth]:
    """Yield what each form is worth; none that its cards cannot take, or its owner not list."""
    offer = listed.terms
    host = load(store, Host, offer.host_id)
    permits = load(store, ListingPermits, offer.market)
    assert host is not None and offer.by_demand is not None
    for form in offer.by_demand.forms:
        is_current = form.division == offer.division
        if is_current:
            gpus, floor = offer.gpus, Rate(listed.floor, offer.floor.currency)
            at_floor = Form(form.division, floor)
        else:
            at_floor = form
            try:
                cards = [host.gpus[uuid] for uuid in cards_of(offer)]
                gpus = tuple(in_pieces(form.division, cards))
                need_permits(permits, offer.tenant_id, {gpu.model for gpu in gpus})
            except (Refusal, KeyError):
                continue
        round_id = uuid5(offer.offer_id, "worth")
        worth = worth_of(book, offer, at_floor, gpus, bids, now=now, round_id=round_id)
        yield Worth(form, worth.nanos, worth.served)


def _reasons(listed: Listed, current: Worth, best: Worth) -> Chosen:
    currency = listed.terms.floor.currency
    return Chosen(
        instead_of=listed.offer_id,
        worth=Money(best.nanos, currency),
        worth_before=Money(current.nanos, currency),
        bids=len(best.served),
        bids_before=len(current.served),
    )


def _choose(store: EventStore, choice: Choice, now: datetime) -> bool:
    try:
        commands.choose_form(
            store,
            offer=choice.offer,
            form=choice.form,
            offer_id=OfferId(uuid5(choice.offer.offer_id, "form")),
            chosen=choice.chosen,
            by=FORMER,
            now=now,
        )
    except Refusal as refusal:
        # Its owner was faster, or the card is another now: the others go on.
        log.info("offer.form-stays", offer=str(choice.offer.offer_id), code=refusal.code)
        return False
    return True
