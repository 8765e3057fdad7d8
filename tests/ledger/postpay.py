"""An account that pays afterwards: its month invoiced, the payment service beside it."""

from __future__ import annotations

from datetime import datetime, timedelta

from ledger import receivables
from ledger.commands import receivables as commands
from ledger.commands import register_tenant
from ledger.domain.ids import UserId
from ledger.domain.money import NANOS_PER_UNIT, Money, Rate
from ledger.domain.notice_events import NoticeGiven
from ledger.domain.parties import tenant_id_of
from ledger.following import follow_projections
from ledger.models import Checkpoint, InvoiceRow, ReceivableRow
from ledger.projections.invoices import INVOICES
from ledger.projections.money import MONEY
from ledger.reacting import Reacting
from tests.conftest import NOON, SOMEBODY
from tests.ledger import invoiced
from tests.ledger import ledgerbook as book
from tests.ledger.funding_desk import Desk

ISSUED = invoiced.MONTH.window.ends_at + timedelta(days=5)
STUDIO = tenant_id_of("studio")
LIMIT = 500 * NANOS_PER_UNIT


class PostpayDesk(Desk):
    """A desk with an account on credit whose month came to 12.34 with nano-units behind."""

    def follow(self) -> None:
        policies = Reacting([receivables.RESUME, receivables.TELL])
        while policies.run_once(self.store) + follow_projections(self.store, [MONEY, INVOICES]):
            pass
        assert not Checkpoint.objects.exclude(error="").exists()

    def use(self, *, email: str = "ap@studio.example") -> None:
        """Let the account use GPUs, and be an organisation of its own."""
        for slug in ("platform", "studio"):
            register_tenant(
                self.store, slug=slug, title=slug.title(), currency="USD", by=SOMEBODY, now=NOON
            )
        book.open_everybody(self.store)
        book.open_funds(self.store, kind="chargeback", overdraft_nanos=LIMIT, tenant=STUDIO)
        invoiced.details(self.store, STUDIO, name="Studio", country="FR", email=email)
        book.hold(self.store, book.usd(100))
        book.capture(self.store, book.hours(0), 7_128_000, price=Rate(6_230_000_001))
        book.release(self.store)

    def invoice(self) -> InvoiceRow:
        """Issue the invoice of the month; return it."""
        invoiced.soft_close(self.store)
        invoiced.issue(self.store)
        self.now = ISSUED
        self.follow()
        return InvoiceRow.objects.get()

    def handed_over(self) -> ReceivableRow:
        self.use()
        self.invoice()
        assert self.call() == 1
        return self.receivable

    @property
    def receivable(self) -> ReceivableRow:
        self.follow()
        return ReceivableRow.objects.get()

    def enter(
        self, reference: str = "TX 1", units: float | None = None, *, by: UserId = invoiced.JOAN
    ) -> None:
        """Let finance enter a transfer."""
        commands.enter_payment(
            self.store,
            self.receivable.pk,
            money=None if units is None else book.usd(units),
            reference=reference,
            user_id=by,
            by=SOMEBODY,
            now=self.now,
        )

    def pass_time(self, until: datetime) -> None:
        """Let the clock go on and the loop look."""
        self.now = until
        self.follow()
        receivables.see_to_receivables(self.store, now=self.now)
        self.follow()

    @property
    def owed(self) -> Money:
        return Money(self.receivable.left_nanos)

    def notices(self) -> list[str]:
        """Return the titles of all notices, the first first."""
        self.follow()
        events = [each.event for each in self.store.read_all(limit=100_000).events]
        return [each.title for each in events if isinstance(each, NoticeGiven)]
