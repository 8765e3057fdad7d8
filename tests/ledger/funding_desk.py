"""A wallet, the payment service beside it, and what carries word between the two."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID, uuid4

from ledger import payments
from ledger.commands import refunds as refunding
from ledger.commands import wallet as commands
from ledger.domain.ids import AccountId, PaymentId, RefundId, UserId
from ledger.domain.money import Money
from ledger.domain.wallet import Wallet
from ledger.eventstore.port import EventStore, load
from ledger.following import follow_projections
from ledger.funding import automatic, inbox, outbox
from ledger.models import (
    AccountRow,
    Checkpoint,
    JournalEntryRow,
    PaymentNotice,
    WalletMethodRow,
    WalletPaymentRow,
)
from ledger.payments.stripe import StripePayments
from ledger.projections.money import MONEY
from tests.conftest import NOON, SOMEBODY
from tests.ledger import ledgerbook as book
from tests.stripe_double.double import KEY, SECRET, StripeDouble

SITE = "https://gpu.example"
JOAN, OSCAR = UserId(UUID(int=71)), UserId(UUID(int=72))


@dataclass
class Desk:
    """What tests do. now: moves on only where a test says so."""

    store: EventStore
    double: StripeDouble
    now: datetime = NOON
    account_id: AccountId = book.FUNDS
    told: int = field(default=0)

    def follow(self) -> None:
        while follow_projections(self.store, [MONEY]):
            pass
        assert Checkpoint.objects.get(name=MONEY.name).error == ""

    def ask(
        self, units: float = 50, *, method: str = "", account_id: AccountId | None = None
    ) -> PaymentId:
        payment_id = PaymentId(uuid4())
        commands.request_top_up(
            self.store,
            account_id=account_id or self.account_id,
            payment_id=payment_id,
            money=book.usd(units),
            way="saved" if method else "checkout",
            method=method,
            asked_by=JOAN,
            by=SOMEBODY,
            now=self.now,
        )
        return payment_id

    def call(self) -> int:
        """Carry out what was asked, as the loop does."""
        self.follow()
        done = outbox.run_once(self.store, site=SITE, now=self.now)
        self.follow()
        return done

    def hear(self) -> int:
        """Take every notice in that was not sent yet, and look into all."""
        for notice in self.double.notices[self.told :]:
            self.take(notice)
        self.told = len(self.double.notices)
        return self.look()

    def take(self, notice: object) -> bool:
        return inbox.take(*self.double.signed(notice), now=self.now)

    def look(self) -> int:
        self.follow()
        done = inbox.run_once(self.store, now=self.now)
        self.follow()
        return done

    def top_up_by_itself(self) -> int:
        self.follow()
        done = automatic.run_once(self.store, now=self.now)
        self.follow()
        return done

    def later(self, **span: float) -> None:
        self.now += timedelta(**span)

    def paid(self, units: float = 50) -> PaymentId:
        """Let a top-up be asked for and paid on the page, and hear of it."""
        payment_id = self.ask(units)
        self.call()
        self.double.pay(self.row(payment_id).reference)
        self.hear()
        return payment_id

    def saved(self, last4: str = "4242") -> str:
        """Let a card be kept."""
        self.paid(50)
        method = WalletMethodRow.objects.get(account_id=self.account_id, state="saved")
        self.double.one(method.pk)["card"]["last4"] = last4
        return str(method.pk)

    def refund(self, units: float, *, asked_by: UserId = JOAN) -> RefundId:
        refund_id = RefundId(uuid4())
        refunding.ask_for_refund(
            self.store,
            account_id=self.account_id,
            refund_id=refund_id,
            money=book.usd(units),
            reason="not needed any more",
            asked_by=asked_by,
            by=SOMEBODY,
            now=self.now,
        )
        return refund_id

    def approve(self, refund_id: RefundId, *, by: UserId = OSCAR) -> None:
        refunding.approve_refund(
            self.store,
            account_id=self.account_id,
            refund_id=refund_id,
            approved_by=by,
            by=SOMEBODY,
            now=self.now,
        )

    def row(self, payment_id: PaymentId) -> WalletPaymentRow:
        return WalletPaymentRow.objects.get(pk=payment_id)

    @property
    def total(self) -> Money:
        self.follow()
        return Money(AccountRow.objects.get(pk=self.account_id).total_nanos)

    @property
    def available(self) -> Money:
        self.follow()
        return Money(AccountRow.objects.get(pk=self.account_id).available_nanos)

    @property
    def wallet(self) -> Wallet:
        found = load(self.store, Wallet, self.account_id)
        assert found is not None
        return found

    def kinds(self) -> list[str]:
        """Return the kinds of entries in order."""
        self.follow()
        rows = JournalEntryRow.objects.filter(account_id=self.account_id).order_by("position")
        return [row.kind for row in rows]

    def left(self) -> list[tuple[str, str]]:
        """Return the notices that were not settled, with why."""
        rows = PaymentNotice.objects.exclude(state__in=("done", "ignored"))
        return [(row.kind, row.error) for row in rows]


def install(double: StripeDouble) -> None:
    """Let payments be taken by the double, over the real library."""
    payments.install(lambda: StripePayments(KEY, secret=SECRET, url=double.url))
