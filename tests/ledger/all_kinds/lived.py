"""A month in which money of every kind moves once, step by step; each step may be asked again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from hashlib import sha256
from typing import Any
from uuid import UUID, uuid5

from ledger import commands, invoicing, paying
from ledger.commands import closing, invoices, payouts, refunds, wallet
from ledger.commands.disputes import decide_dispute, open_dispute_about
from ledger.commands.sla import credit_missed_sla
from ledger.commands.storage import charge_volume
from ledger.domain.accounts import Account
from ledger.domain.bank_files import Debtor, Draft
from ledger.domain.closing import Check
from ledger.domain.dispute_events import DisputeOpened
from ledger.domain.disputes import Charge, dispute_of
from ledger.domain.ids import AccountId, HoldId, LeaseId, PaymentId, RefundId, TenantId
from ledger.domain.invoices import invoice_id_of
from ledger.domain.journal import ENTRY_KINDS, usage_entry
from ledger.domain.money import Money, Rate
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.payees import Payee
from ledger.domain.payout_events import BankFileLine
from ledger.domain.periods import Period
from ledger.domain.sla_credits import SlaMiss
from ledger.domain.span import Window
from ledger.domain.storage_charges import Kept
from ledger.eventstore.port import EventStore, load
from ledger.following import follow_projections
from ledger.models import PayeeRow
from ledger.policies import POLICIES
from ledger.reacting import follow_policies
from tests.conftest import SOMEBODY
from tests.ledger import ledgerbook as book
from tests.ledger.all_kinds.world import (
    JOAN,
    OSCAR,
    OWNERS,
    READ,
    START,
    UNITS,
    details_of,
    earnings,
)

WALLET, CREDIT, BUDGET = (each.account_id for each in UNITS[:3])
MONTH = Period.of(START)
AFTER = MONTH.window.ends_at + timedelta(days=3)
MET = Check(name="trial-balance", title="Trial balance", passed=True, words="")
PRICE = Rate(1_730_000_001)
INVOICE = invoice_id_of(BUDGET, MONTH)
Step = tuple[str, Callable[[EventStore], object]]


def named(what: str) -> UUID:
    """Return the id that something has in every life."""
    return uuid5(book.WORLD, f"lived {what}")


def hold_of(number: int) -> HoldId:
    """Return one of the holds."""
    return HoldId(named(f"hold {number}"))


def lease_of(number: int) -> LeaseId:
    """Return the lease of a hold."""
    return LeaseId(named(f"lease {number}"))


def hour(number: int) -> Window:
    """Return an hour after the start."""
    return Window(START + number * book.HOUR, START + (number + 1) * book.HOUR)


def usd(units: float) -> Money:
    return Money(round(units * 1_000_000_000))


def step(name: str, ask: Callable[..., object], *, now: datetime = START, **terms: Any) -> Step:
    return name, lambda store: ask(store, by=SOMEBODY, now=now, **terms)


def top_ups() -> Iterator[Step]:
    """By hand and by card, one of them heard of as failed at last."""
    for number, unit in enumerate(UNITS[:3]):
        yield step(
            f"fund {unit.name}",
            commands.add_funds,
            account_id=unit.account_id,
            entry_id=named(f"funds {number}"),
            money=usd(40),
            reference=f"wire {number}",
            platform_id=PLATFORM_ID,
        )
    for number in range(3):
        who: dict[str, Any] = {
            "account_id": WALLET,
            "payment_id": PaymentId(named(f"payment {number}")),
        }
        yield step(
            f"ask for top-up {number}",
            wallet.request_top_up,
            money=usd(20 + number),
            asked_by=JOAN,
            **who,
        )
        yield step(
            f"top-up {number} arrives",
            wallet.post_top_up,
            intent=f"pi_{number}",
            money=usd(20 + number),
            platform_id=PLATFORM_ID,
            **who,
        )


def takes_back(number: int) -> Step:
    """A bank takes a payment back."""
    return step(
        f"bank takes {number} back",
        refunds.note_dispute,
        account_id=WALLET,
        dispute=f"du_{number}",
        intent=f"pi_{number}",
        money=usd(10 + number),
        reason="fraudulent",
        platform_id=PLATFORM_ID,
    )


def decides(number: int) -> Step:
    """It decides: for us where the number is odd."""
    won = bool(number % 2)
    terms: dict[str, Any] = {"account_id": WALLET, "dispute": f"du_{number}", "won": won}
    return step(f"bank decides {number}", refunds.note_dispute_closed, **terms)


def refund(number: int, units: float, *, paid: bool, back: bool) -> Iterator[Step]:
    """A refund that goes out, comes back, or both."""
    who: dict[str, Any] = {"account_id": WALLET, "refund_id": RefundId(named(f"refund {number}"))}
    yield step(
        f"ask for refund {number}",
        refunds.ask_for_refund,
        money=usd(units),
        reason="not needed",
        asked_by=JOAN,
        **who,
    )
    yield step(f"approve refund {number}", refunds.approve_refund, approved_by=OSCAR, **who)
    if paid:
        yield step(
            f"refund {number} goes out",
            refunds.note_part_paid,
            number=0,
            reference=f"re_{number}",
            platform_id=PLATFORM_ID,
            **who,
        )
    if back:
        yield step(
            f"refund {number} comes back",
            refunds.note_part_failed,
            number=0,
            reason="account closed",
            **who,
        )


def placed(number: int, account_id: AccountId) -> Step:
    return step(
        f"hold {number}",
        commands.place_hold,
        account_id=account_id,
        hold_id=hold_of(number),
        money=usd(9),
        purpose=f"bid:{number}",
    )


def captured(
    number: int, account_id: AccountId, at: int, millis: int, *, correction: int = 0
) -> Step:
    """An hour of a lease is charged; all of it is one owner's, so that no order changes a part."""
    return step(
        f"lease {number}, hour {at}, correction {correction}",
        commands.capture_usage,
        account_id=account_id,
        hold_id=hold_of(number),
        lease_id=lease_of(number),
        window=hour(at),
        gpu_millis=millis,
        price=PRICE,
        fee_ppm=80_001,
        owner_millis=[(OWNERS[number % 2], millis)],
        platform_id=PLATFORM_ID,
        cost_centre="CC-1",
        correction=correction,
        now=START + timedelta(days=1),
    )


def uses(number: int, account_id: AccountId) -> list[Step]:
    """All use of a lease, in order."""
    return [
        captured(number, account_id, 0, 3_599_999),
        captured(number, account_id, 1, 1_234_567),
        captured(number, account_id, 0, 1, correction=1),
        captured(number, account_id, 0, 7, correction=2),
        captured(number, account_id, 11, 3_600_000),
    ]


def contested(number: int, account_id: AccountId, *, upheld: bool) -> Iterator[Step]:
    """The second hour of a lease is contested, and decided."""
    entry_id = usage_entry(lease_of(number), hour(1))

    def contest(store: EventStore, **asked: Any) -> object:
        account = load(store, Account, account_id)
        assert account is not None
        entry: Any = account.entries[entry_id]
        own = {earnings(each, "USD"): each for each in OWNERS}
        got = [line for line in entry.postings if line.nanos > 0]
        terms = DisputeOpened(
            dispute_id=dispute_of(entry_id),
            entry_id=entry_id,
            account_id=account_id,
            tenant_id=book.CONSUMER,
            lease_id=lease_of(number),
            window=hour(1),
            charged_millis=entry.gpu_millis,
            used_millis=234_567,
            money=usd(0),
            contested=(),
            reason="it stood still",
            opened_by=JOAN,
            decide_by=START,
            at=START,
        )
        parts = tuple((each.account_id, own.get(each.account_id), each.nanos) for each in got)
        return open_dispute_about(store, Charge(terms, entry.charged, parts), **asked)

    yield step(f"contest lease {number}", contest)
    yield step(
        f"decide on lease {number}",
        decide_dispute,
        dispute_id=dispute_of(entry_id),
        outcome="upheld" if upheld else "dismissed",
        reason="the meter",
        user_id=OSCAR,
    )


def rest_of_use() -> Iterator[Step]:
    """Volumes, reclaim, missed promises, fees, clouds, and the end of leases."""
    yield step(
        "keep a volume",
        charge_volume,
        account_id=CREDIT,
        pieces=[
            Kept(
                volume_id=named("volume"),
                title="data",
                window=hour(number),
                byte_seconds=(2**40 + 1) * 3_600,
                nanos_per_gib_month=20_000_001,
                currency="USD",
                cost_centre="CC-1",
            )
            for number in range(3)
        ],
        platform_id=PLATFORM_ID,
    )
    lease: dict[str, Any] = {"account_id": BUDGET, "lease_id": lease_of(1), "owner_id": OWNERS[1]}
    yield step("reclaim", commands.pay_compensation, money=usd(0.5), **lease)
    miss = SlaMiss(
        hold_id=hold_of(0),
        lease_id=lease_of(0),
        owner_id=OWNERS[0],
        gpus=1,
        of_gpus=1,
        credit_ppm=100_000,
        reason="99 %",
    )
    yield step("miss a promise", credit_missed_sla, account_id=WALLET, miss=miss)
    platform: dict[str, Any] = {"platform_id": PLATFORM_ID, "money": usd(0.31)}
    yield step("a fee", refunds.pay_processing_fee, reference="txn_1", **platform)
    yield step("a cloud", commands.record_cost, reference="bill 1", **platform)
    for number, account_id in enumerate((WALLET, BUDGET, CREDIT)):
        who: dict[str, Any] = {"account_id": account_id, "hold_id": hold_of(number)}
        yield step(f"resize {number}", commands.resize_hold, money=usd(8), **who)
        yield step(f"release {number}", commands.release_hold, **who)


def month_end() -> Iterator[Step]:
    """It is closed, invoiced, credited, paid out, opened again and closed anew."""
    yield step("soft-close", closing.soft_close_period, period=MONTH, user_id=JOAN, now=AFTER)
    yield "invoice", _invoice
    yield (
        "post documents",
        lambda store: follow_policies(store, POLICIES),
    )
    credit_id = named("credit")
    yield step(
        "ask for a credit",
        invoices.ask_credit_note,
        credit_id=credit_id,
        invoice_id=INVOICE,
        lines=[],
        reason="charged twice",
        user_id=JOAN,
        now=AFTER,
    )
    yield step(
        "approve the credit",
        invoices.approve_credit_note,
        credit_id=credit_id,
        user_id=OSCAR,
        now=AFTER,
    )
    yield "post credits", lambda store: follow_policies(store, POLICIES)
    yield "settle", partial(_settle, now=AFTER)
    yield step(
        "approve the payout",
        _of_payout(payouts.approve_payout),
        is_own=False,
        user_id=OSCAR,
        now=AFTER,
    )
    yield "bank file", _send
    yield step(
        "the bank paid",
        _of_payout(payouts.mark_paid),
        reference="TX-1",
        paid_on=AFTER.date(),
        currency="USD",
        platform_id=PLATFORM_ID,
        user_id=JOAN,
        now=AFTER,
    )
    yield step(
        "the bank returns it",
        _of_payout(payouts.mark_returned),
        reason="account closed",
        currency="USD",
        platform_id=PLATFORM_ID,
        user_id=JOAN,
        now=AFTER,
    )
    yield "settle again", partial(_settle, now=AFTER + timedelta(days=1))
    month: dict[str, Any] = {"period": MONTH, "now": AFTER}
    yield step("close", closing.close_period, checks=[MET], user_id=JOAN, **month)
    yield captured(1, BUDGET, 12, 100_000)
    yield step(
        "ask to open again", closing.ask_to_reopen_period, reason="late", user_id=JOAN, **month
    )
    yield step("open again", closing.approve_reopening, user_id=OSCAR, **month)
    yield captured(1, BUDGET, 10, 100_000)
    yield step("soft-close again", closing.soft_close_period, user_id=JOAN, **month)
    yield step("close again", closing.close_period, checks=[MET], user_id=JOAN, **month)


def life() -> list[Step]:
    """All of it."""
    accounts = (WALLET, BUDGET, CREDIT)
    return [
        *top_ups(),
        *(placed(number, account_id) for number, account_id in enumerate(accounts)),
        *(each for number, account_id in enumerate(accounts) for each in uses(number, account_id)),
        *contested(0, WALLET, upheld=True),
        *contested(1, BUDGET, upheld=False),
        *refund(0, 12, paid=True, back=False),
        *refund(1, 5, paid=True, back=True),
        *refund(2, 3, paid=False, back=True),
        *(each for number in (0, 1) for each in (takes_back(number), decides(number))),
        *rest_of_use(),
        *month_end(),
    ]


def follow(store: EventStore) -> None:
    """Let the tables read all there is."""
    while follow_projections(store, READ):
        pass


def _invoice(store: EventStore) -> None:
    follow(store)
    terms: dict[str, Any] = {"user_id": JOAN, "by": SOMEBODY, "now": AFTER}
    outcome = invoicing.issue_month(store, MONTH, **terms)
    assert outcome.refused == () and outcome.left == 0


def _settle(store: EventStore, *, now: datetime) -> None:
    follow(store)
    row = PayeeRow.objects.get(pk=earnings(OWNERS[0], "USD"))
    paying.settle_now(store, row, user_id=JOAN, by=SOMEBODY, now=now)


def _first_payout(store: EventStore) -> tuple[AccountId, UUID, Payee]:
    account_id = earnings(OWNERS[0], "USD")
    payee = load(store, Payee, account_id)
    assert payee is not None
    return account_id, next(iter(payee.payouts)), payee


def _of_payout(ask: Callable[..., object]) -> Callable[..., object]:
    def asked(store: EventStore, **terms: Any) -> object:
        account_id, payout_id, _ = _first_payout(store)
        return ask(store, account_id, payout_id, **terms)

    return asked


def _send(store: EventStore) -> None:
    account_id, payout_id, payee = _first_payout(store)
    line = BankFileLine(
        payout_id=payout_id,
        account_id=account_id,
        details_id=details_of(TenantId(OWNERS[0])),
        end_to_end_id="OP-1",
        nanos=payee.payouts[payout_id].requested.money.nanos,
    )
    draft = Draft(
        file_id=named("file"),
        format="csv",
        currency="USD",
        debtor=Debtor(),
        execute_on=AFTER.date(),
        lines=[line],
    )
    payouts.write_bank_file(
        store,
        draft,
        render=lambda event: event.message_id.encode(),
        platform_id=PLATFORM_ID,
        user_id=JOAN,
        by=SOMEBODY,
        now=AFTER,
    )


def hash_of(store: EventStore) -> str:
    """Return the hash of the books: each entry with its lines, each account with what it holds."""
    told: dict[str, Any] = {}
    for recorded in store.read_all(limit=100_000).events:
        event = recorded.event
        if isinstance(event, ENTRY_KINDS):
            lines = sorted((str(line.account_id), line.nanos) for line in event.postings)
            assert str(event.entry_id) not in told, "an entry is made once"
            told[str(event.entry_id)] = [recorded.type, lines]
    for unit in UNITS:
        account = load(store, Account, unit.account_id)
        assert account is not None
        told[str(unit.account_id)] = [account.total.nanos, account.held.nanos]
    return sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def sums_of(store: EventStore) -> str:
    """Return the hash of what each account has by kind of entry, and holds: no order changes it."""
    sums: Counter[str] = Counter()
    for recorded in store.read_all(limit=100_000).events:
        event = recorded.event
        if isinstance(event, ENTRY_KINDS):
            for line in event.postings:
                sums[f"{recorded.type} {line.account_id}"] += line.nanos
    for unit in UNITS:
        account = load(store, Account, unit.account_id)
        assert account is not None
        sums[f"held {unit.account_id}"] = account.held.nanos
    return sha256(json.dumps(sums, sort_keys=True).encode()).hexdigest()
