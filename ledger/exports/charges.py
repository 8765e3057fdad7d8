"""The one source of rows for exports of charges: what a payer was charged, paid in or got back.

Rows come in the order of the store, so the same period, actor and position give the same rows.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from ledger import queries
from ledger.access import Actor, visible
from ledger.domain.accounts import PAYING_KINDS
from ledger.domain.ids import TenantId
from ledger.domain.money import Money, Rate
from ledger.domain.periods import Period
from ledger.eventstore.port import Position
from ledger.models import AccountRow, PostingRow, StorageChargeRow, UsageChargeRow

CHUNK = 2_000

ChargeKind = Literal["usage", "storage", "purchase", "credit"]
"""usage: a metered window. storage: of a volume. purchase: funds paid into a prepaid account.
credit: compensation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What a usage charge is for. energy_mj: what the cards took for it; None: not known."""

    lease_id: UUID
    starts_at: datetime
    ends_at: datetime
    gpu_millis: int
    price: Rate
    list_price: Rate
    cost_centre: str
    sku: str
    region: str
    service_class: str
    provider: str
    energy_mj: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """What a charge for a volume is for. price_nanos: of a GiB for a month of 730 hours."""

    volume_id: UUID
    title: str
    starts_at: datetime
    ends_at: datetime
    byte_seconds: int
    price_nanos: int
    cost_centre: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """One charge to one account. money: what is charged; what is given back is below zero.

    prepaid: the account pays in first, so that its use bills nothing more.
    """

    kind: ChargeKind
    position: int
    entry_id: UUID
    account_id: UUID
    account_title: str
    prepaid: bool
    tenant_id: UUID
    tenant_title: str
    unit_id: UUID | None
    unit_title: str
    money: Money
    reference: str
    at: datetime
    lease_id: UUID | None
    use: Use | None = None
    storage: Storage | None = None


def charges(actor: Actor, *, period: Period, position: Position) -> Iterator[Charge]:
    """Yield every charge of a period that was recorded up to `position` and `actor` may see."""
    payers = _Payers(actor)
    yield from heapq.merge(
        _usage(payers, period, position),
        _storage(payers, period, position),
        _others(payers, period, position),
        key=lambda charge: charge.position,
    )


class _Payers:
    """The accounts that pay, with the names of those they belong to."""

    def __init__(self, actor: Actor) -> None:
        self.actor = actor
        rows = visible(actor, AccountRow).filter(kind__in=PAYING_KINDS)
        self.accounts: dict[UUID, AccountRow] = {row.pk: row for row in rows}
        parties = {row.tenant_id for row in self.accounts.values()}
        parties |= {row.subscriber_id for row in self.accounts.values()}
        self.names = queries.party_names(TenantId(each) for each in parties if each)

    def charge(
        self,
        account_id: UUID,
        *,
        kind: ChargeKind,
        nanos: int,
        row: UsageChargeRow | StorageChargeRow | PostingRow,
        reference: str,
        lease_id: UUID | None,
        use: Use | None = None,
        storage: Storage | None = None,
    ) -> Charge:
        account = self.accounts[account_id]
        assert account.tenant_id is not None
        unit_id = account.subscriber_id
        return Charge(
            kind=kind,
            position=row.position,
            entry_id=row.entry_id,
            account_id=account_id,
            account_title=account.title,
            prepaid=account.kind == "prepaid",
            tenant_id=account.tenant_id,
            tenant_title=self.names.get(account.tenant_id) or str(account.tenant_id),
            unit_id=unit_id,
            unit_title=(self.names.get(unit_id) or str(unit_id)) if unit_id else "",
            money=Money(nanos, account.currency),
            reference=reference,
            at=row.at,
            lease_id=lease_id,
            use=use,
            storage=storage,
        )


def _usage(payers: _Payers, period: Period, position: Position) -> Iterator[Charge]:
    rows = visible(payers.actor, UsageChargeRow).filter(
        period=str(period), position__lte=position, account_id__in=list(payers.accounts)
    )
    for row in rows.order_by("position").iterator(CHUNK):
        use = Use(
            lease_id=row.lease_id,
            starts_at=row.starts_at,
            ends_at=row.ends_at,
            gpu_millis=row.gpu_millis,
            price=Rate(row.price_nanos, row.currency),
            list_price=Rate(row.list_price_nanos, row.currency),
            cost_centre=row.cost_centre,
            sku=row.sku,
            region=row.region,
            service_class=row.service_class,
            provider=row.provider,
            energy_mj=row.energy_mj,
        )
        yield payers.charge(
            row.account_id,
            kind="usage",
            nanos=row.charged_nanos,
            row=row,
            reference=row.sku,
            lease_id=row.lease_id,
            use=use,
        )


def _storage(payers: _Payers, period: Period, position: Position) -> Iterator[Charge]:
    rows = visible(payers.actor, StorageChargeRow).filter(
        period=str(period), position__lte=position, account_id__in=list(payers.accounts)
    )
    for row in rows.order_by("position").iterator(CHUNK):
        storage = Storage(
            volume_id=row.volume_id,
            title=row.title,
            starts_at=row.starts_at,
            ends_at=row.ends_at,
            byte_seconds=row.byte_seconds,
            price_nanos=row.nanos_per_gib_month,
            cost_centre=row.cost_centre,
        )
        yield payers.charge(
            row.account_id,
            kind="storage",
            nanos=row.charged_nanos,
            row=row,
            reference=row.title,
            lease_id=None,
            storage=storage,
        )


def _others(payers: _Payers, period: Period, position: Position) -> Iterator[Charge]:
    rows = visible(payers.actor, PostingRow).filter(
        period=str(period),
        position__lte=position,
        kind__in=("funds", "compensation"),
        account_id__in=list(payers.accounts),
    )
    for row in rows.order_by("position").iterator(CHUNK):
        bought = row.kind == "funds"
        if bought and payers.accounts[row.account_id].kind != "prepaid":
            continue  # settling what was charged before is no new charge
        yield payers.charge(
            row.account_id,
            kind="purchase" if bought else "credit",
            nanos=row.nanos if bought else -row.nanos,
            row=row,
            reference=row.reference,
            lease_id=row.lease_id,
        )
