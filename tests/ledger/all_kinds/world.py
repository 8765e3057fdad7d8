"""The small world in which all kinds of money move, and how its people ask for things."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

from ledger import commands
from ledger.commands import invoices as invoicing
from ledger.commands import payouts
from ledger.domain import account_ids
from ledger.domain.bank_details import BankDetails
from ledger.domain.events import AccountKind
from ledger.domain.ids import (
    AccountId,
    EntryId,
    HoldId,
    PaymentId,
    SubscriberId,
    TenantId,
    UserId,
)
from ledger.domain.invoice_events import PartyDetails, TaxScheme
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.payees import PayeeOf
from ledger.domain.refusal import Refusal
from ledger.eventstore.port import EventStore, Position
from ledger.following import follow_projections
from ledger.models import Checkpoint
from ledger.projections.disputes import DISPUTES
from ledger.projections.invoices import INVOICES
from ledger.projections.money import MONEY
from tests.conftest import SOMEBODY
from tests.ledger import ledgerbook as book
from tests.ledger.all_kinds.paper import Paper

START = datetime(2028, 2, 28, 12, tzinfo=UTC)
"""The day before one that only leap years have."""
JOAN, OSCAR, IRIS = (UserId(UUID(int=number)) for number in (71, 72, 73))
PEOPLE = (JOAN, OSCAR, IRIS)
OWNERS = (book.OWNER, book.OTHER_OWNER)
INSIDE = TenantId(uuid5(book.WORLD, "inside"))
"""An organisation whose cost centres are billed inside it, without tax."""
READ = (MONEY, INVOICES, DISPUTES)
PLATFORMS: tuple[tuple[AccountKind, Any], ...] = (
    ("rounding", account_ids.rounding_account),
    ("tax", account_ids.tax_account),
    ("stripe-fees", account_ids.processing_account),
    ("payouts", account_ids.transit_account),
)


@dataclass(frozen=True)
class Unit:
    """Who pays. overdraft: how far below zero; None: without limit."""

    name: str
    kind: AccountKind
    overdraft: int | None
    currency: str = "USD"
    tenant: TenantId = book.CONSUMER

    @property
    def unit_id(self) -> SubscriberId:
        return SubscriberId(uuid5(book.WORLD, f"unit {self.name}"))

    @property
    def account_id(self) -> AccountId:
        return account_ids.funds_account(self.unit_id, self.currency)


UNITS = (
    Unit("wallet", "prepaid", 0),
    Unit("credit", "prepaid", 5_000_000_000),
    Unit("budget", "chargeback", 20_000_000_000),
    Unit("free", "chargeback", None, tenant=INSIDE),
    Unit("euro", "prepaid", 0, "EUR"),
)
WALLETS = tuple(each for each in UNITS if each.kind == "prepaid")
CURRENCIES = ("USD", "EUR")


def found(store: EventStore) -> None:
    """Open everybody's accounts; the platform charges VAT, and the consumers are in Germany."""
    for currency in CURRENCIES:
        for tenant, title in ((PLATFORM_ID, "Offpeak"), (OWNERS[0], "Lab"), (OWNERS[1], "Farm")):
            commands.open_tenant_accounts(
                store,
                tenant_id=tenant,
                title=title,
                currency=currency,
                is_platform=tenant == PLATFORM_ID,
                by=SOMEBODY,
                now=START,
            )
        for kind, account_of in PLATFORMS:
            titles = {"rounding": "Rounding of invoices", "tax": "Tax on invoices"}
            commands.open_account(
                store,
                account_id=account_of(PLATFORM_ID, currency),
                tenant_id=PLATFORM_ID,
                subscriber_id=None,
                kind=kind,
                title=titles.get(kind, f"Offpeak: {kind}"),
                currency=currency,
                overdraft_nanos=None,
                by=SOMEBODY,
                now=START,
            )
    for unit in UNITS:
        book.open_funds(
            store,
            unit=unit.unit_id,
            kind=unit.kind,
            overdraft_nanos=unit.overdraft,
            title=unit.name,
            tenant=unit.tenant,
            currency=unit.currency,
        )
    for party, country, scheme in ((PLATFORM_ID, "DE", "eu-vat"), (book.CONSUMER, "DE", "none")):
        _name(store, party, country, scheme)  # type: ignore[arg-type]  # two of its words
    for owner in OWNERS:
        _pay_to(store, owner)


def details_of(owner: TenantId) -> UUID:
    """Return the name of the bank account to which an owner is paid."""
    return uuid5(owner, "bank")


def earnings(owner: TenantId, currency: str) -> AccountId:
    """Return where an owner's earnings are."""
    return account_ids.earnings_account(owner, currency)


def _name(store: EventStore, party: TenantId, country: str, scheme: TaxScheme) -> None:
    invoicing.set_billing_details(
        store,
        party_id=party,
        tenant_id=party,
        details=PartyDetails(name="Somebody Ltd", country=country),
        scheme=scheme,
        due_days=14,
        issues_by_itself=False,
        user_id=JOAN,
        by=SOMEBODY,
        now=START,
    )


def _pay_to(store: EventStore, owner: TenantId) -> None:
    account_id = earnings(owner, "USD")
    payouts.propose_bank_details(
        store,
        PayeeOf(account_id=account_id, tenant_id=owner, currency="USD"),
        BankDetails(name="Lab", iban="DE89370400440532013000"),
        details_id=details_of(owner),
        wait_seconds=0,
        user_id=IRIS,
        by=SOMEBODY,
        now=START,
    )
    payouts.confirm_bank_details(
        store, account_id, details_of(owner), user_id=IRIS, by=SOMEBODY, now=START
    )


def asks(
    when: Callable[[Any], object] | None = None, **drawn: st.SearchStrategy[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Say of something that can be asked for with what, and when there is anything to ask it of."""

    def noted(ask: Callable[..., None]) -> Callable[..., None]:
        _ASKED[ask.__qualname__] = (when, st.fixed_dictionaries(drawn))
        return ask

    return noted


_ASKED: dict[str, tuple[Callable[[Any], object] | None, st.SearchStrategy[dict[str, Any]]]] = {}


class People(RuleBasedStateMachine):
    """What every rule uses: the store, the paper, the clock, and how something is asked for."""

    store: Any
    paper: Paper
    now: datetime
    asked: int
    """Names what is asked for, so that each is another."""

    def begin(self, store: Any) -> None:
        self.store, self.paper, self.now, self.asked = store, Paper(), START, 0
        found(store)
        self.paper.overdrafts = {each.account_id: each.overdraft for each in UNITS}
        self.currencies: dict[AccountId, str] = {}
        self.posted: Counter[AccountId] = Counter()
        self.sums: Counter[tuple[str, AccountId]] = Counter()
        """By month and account, what counts there by the paper's calendar."""
        self.payment_ids: list[PaymentId] = []
        self.reclaimed: dict[tuple[HoldId, TenantId], int] = {}
        self.missed: dict[tuple[HoldId, int], int] = {}
        self.contested: dict[EntryId, int] = {}
        self._read = Position(0)

    def ask_one_of(self, kind: type, data: st.DataObject) -> None:
        """Ask for one of the things of a kind that there is something to ask of."""
        known = {name: _ASKED[each.__qualname__] for name, each in _asked_of(kind)}
        follow = [name for name, (when, _) in known.items() if when is not None and when(self)]
        names = [name for name, (when, _) in known.items() if when is None]
        names = [*follow, *follow, *names]  # what follows from something else needs more chances
        name = data.draw(st.sampled_from(names))
        getattr(self, name)(**data.draw(known[name][1], label=name))

    def named(self, what: str) -> UUID:
        self.asked += 1
        return uuid5(book.WORLD, f"{what} {self.asked}")

    def succeeds(self, ask: Any, *args: Any, **terms: Any) -> bool:
        """Ask twice: the second time must change nothing, and a refusal neither."""
        head = self.store.head()
        try:
            ask(self.store, *args, by=SOMEBODY, now=self.now, **terms)
        except Refusal:
            assert self.store.head() == head, "a refusal changed something"
            return False
        head = self.store.head()
        with suppress(Refusal):
            ask(self.store, *args, by=SOMEBODY, now=self.now, **terms)
        assert self.store.head() == head, "asking twice did it twice"
        return True

    def new(self) -> Sequence[Any]:
        """Return the events since this was asked last."""
        page = self.store.read_all(after=self._read, limit=100_000)
        self._read = page.next_position
        return [each.event for each in page.events]

    def follow(self) -> None:
        """Let the tables read all there is."""
        while follow_projections(self.store, READ):
            pass
        wrong = dict(Checkpoint.objects.exclude(error="").values_list("name", "error"))
        assert not wrong, wrong

    def currency(self, account_id: AccountId) -> str:
        return next(each.currency for each in UNITS if each.account_id == account_id)

    def later(self, **span: float) -> None:
        self.now += timedelta(**span)


def _asked_of(kind: type) -> list[tuple[str, Any]]:
    return [
        (name, each)
        for name, each in vars(kind).items()
        if getattr(each, "__qualname__", "") in _ASKED
    ]


def pick(items: Sequence[Any], number: int) -> Any:
    """Return one of several by any number."""
    return items[number % len(items)]
