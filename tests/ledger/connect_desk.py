"""An owner who is paid over Stripe, and what carries word between the books and Stripe."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from ledger.commands import connect as commands
from ledger.connect import notices, transfers
from ledger.domain.account_ids import cash_account, transit_account
from ledger.domain.money import Money, Rate
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.payees import Payee, Payout
from ledger.eventstore.port import EventStore
from ledger.funding import inbox
from ledger.models import PayeeRow, PaymentNotice, PayoutRow
from tests.conftest import NOON, SOMEBODY
from tests.ledger import busy_month, paying
from tests.ledger import ledgerbook as book
from tests.ledger.funding_desk import install
from tests.ledger.ledgerbook import usd
from tests.ledger.paying import EARNINGS, IRIS, JOAN, OSCAR
from tests.stripe_double import connect
from tests.stripe_double.double import StripeDouble

WAIT = 3_600
TRANSIT = transit_account(book.PLATFORM, "USD")
CASH = cash_account(PLATFORM_ID, "USD")


@dataclass
class Desk:
    """What tests do. now: moves on only where a test says so."""

    store: EventStore
    double: StripeDouble
    now: datetime = NOON
    told: int = 0
    weeks: int = 0

    def follow(self) -> None:
        busy_month.follow(self.store)

    def later(self, **span: float) -> None:
        self.now += timedelta(**span)

    def call(self) -> int:
        """Carry out what is to be done, as the loop does, until there is nothing left."""
        done = 0
        while True:
            self.follow()
            some = transfers.run_once(self.store, now=self.now)
            done += some
            if not some:
                self.follow()
                return done

    def hear(self) -> None:
        """Take every notice in that was not sent yet, and look into all."""
        for notice in self.double.notices[self.told :]:
            self.take(notice)
        self.told = len(self.double.notices)
        self.look()

    def take(self, notice: object) -> bool:
        return inbox.take(*self.double.signed(notice), now=self.now)

    def look(self) -> None:
        self.follow()
        inbox.run_once(self.store, now=self.now)
        self.follow()

    def left(self) -> list[tuple[str, str]]:
        rows = PaymentNotice.objects.exclude(state__in=("done", "ignored"))
        return [(row.kind, row.error) for row in rows]

    # --- an owner ---------------------------------------------------------------------------

    def ask(self, country: str = "") -> None:
        commands.ask_stripe_account(
            self.store, paying.of(), country=country, user_id=IRIS, by=SOMEBODY, now=self.now
        )

    def choose(self, channel: str = "stripe") -> None:
        commands.choose_channel(
            self.store,
            paying.of(),
            channel,  # type: ignore[arg-type]
            wait_seconds=WAIT,
            user_id=IRIS,
            by=SOMEBODY,
            now=self.now,
        )

    def ready(self) -> str:
        """Let the owner have an account that is ready, chosen and waited for; return its id."""
        self.ask()
        self.call()
        connect.onboard(self.double, self.account)
        self.hear()
        self.choose()
        self.later(seconds=WAIT)
        self.follow()
        return self.account

    @property
    def account(self) -> str:
        connected = self.payee.connected
        assert connected is not None
        return connected.connected

    @property
    def payee(self) -> Payee:
        return paying.payee(self.store)

    @property
    def row(self) -> PayeeRow:
        self.follow()
        return PayeeRow.objects.get(pk=EARNINGS)

    # --- payouts ----------------------------------------------------------------------------

    def earn(self, units: float) -> None:
        """Let the owner earn so much, after the fee of eight percent."""
        self.weeks += 1
        hold = book.hold_named(self.weeks)
        book.hold(self.store, usd(units * 2), hold_id=hold)
        book.capture(
            self.store,
            book.hours(self.weeks),
            3_600_000,
            hold_id=hold,
            lease_id=book.lease_named(self.weeks),
            price=Rate(round(units * 10**9 * 100 / 92) + 1),
        )

    def approved(self, units: float = 20) -> UUID:
        """Return a payout that waits to be sent."""
        self.earn(units)
        made = paying.settle(
            self.store,
            paying.earned(self.payee.paid_out + usd(units).nanos),
            period=f"2026-W{self.weeks:02}",
            now=self.now,
        )
        assert made is not None
        paying.approve(self.store, made, JOAN)
        self.follow()
        return made

    def arrived(self, units: float = 20) -> UUID:
        payout = self.approved(units)
        self.call()
        assert self.payout(payout).state == "paid"
        return payout

    def payout(self, payout_id: UUID) -> Payout:
        return self.payee.payout(payout_id)

    def shown(self, payout_id: UUID) -> PayoutRow:
        self.follow()
        return PayoutRow.objects.get(pk=payout_id)

    def back(self, payout_id: UUID, units: float, *, number: int = 1) -> None:
        commands.ask_transfer_back(
            self.store,
            EARNINGS,
            payout_id,
            number=number,
            money=usd(units),
            unit=paying.CENT,
            reason="charged twice",
            user_id=OSCAR,
            by=SOMEBODY,
            now=self.now,
        )
        self.follow()

    def bring(self, units: float = 1_000) -> None:
        """Let our account at Stripe have money."""
        self.double.move("topup", round(units * 100), "tu_before", currency="usd")

    def totals(self) -> dict[str, Money]:
        """Return what the earnings have, what is on its way, and what came in less what left."""
        found = book.totals(self.store)
        names = {"earnings": EARNINGS, "transit": TRANSIT, "cash": CASH}
        return {name: Money(found.get(account, 0)) for name, account in names.items()}


def opened(store: EventStore, double: StripeDouble) -> Desk:
    """Return a desk at which money came in and nobody is paid yet."""
    install(double)
    notices.listen()
    book.open_everybody(store)
    book.open_funds(store)
    book.fund(store, usd(10_000))
    return Desk(store, double)
