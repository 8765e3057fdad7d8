"""A month with everything in it that moves money, the same each time, and what came after it.

January is busy (`busy_month`); here it also has shares of cards by MIG, MPS and time slices, use of
a cloud at a margin, a missed promise, a wallet that is filled, paid back and charged back by card,
owners who are paid, and VAT. It is closed and invoiced, opened again, corrected, credited.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from typing import Any
from uuid import UUID, uuid5

from ledger import commands
from ledger.commands import payouts, refunds, wallet
from ledger.commands.disputes import decide_dispute, open_dispute_about
from ledger.commands.sla import credit_missed_sla
from ledger.domain.account_ids import earnings_account, fee_account, funds_account
from ledger.domain.bank_details import BankDetails
from ledger.domain.bank_files import Debtor, Draft
from ledger.domain.dispute_events import DisputeOpened
from ledger.domain.disputes import Charge, dispute_of
from ledger.domain.events import UsageCaptured
from ledger.domain.ids import AccountId, PaymentId, RefundId, TenantId, UserId
from ledger.domain.journal import usage_entry
from ledger.domain.money import Money, Rate
from ledger.domain.payees import PayeeOf
from ledger.domain.payout_events import BankFileLine
from ledger.domain.settling import Due, Earned, PayoutTerms
from ledger.domain.sla_credits import SlaMiss
from ledger.domain.span import Window
from ledger.domain.usage_items import CardShare, UsageItem
from ledger.eventstore.port import EventStore
from ledger.following import follow_projections
from ledger.models import Checkpoint, InvoiceRow
from ledger.projections.exports import EXPORTS
from ledger.projections.invoices import INVOICES
from ledger.projections.money import MONEY
from tests.conftest import NOON, SOMEBODY
from tests.ledger import busy_month, invoiced
from tests.ledger import ledgerbook as book
from tests.ledger.busy_month import FEBRUARY, JANUARY
from tests.ledger.ledgerbook import hours, usd

ASTRO = funds_account(busy_month.unit_named("Astro"), "USD")
CHEM = funds_account(busy_month.unit_named('Chem "wet"\\lab, 3'), "USD")
RENDER = funds_account(busy_month.unit_named("=Render"), "EUR")
STUDIO = busy_month.UNITS["=Render"][3]
JOAN, OSCAR = invoiced.JOAN, invoiced.OSCAR
MILLIS = 3_600_000
PAYOUT = 25 * 10**9
DAYS = 10 * 24
"""Hours after noon from which leases of this module run: after those of the busy month."""
CARD = "GPU-0a1b2c3d"

KINDS = {
    *("funds", "usage", "compensation", "cost", "storage", "sla-credit"),
    *("payout", "payout-paid", "payout-back", "rounding", "tax", "credit"),
    *("refund", "dispute", "reversal", "processing"),
}
"""Of entries, all of which are in it."""

Shares = tuple[CardShare, ...]
MIG: Shares = (CardShare(CARD, "mig", 3, 7),)
MPS: Shares = (CardShare("GPU-4e5f", "mps", 25, 100),)
SLICES: Shares = (
    CardShare("GPU-77", "timeslice", 1, 100),
    CardShare("GPU-78", "timeslice", 1, 100),
)


def trade(store: EventStore) -> None:
    """Let the month pass until its invoices are issued, and bring the tables up to date."""
    busy_month.live_through(store)
    _share_cards(store)
    _burst(store)
    _miss_a_promise(store)
    _use_cards_to_pay(store)
    _contest(store)
    _pay_owners(store)
    _tax(store)
    invoiced.soft_close(store, JANUARY)
    invoiced.issue(store, JANUARY)
    follow(store)


def live_through(store: EventStore) -> None:
    """Let the month pass and close it; use of it that comes late is on the next invoice."""
    trade(store)
    _use(store, "late", CHEM, hours(DAYS + 60), MILLIS)
    invoiced.close(store, JANUARY)
    _use(store, "later", CHEM, hours(DAYS + 61), MILLIS)  # a correction, in February
    follow(store)


def correct(store: EventStore) -> None:
    """Open the month again, correct it, credit a line of its invoice, and close it anew."""
    invoiced.reopen(store, JANUARY)
    _use(store, "proved", CHEM, hours(DAYS + 62), MILLIS)
    invoiced.credit(store, InvoiceRow.objects.get(account_id=CHEM), ("001", 10_000_000))
    invoiced.soft_close(store, JANUARY)
    invoiced.close(store, JANUARY)
    _use(store, "february", RENDER, hours(30 * 24), MILLIS, currency="EUR")
    invoiced.soft_close(store, FEBRUARY)
    invoiced.issue(store, FEBRUARY)
    follow(store)


def follow(store: EventStore) -> None:
    """Bring all tables that exports read up to the store's head."""
    while follow_projections(store, [MONEY, INVOICES, EXPORTS]):
        pass
    assert not Checkpoint.objects.exclude(error="").exists()


def _use(
    store: EventStore,
    name: str,
    account: AccountId,
    window: Window,
    gpu_millis: int,
    *,
    item: UsageItem = book.H100,
    currency: str = "USD",
) -> None:
    """Capture a window of a lease of its own."""
    hold_id, price = book.hold_named(name), Rate(2_345_678_901, currency)
    book.hold(store, Money(20 * 10**9, currency), account=account, hold_id=hold_id)
    book.capture(
        store,
        window,
        gpu_millis,
        account=account,
        hold_id=hold_id,
        lease_id=book.lease_named(name),
        price=price,
        item=replace(item, list_price=Rate(3_000_000_000, currency)),
    )
    book.release(store, account=account, hold_id=hold_id)


def _share_cards(store: EventStore) -> None:
    ways = (
        ("mig", "H100-80G-3g.40gb", MIG),
        ("mps", "L4-mps.25.6gb", MPS),
        ("slices", "L4", SLICES),
    )
    for index, (way, sku, shares) in enumerate(ways):
        item = UsageItem(sku=sku, region="campus-a", service_class="on-demand", shares=shares)
        for payer, currency in ((CHEM, "USD"), (ASTRO, "USD"), (RENDER, "EUR")):
            window = hours(DAYS + index)
            _use(store, f"{way} {payer}", payer, window, 3_599_999, item=item, currency=currency)


def _burst(store: EventStore) -> None:
    item = UsageItem(
        sku="g5.xlarge", region="eu-west-1", service_class="on-demand", provider="Cloud X"
    )
    _use(store, "burst", CHEM, hours(DAYS + 4), MILLIS, item=item)
    for money, reference in ((usd(1.006), "Cloud X i-2"), (usd(-0.25), "Cloud X i-2, credit")):
        commands.record_cost(
            store,
            platform_id=book.PLATFORM,
            money=money,
            reference=reference,
            by=SOMEBODY,
            now=NOON,
        )


def _miss_a_promise(store: EventStore) -> None:
    _use(store, "promised", CHEM, hours(DAYS + 5), MILLIS)
    miss = SlaMiss(
        hold_id=book.hold_named("promised"),
        lease_id=book.lease_named("promised"),
        owner_id=book.OWNER,
        gpus=1,
        of_gpus=2,
        credit_ppm=100_000,
        reason="97.1 % of 99.5 %",
    )
    credit_missed_sla(store, account_id=CHEM, miss=miss, by=SOMEBODY, now=NOON)


def _use_cards_to_pay(store: EventStore) -> None:
    """Fill a wallet three times; one payment is paid back in part, two are taken back by a bank."""
    who: dict[str, Any] = {"account_id": ASTRO, "by": SOMEBODY, "now": NOON}
    for name in ("kept", "lost", "won"):
        payment_id = PaymentId(uuid5(book.WORLD, f"payment {name}"))
        wallet.request_top_up(store, payment_id=payment_id, money=usd(50), asked_by=JOAN, **who)
        wallet.post_top_up(
            store,
            payment_id=payment_id,
            intent=f"pi_{name}",
            money=usd(50),
            platform_id=book.PLATFORM,
            **who,
        )
    refund_id = RefundId(uuid5(book.WORLD, "refund"))
    refunds.ask_for_refund(
        store, refund_id=refund_id, money=usd(20), reason="unused", asked_by=JOAN, **who
    )
    refunds.approve_refund(store, refund_id=refund_id, approved_by=OSCAR, **who)
    refunds.note_part_paid(
        store,
        refund_id=refund_id,
        number=0,
        reference="re_1",
        platform_id=book.PLATFORM,
        **who,
    )
    for name in ("lost", "won"):
        refunds.note_dispute(
            store,
            dispute=f"du_{name}",
            intent=f"pi_{name}",
            money=usd(50),
            reason="fraudulent",
            platform_id=book.PLATFORM,
            **who,
        )
        refunds.note_dispute_closed(store, dispute=f"du_{name}", won=name == "won", **who)
    refunds.pay_processing_fee(
        store,
        platform_id=book.PLATFORM,
        money=usd(1.75),
        reference="txn_1",
        by=SOMEBODY,
        now=NOON,
    )


def _contest(store: EventStore) -> None:
    """Contest a charge; it is upheld, so each who got a part gives it back."""
    window = hours(DAYS + 6)
    _use(store, "contested", CHEM, window, MILLIS)
    lease_id = book.lease_named("contested")
    entry_id = usage_entry(lease_id, window)
    captured = book.account(store, CHEM).entries[entry_id]
    assert isinstance(captured, UsageCaptured)
    owners: dict[AccountId, TenantId | None] = {
        earnings_account(book.OWNER, "USD"): book.OWNER,
        fee_account(book.PLATFORM, "USD"): None,
    }
    terms = DisputeOpened(
        dispute_id=dispute_of(entry_id),
        entry_id=entry_id,
        account_id=CHEM,
        tenant_id=book.CONSUMER,
        lease_id=lease_id,
        window=window,
        charged_millis=MILLIS,
        used_millis=MILLIS // 3,
        money=captured.charged,
        contested=(),
        reason="it stood still",
        opened_by=JOAN,
        decide_by=NOON,
        at=NOON,
    )
    parts = tuple(
        (line.account_id, owners[line.account_id], line.nanos)
        for line in captured.postings
        if line.nanos > 0
    )
    now = window.ends_at + timedelta(days=1)
    charge = Charge(terms=terms, charged=captured.charged, parts=parts)
    open_dispute_about(store, charge, by=SOMEBODY, now=now)
    decide_dispute(
        store, terms.dispute_id, "upheld", reason="so it was", user_id=OSCAR, by=SOMEBODY, now=now
    )


def _pay_owners(store: EventStore) -> None:
    """Settle three times: one payout is paid, one comes back after that, one does not go out."""
    account_id = earnings_account(book.OWNER, "USD")
    who: dict[str, Any] = {"user_id": JOAN, "by": SOMEBODY, "now": NOON}
    whose: dict[str, Any] = {"currency": "USD", "platform_id": book.PLATFORM, **who}
    details_id = _bank_details(store, account_id)
    paid, back, cancelled = (_settle(store, account_id, f"2026-W{n:02}") for n in (3, 4, 5))
    payouts.cancel_payout(store, account_id, cancelled, reason="asked twice", **who)
    for payout_id in (paid, back):
        payouts.approve_payout(store, account_id, payout_id, is_own=False, **who)
    _send(store, account_id, (paid, back), details_id)
    for reference, payout_id in (("TX-1", paid), ("TX-2", back)):
        payouts.mark_paid(
            store,
            account_id,
            payout_id,
            reference=reference,
            paid_on=date(2026, 1, 20),
            **whose,
        )
    payouts.mark_returned(store, account_id, back, reason="account closed", **whose)


def _bank_details(store: EventStore, account_id: AccountId) -> UUID:
    details_id = uuid5(book.WORLD, "bank account")
    payouts.propose_bank_details(
        store,
        PayeeOf(account_id=account_id, tenant_id=book.OWNER, currency="USD"),
        BankDetails(name="Lab Ltd", iban="DE89370400440532013000"),
        details_id=details_id,
        wait_seconds=60,
        user_id=OSCAR,
        by=SOMEBODY,
        now=NOON,
    )
    confirmed = NOON + timedelta(minutes=1)
    payouts.confirm_bank_details(
        store, account_id, details_id, user_id=OSCAR, by=SOMEBODY, now=confirmed
    )
    return details_id


def _send(
    store: EventStore, account_id: AccountId, sent: tuple[UUID, ...], details_id: UUID
) -> None:
    lines = [
        BankFileLine(
            payout_id=each,
            account_id=account_id,
            details_id=details_id,
            end_to_end_id=f"OP-{number}",
            nanos=PAYOUT,
        )
        for number, each in enumerate(sent)
    ]
    draft = Draft(
        file_id=uuid5(book.WORLD, "bank file"),
        format="csv",
        currency="USD",
        debtor=Debtor(),
        execute_on=date(2026, 1, 20),
        lines=lines,
    )
    payouts.write_bank_file(
        store,
        draft,
        render=lambda event: event.message_id.encode(),
        platform_id=book.PLATFORM,
        user_id=JOAN,
        by=SOMEBODY,
        now=NOON,
    )


def _settle(store: EventStore, account_id: AccountId, week: str) -> UUID:
    total = PAYOUT * (int(week[-2:]) - 2)  # what was settled before is paid out of it
    earned = Earned(total=total, later=0, recent=0, set_aside=0)
    made, _ = payouts.settle_earnings(
        store,
        PayeeOf(account_id=account_id, tenant_id=book.OWNER, currency="USD"),
        Due(week, date(2026, 1, 19)),
        earned,
        terms=PayoutTerms(),
        unit=10_000_000,
        platform_id=book.PLATFORM,
        user_id=UserId(book.WORLD),
        by=SOMEBODY,
        now=NOON,
    )
    assert made is not None
    return made


def _tax(store: EventStore) -> None:
    """Charge VAT as a German company: to one at home, and to one in France that owes it itself."""
    invoiced.tax_the_eu(store)
    invoiced.details(store, book.CONSUMER)
    invoiced.details(store, STUDIO, name="Studio SA", country="FR", vat_id="FR12345678901")
