"""What owners earned, by day and lease: written with each entry that moves an earnings account."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from ledger.domain import journal
from ledger.domain.account_ids import earnings_account
from ledger.domain.dispute_events import UseCredited
from ledger.domain.events import CompensationPaid, SlaCredited, UsageCaptured
from ledger.domain.ids import TenantId
from ledger.domain.parties import PLATFORM_ID
from ledger.models import AccountRow, EarningRow, PayeeRow
from ledger.rows import Rows

PAYOUT_KINDS = frozenset({"payout", "payout-paid", "payout-back"})
TABLES = (PayeeRow, EarningRow)


def project_earnings(
    entry: journal.EntryEvent, rows: Rows, *, kind: str, period: str, reference: str, currency: str
) -> None:
    """Add an entry to the earnings of the owners whose accounts it moves."""
    shares = _shares(entry) if isinstance(entry, UsageCaptured) else {}
    owners = {earnings_account(owner, currency): owner for owner in _owners(entry)}
    for line in entry.postings:
        owner = owners.get(line.account_id) or _owner(line.account_id, rows)
        if owner is None:
            continue
        payee = payee_of(rows, line.account_id, owner, currency)
        is_payout = kind in PAYOUT_KINDS
        rows.update(
            payee,
            earned_nanos=payee.earned_nanos + (0 if is_payout else line.nanos),
            paid_nanos=payee.paid_nanos - (line.nanos if is_payout else 0),
        )
        if kind == "payout":
            continue  # it ends the round, and is on the payout itself
        millis, fee = shares.get(line.account_id, (0, 0))
        _add(
            rows,
            payee,
            at=entry.at,
            period=period,
            kind=kind,
            lease_id=getattr(entry, "lease_id", None),
            sku=reference,
            gpu_millis=millis,
            fee=fee,
            nanos=line.nanos,
        )


def payee_of(rows: Rows, account_id: UUID, tenant_id: UUID, currency: str) -> PayeeRow:
    """Return the row of an earnings account, made where it is the first that is heard of it."""
    found = rows.find(PayeeRow, account_id)
    if found is None:
        found = rows.make(PayeeRow, account_id=account_id, tenant_id=tenant_id, currency=currency)
    return found


def _owners(entry: journal.EntryEvent) -> list[TenantId]:
    """Return the owners that an entry names; their accounts may not be opened yet."""
    match entry:
        case UsageCaptured():
            return [use.owner_id for use in entry.owners]
        case CompensationPaid() | SlaCredited():
            return [entry.owner_id]
        case UseCredited() if entry.owner_id != PLATFORM_ID:
            return [entry.owner_id]
        case _:
            return []


def _owner(account_id: UUID, rows: Rows) -> UUID | None:
    """Return whose earnings account it is; None: it is another kind of account."""
    account = rows.find(AccountRow, account_id)
    if account is None or account.kind != "earnings":
        return None
    return account.tenant_id


def _shares(used: UsageCaptured) -> dict[UUID, tuple[int, int]]:
    """Return each owner's GPU-milliseconds and part of the fee, by earnings account."""
    weights = [use.gpu_millis if use.weight is None else use.weight for use in used.owners]
    fees = journal.split(used.fee.nanos, weights)
    return {
        earnings_account(use.owner_id, used.charged.currency): (use.gpu_millis, fee)
        for use, fee in zip(used.owners, fees, strict=True)
    }


def _add(
    rows: Rows,
    payee: PayeeRow,
    *,
    at: datetime,
    period: str,
    kind: str,
    lease_id: UUID | None,
    sku: str,
    gpu_millis: int,
    fee: int,
    nanos: int,
) -> None:
    day = at.astimezone(UTC).date()
    key = f"{payee.account_id}:{payee.rounds}:{day}:{period}:{kind}:{lease_id or ''}"
    gross = nanos + fee
    found = rows.find(EarningRow, key)
    if found is None:
        rows.make(
            EarningRow,
            key=key,
            account_id=payee.account_id,
            tenant_id=payee.tenant_id,
            round=payee.rounds,
            day=day,
            period=period,
            kind=kind,
            lease_id=lease_id,
            sku=sku,
            currency=payee.currency,
            gpu_millis=gpu_millis,
            gross_nanos=gross,
            fee_nanos=fee,
            nanos=nanos,
        )
        return
    rows.update(
        found,
        gpu_millis=found.gpu_millis + gpu_millis,
        gross_nanos=found.gross_nanos + gross,
        fee_nanos=found.fee_nanos + fee,
        nanos=found.nanos + nanos,
    )
