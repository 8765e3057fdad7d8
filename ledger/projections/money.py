"""Tables of money, kept equal to the account streams."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from ledger.domain import journal
from ledger.domain.account_ids import earnings_account
from ledger.domain.accounts import PAYING_KINDS
from ledger.domain.closing_events import PeriodEvent
from ledger.domain.connect_events import TransferReversed
from ledger.domain.depletion_events import WatchEvent
from ledger.domain.dispute_events import UseCredited
from ledger.domain.events import (
    AccountOpened,
    BudgetSet,
    CompensationPaid,
    CostRecorded,
    FundsAdded,
    HoldPlaced,
    HoldReleased,
    HoldResized,
    InvoiceCredited,
    InvoiceRounded,
    SlaCredited,
    StorageCharged,
    SubscriberRegistered,
    TaxCharged,
    TenantRegistered,
    UsageCaptured,
)
from ledger.domain.ids import AccountId
from ledger.domain.money import Money
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.payout_events import (
    BankFileWritten,
    PayeeEvent,
    PayoutCancelled,
    PayoutEntry,
    PayoutPaid,
    PayoutRequested,
    PayoutReturned,
)
from ledger.domain.periods import read_period
from ledger.domain.receivable_events import InvoiceWrittenOff
from ledger.domain.return_events import (
    EntryReversed,
    FundsDisputed,
    FundsReturned,
    ProcessingFeePaid,
    ReturnEntry,
)
from ledger.domain.self_billing_events import OwnerTaxAdded
from ledger.domain.wallet_events import WalletEvent
from ledger.eventstore.codec import encode
from ledger.eventstore.port import Recorded
from ledger.following import Projection, names_of
from ledger.models import (
    AccountRow,
    DebtRow,
    HoldRow,
    JournalEntryRow,
    PartyNameRow,
    PostingRow,
    PostingSumRow,
    StorageChargeRow,
    UsageChargeRow,
)
from ledger.projections import depletion, earnings, payouts, periods, sums, wallets
from ledger.rows import Rows

AN_INSTANT = timedelta(microseconds=1)


def project_money(recorded: Recorded, rows: Rows) -> None:
    """Keep accounts, holds, journal, charges and debts equal to the account streams."""
    match recorded.event:
        case TenantRegistered() as tenant:
            rows.add(PartyNameRow(party_id=tenant.tenant_id, title=tenant.title))
        case SubscriberRegistered() as unit:
            rows.add(PartyNameRow(party_id=unit.subscriber_id, title=unit.title))
        case AccountOpened() as opened:
            _open(opened, rows)
        case BudgetSet() as budget:
            rows.change(AccountRow, budget.account_id, overdraft_nanos=budget.overdraft_nanos)
            depletion.begin_anew(budget.account_id, rows)
        case HoldPlaced() | HoldResized() | HoldReleased() as event:
            _project_hold(event, rows)
        case UsageCaptured() as captured:
            _post(captured, recorded, rows)
            _charge(captured, recorded, rows)
        case FundsAdded() | CostRecorded() as entry:
            _post(entry, recorded, rows)
            if isinstance(entry, FundsAdded):
                depletion.begin_anew(entry.account_id, rows)
        case StorageCharged() as charged:
            _post(charged, recorded, rows)
            _store(charged, recorded, rows)
        case CompensationPaid() | SlaCredited() | UseCredited() as paid:
            _post(paid, recorded, rows)
            payee = rows.get(AccountRow, paid.account_id).tenant_id
            _owe(rows, str(periods.counts_in(paid.at, rows)), paid.owner_id, payee, paid.money)
        case event:
            _project_beside(event, recorded, rows)


def _project_beside(event: object, recorded: Recorded, rows: Rows) -> None:
    """Keep what has rows of its own: payouts, months, what was told of accounts."""
    match event:
        case event if isinstance(event, PayeeEvent):
            if isinstance(event, PayoutEntry):
                _post(event, recorded, rows)
            payouts.project_payee(event, rows)
        case BankFileWritten() as written:
            payouts.project_bank_file(written, recorded, rows)
        case InvoiceRounded() | TaxCharged() as billed:
            _post(billed, recorded, rows)
            payer = rows.get(AccountRow, billed.account_id).tenant_id
            assert payer is not None, "only an open account is invoiced"
            month = str(periods.counts_in(_counts_from(billed), rows))
            _owe(rows, month, payer, None, billed.money)
        case InvoiceCredited() | OwnerTaxAdded() as given:
            _post(given, recorded, rows)
            payee = rows.get(AccountRow, given.account_id).tenant_id
            _owe(rows, str(periods.counts_in(given.at, rows)), PLATFORM_ID, payee, given.money)
        case InvoiceWrittenOff() as given_up:
            _post(given_up, recorded, rows)
            depletion.begin_anew(given_up.account_id, rows)
        case event if isinstance(event, ReturnEntry):
            if isinstance(event, FundsDisputed):
                wallets.allow_short(event, rows)
            _post(event, recorded, rows)
            if isinstance(event, EntryReversed):
                depletion.begin_anew(event.account_id, rows)
        case event if isinstance(event, WalletEvent):
            wallets.project_wallet(event, rows)
        case event if isinstance(event, PeriodEvent):
            periods.project_period(event, recorded, rows)
        case event if isinstance(event, WatchEvent):
            depletion.project_watch(event, rows)


def _open(opened: AccountOpened, rows: Rows) -> None:
    row = _account(rows, opened.account_id, opened.currency)
    rows.change(
        AccountRow,
        opened.account_id,
        tenant_id=opened.tenant_id,
        subscriber_id=opened.subscriber_id,
        kind=opened.kind,
        title=opened.title,
        overdraft_nanos=opened.overdraft_nanos,
        opened_at=opened.at,
    )
    if opened.kind in PAYING_KINDS:
        depletion.begin_anew(opened.account_id, rows)
    if row.total_nanos:
        for line in rows.select(PostingRow, account_id=opened.account_id):
            rows.change(PostingRow, line.pk, tenant_id=opened.tenant_id)


def _account(rows: Rows, account_id: AccountId, currency: str) -> AccountRow:
    """Return an account's row, making one for an account that is posted to before it opens.

    Nothing may stand in the way of a charge, so an owner is paid even where nobody has opened
    the owner's account yet.
    """
    found = rows.find(AccountRow, account_id)
    if found is None:
        found = AccountRow(
            account_id=account_id,
            kind="",
            title="",
            currency=currency,
            total_nanos=0,
            held_nanos=0,
            available_nanos=0,
            short_nanos=0,
        )
        rows.add(found)
    return found


def _move(
    rows: Rows, account_id: AccountId, currency: str, *, total: int = 0, held: int = 0
) -> AccountRow:
    row = _account(rows, account_id, currency)
    available = row.available_nanos + total - held
    return rows.update(
        row,
        total_nanos=row.total_nanos + total,
        held_nanos=row.held_nanos + held,
        available_nanos=available,
        short_nanos=row.short_nanos and min(row.short_nanos, wallets.short(row, available)),
    )


def _project_hold(event: HoldPlaced | HoldResized | HoldReleased, rows: Rows) -> None:
    currency = event.money.currency
    match event:
        case HoldPlaced() as placed:
            account = _move(rows, placed.account_id, currency, held=placed.money.nanos)
            rows.make(
                HoldRow,
                hold_id=placed.hold_id,
                account_id=placed.account_id,
                tenant_id=account.tenant_id,
                purpose=placed.purpose,
                currency=currency,
                money_nanos=placed.money.nanos,
                captured_nanos=0,
                state="placed",
                placed_at=placed.at,
            )
        case HoldResized() as resized:
            row = rows.get(HoldRow, resized.hold_id)
            grown = resized.money.nanos - row.money_nanos
            rows.change(HoldRow, resized.hold_id, money_nanos=resized.money.nanos)
            _move(rows, resized.account_id, currency, held=grown)
        case HoldReleased() as released:
            rows.change(HoldRow, released.hold_id, state="released", released_at=released.at)
            _move(rows, released.account_id, currency, held=-released.money.nanos)


def _post(entry: journal.EntryEvent, recorded: Recorded, rows: Rows) -> None:
    """Write one journal entry: the row that balances, its lines, and the accounts' totals."""
    currency, reference = _currency(entry), _reference(entry)
    kind, lease_id = journal.entry_kind(entry), getattr(entry, "lease_id", None)
    cost_centre = getattr(entry, "cost_centre", "")
    month = periods.counts_in(_counts_from(entry), rows)
    period, day = str(month), periods.day_in(month, _counts_from(entry))
    rows.make(
        JournalEntryRow,
        entry_id=entry.entry_id,
        position=recorded.position,
        period=period,
        day=day,
        kind=kind,
        account_id=entry.account_id,
        lease_id=lease_id,
        cost_centre=cost_centre,
        reference=reference,
        currency=currency,
        account_ids=[line.account_id for line in entry.postings],
        nanos=[line.nanos for line in entry.postings],
        at=entry.at,
    )
    for index, line in enumerate(entry.postings):
        account = _move(rows, line.account_id, currency, total=line.nanos)
        rows.make(
            PostingRow,
            line_id=f"{entry.entry_id}:{index}",
            entry_id=entry.entry_id,
            account_id=line.account_id,
            tenant_id=account.tenant_id,
            position=recorded.position,
            period=period,
            kind=kind,
            lease_id=lease_id,
            cost_centre=cost_centre,
            reference=reference,
            currency=currency,
            nanos=line.nanos,
            at=entry.at,
        )
        sums.add_up(rows, line, period=period, position=recorded.position, kind=kind)
    earnings.project_earnings(
        entry, rows, kind=kind, period=period, reference=reference, currency=currency
    )


def _charge(captured: UsageCaptured, recorded: Recorded, rows: Rows) -> None:
    hold = rows.get(HoldRow, captured.hold_id)
    charged, currency = captured.charged.nanos, captured.charged.currency
    rows.update(hold, captured_nanos=hold.captured_nanos + charged)
    if hold.state == "placed":
        _move(rows, captured.account_id, currency, held=-charged)
    account = rows.get(AccountRow, captured.account_id)
    debtor = account.tenant_id
    assert debtor is not None, "a hold was placed on it, so it is open"
    period = str(periods.counts_in(captured.window.starts_at, rows))
    rows.make(
        UsageChargeRow,
        entry_id=captured.entry_id,
        position=recorded.position,
        period=period,
        account_id=captured.account_id,
        tenant_id=debtor,
        subscriber_id=account.subscriber_id,
        lease_id=captured.lease_id,
        starts_at=captured.window.starts_at,
        ends_at=captured.window.ends_at,
        gpu_millis=captured.gpu_millis,
        energy_mj=captured.energy_mj,
        price_nanos=captured.price.nanos_per_gpu_hour,
        list_price_nanos=(captured.item.list_price or captured.price).nanos_per_gpu_hour,
        fee_ppm=captured.fee_ppm,
        charged_nanos=charged,
        fee_nanos=captured.fee.nanos,
        currency=currency,
        cost_centre=captured.cost_centre,
        sku=captured.item.sku,
        region=captured.item.region,
        service_class=captured.item.service_class,
        provider=captured.item.provider,
        shares=encode(shares).decode() if (shares := captured.item.shares) else "",
        at=captured.at,
    )
    _owe(rows, period, debtor, None, captured.fee)
    moved = {line.account_id: line.nanos for line in captured.postings}
    for use in captured.owners:
        earned = moved.get(earnings_account(use.owner_id, currency), 0)
        _owe(rows, period, debtor, use.owner_id, Money(earned, currency))


def _store(kept: StorageCharged, recorded: Recorded, rows: Rows) -> None:
    account = rows.get(AccountRow, kept.account_id)
    debtor = account.tenant_id
    assert debtor is not None, "only an open account is charged"
    period = str(periods.counts_in(kept.window.starts_at, rows))
    rows.make(
        StorageChargeRow,
        entry_id=kept.entry_id,
        position=recorded.position,
        period=period,
        account_id=kept.account_id,
        tenant_id=debtor,
        subscriber_id=account.subscriber_id,
        volume_id=kept.volume_id,
        title=kept.title,
        starts_at=kept.window.starts_at,
        ends_at=kept.window.ends_at,
        byte_seconds=kept.byte_seconds,
        nanos_per_gib_month=kept.nanos_per_gib_month,
        charged_nanos=kept.charged.nanos,
        currency=kept.charged.currency,
        cost_centre=kept.cost_centre,
        at=kept.at,
    )
    _owe(rows, period, debtor, None, kept.charged)


def _owe(rows: Rows, period: str, debtor_id: UUID, creditor_id: UUID | None, money: Money) -> None:
    if money.nanos == 0:
        return
    debt_id = f"{period}:{debtor_id}:{creditor_id or 'platform'}:{money.currency}"
    row = rows.find(DebtRow, debt_id)
    if row is not None:
        rows.update(row, nanos=row.nanos + money.nanos)
        return
    rows.add(
        DebtRow(
            debt_id=debt_id,
            period=period,
            debtor_id=debtor_id,
            creditor_id=creditor_id,
            currency=money.currency,
            nanos=money.nanos,
        )
    )


def _currency(entry: journal.EntryEvent) -> str:
    if isinstance(entry, UsageCaptured | StorageCharged):
        return entry.charged.currency
    return entry.money.currency


def _reference(entry: journal.EntryEvent) -> str:
    match entry:
        case FundsAdded() | CostRecorded():
            return entry.reference
        case FundsReturned() | FundsDisputed() | EntryReversed() | ProcessingFeePaid():
            return entry.reference
        case PayoutPaid() | TransferReversed():
            return entry.reference
        case UsageCaptured():
            return entry.item.sku
        case StorageCharged():
            return entry.title
        case CompensationPaid():
            return "reclaimed"
        case UseCredited():
            return entry.window.starts_at.isoformat()
        case SlaCredited():
            return entry.reason
        case PayoutRequested():
            return entry.period
        case PayoutCancelled() | PayoutReturned():
            return entry.reason
        case _:  # what a document made, or wrote off
            return entry.number


def _counts_from(entry: journal.EntryEvent) -> datetime:
    """Return when an entry counts: use when it began, what an invoice adds with its month."""
    if isinstance(entry, UsageCaptured | StorageCharged):
        return entry.window.starts_at
    if isinstance(entry, InvoiceRounded | TaxCharged):
        return read_period(entry.period).window.ends_at - AN_INSTANT
    return entry.at


MONEY = Projection(
    name="ledger.money",
    project=project_money,
    tables=(
        PartyNameRow,
        AccountRow,
        HoldRow,
        JournalEntryRow,
        PostingRow,
        PostingSumRow,
        UsageChargeRow,
        StorageChargeRow,
        DebtRow,
        *earnings.TABLES,
        *payouts.TABLES,
        *periods.TABLES,
        *depletion.TABLES,
        *wallets.TABLES,
    ),
    is_bulk=True,
    on=names_of(
        TenantRegistered,
        SubscriberRegistered,
        AccountOpened,
        BudgetSet,
        HoldPlaced,
        HoldResized,
        HoldReleased,
        UsageCaptured,
        FundsAdded,
        CostRecorded,
        CompensationPaid,
        SlaCredited,
        StorageCharged,
        InvoiceRounded,
        TaxCharged,
        InvoiceCredited,
        InvoiceWrittenOff,
        OwnerTaxAdded,
    )
    | payouts.ON
    | periods.ON
    | depletion.ON
    | wallets.ON,
)
