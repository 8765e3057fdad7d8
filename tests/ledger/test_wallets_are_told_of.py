"""Who is told what of a wallet."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest

from ledger import commands
from ledger.domain.ids import PaymentId
from ledger.domain.money import Money
from ledger.domain.notice_events import NoticeGiven
from ledger.domain.parties import PLATFORM_ID, tenant_id_of
from ledger.domain.wallet_events import (
    AutomaticTopUpEnded,
    PaymentDisputeClosed,
    PaymentDisputed,
    PaymentFailed,
)
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import NewEvent
from ledger.funding.telling import tell_of_wallets, words
from tests.conftest import NOON, SOMEBODY
from tests.ledger import ledgerbook as book

DISPUTED = PaymentDisputed(
    account_id=book.FUNDS,
    dispute="du_1",
    intent="pi_1",
    money=Money(25_000_000_000),
    reason="fraudulent",
    at=NOON,
)


def test_a_declined_card_is_told_of_and_a_page_that_ran_out_is_not() -> None:
    def failed(declined: bool) -> PaymentFailed:
        return PaymentFailed(
            account_id=book.FUNDS,
            payment_id=PaymentId(uuid4()),
            reason="Your card was declined.",
            declined=declined,
            at=NOON,
        )

    said = words(failed(True))
    assert said is not None and "Your card was declined." in said[1]
    assert words(failed(False)) is None


def test_what_somebody_wanted_themselves_is_not_told() -> None:
    ended = AutomaticTopUpEnded(account_id=book.FUNDS, reason="", at=NOON)
    assert words(ended) is None


@pytest.mark.parametrize(("won", "said"), [(True, "for us"), (False, "against us")])
def test_how_a_chargeback_ended_is_told(won: bool, said: str) -> None:
    told = words(PaymentDisputeClosed(account_id=book.FUNDS, dispute="du_1", won=won, at=NOON))
    assert told is not None and said in told[0]


def test_a_chargeback_is_told_to_both_once_and_only_while_it_is_news(store: MemoryStore) -> None:
    for slug in ("platform", "cirrus"):
        commands.register_tenant(
            store, slug=slug, title=slug.title(), currency="USD", by=SOMEBODY, now=NOON
        )
    book.open_funds(store, tenant=tenant_id_of("cirrus"))
    store.append("wallet-1", [NewEvent(uuid4(), DISPUTED)], expected=0, by=SOMEBODY)
    [recorded] = store.read_stream("wallet-1")

    tell_of_wallets(recorded, store, clock=lambda: NOON + timedelta(days=30))
    assert given(store) == []
    for _ in range(2):
        tell_of_wallets(recorded, store, clock=lambda: NOON)

    told = given(store)
    assert {each.tenant_id for each in told} == {tenant_id_of("cirrus"), PLATFORM_ID}
    assert [each.title for each in told] == ["Astro: a bank took 25.00 USD back"] * 2


def given(store: MemoryStore) -> list[NoticeGiven]:
    events = [each.event for each in store.read_all().events]
    return [each for each in events if isinstance(each, NoticeGiven)]
