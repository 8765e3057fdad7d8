"""Who pays owners at the same moment: each payout is asked for once, and is in one file only."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from uuid import UUID, uuid4

import pytest
from django.db import connection

from ledger.commands import payouts as commands
from ledger.domain.bank_details import BankDetails
from ledger.domain.bank_files import BankFiles, Debtor, Draft
from ledger.domain.payout_events import BankFileLine, BankFileWritten
from ledger.domain.refusal import Refusal
from ledger.eventstore.port import load
from ledger.eventstore.postgres import PostgresStore
from tests.conftest import NOON, SOMEBODY
from tests.ledger import ledgerbook as book
from tests.ledger import paying
from tests.ledger.ledgerbook import usd
from tests.ledger.paying import IRIS, JOAN, OSCAR, earned

pytestmark = pytest.mark.django_db(transaction=True)
AT_ONCE = 4


@pytest.fixture
def store(committed_store: None) -> PostgresStore:
    made = PostgresStore()
    book.open_everybody(made)
    return made


def at_once(ask: Callable[[], object]) -> list[object]:
    """Ask in several threads; return what came back or was refused."""

    def alone() -> object:
        try:
            return ask()
        except Refusal as refusal:
            return refusal.code
        finally:
            connection.close()

    with ThreadPoolExecutor(AT_ONCE) as threads:
        return [each.result() for each in [threads.submit(alone) for _ in range(AT_ONCE)]]


def with_details(store: PostgresStore) -> UUID:
    details_id = uuid4()
    commands.propose_bank_details(
        store,
        paying.of(),
        BankDetails(name="Lab", iban="DE89370400440532013000"),
        details_id=details_id,
        wait_seconds=0,
        user_id=IRIS,
        by=SOMEBODY,
        now=NOON,
    )
    commands.confirm_bank_details(
        store, paying.EARNINGS, details_id, user_id=IRIS, by=SOMEBODY, now=NOON
    )
    return details_id


def test_settlements_that_meet_request_one_payout(store: PostgresStore) -> None:
    found = at_once(lambda: paying.settle(store, earned(usd(50).nanos)))
    assert len(set(found)) == 1
    assert len(paying.payee(store).payouts) == 1
    assert paying.payee(store).paid_out == usd(50).nanos


def test_people_who_pay_out_at_once_pay_out_once(store: PostgresStore) -> None:
    found = at_once(lambda: paying.settle(store, earned(usd(50).nanos), user=JOAN))
    assert found.count("nothing-payable") == AT_ONCE - 1
    assert paying.payee(store).paid_out == usd(50).nanos


def test_files_that_are_written_at_once_share_no_payout(store: PostgresStore) -> None:
    details_id, payout = with_details(store), paying.settle(store, earned(usd(50).nanos))
    assert payout is not None
    paying.approve(store, payout, OSCAR)

    def write() -> object:
        line = BankFileLine(
            payout_id=payout,
            account_id=paying.EARNINGS,
            details_id=details_id,
            end_to_end_id="OP-1",
            nanos=usd(50).nanos,
        )
        draft = Draft(
            file_id=uuid4(),
            format="csv",
            currency="USD",
            debtor=Debtor(),
            execute_on=date(2026, 1, 6),
            lines=[line],
        )
        return commands.write_bank_file(
            store,
            draft,
            render=lambda event: event.message_id.encode(),
            platform_id=book.PLATFORM,
            user_id=JOAN,
            by=SOMEBODY,
            now=NOON,
        )

    found = at_once(write)
    assert found.count("payout-state-otherwise") == AT_ONCE - 1
    events = [each.event for each in store.read_all(limit=1_000).events]
    assert sum(isinstance(each, BankFileWritten) for each in events) == 1
    files = load(store, BankFiles, book.PLATFORM)
    assert files is not None and files.count == 1
