"""The one source of rows for exports of charges: what a payer was charged, paid in or got back.

Rows come in the order of the store, so the same period, actor and position give the same rows.
They are read as they are written out, a chunk at a time, so a month of millions needs no more
memory than one of hundreds. What many of them have in common (`Payer`, `Terms`) is one object, so
that whoever writes them can do that part once.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import get_args
from uuid import UUID

from django.db.models import BigIntegerField, CharField, Func
from django.db.models.functions import Cast

from ledger import queries
from ledger.access import Actor, visible
from ledger.domain.accounts import PAYING_KINDS
from ledger.domain.ids import TenantId
from ledger.domain.journal import EntryKind
from ledger.domain.making import made_quickly, maker
from ledger.domain.periods import Period
from ledger.eventstore.port import Position
from ledger.exports.kinds import Category, Once, once
from ledger.models import AccountRow, PostingRow, StorageChargeRow, UsageChargeRow
from ledger.queries.invoices import InvoiceNumbers

CHUNK = 2_000
BEGIN = datetime(1970, 1, 1, tzinfo=UTC)
MOMENTS_KNOWN = 4_096
TERMS_KNOWN = 4_096
"""How many terms are held as one object; more than that are made again."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Payer:
    """An account that pays, with the names of those it belongs to; one object for each.

    prepaid: it pays in first, so that its use bills nothing more.
    """

    account_id: UUID
    account_title: str
    prepaid: bool
    tenant_id: UUID
    tenant_title: str
    unit_id: UUID | None
    unit_title: str
    currency: str


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """What many windows of use have in common; one object for each. Prices: of a GPU for an hour,
    in nano-units. shares: the parts of cards among its GPUs, as the event has them."""

    price_nanos: int
    list_price_nanos: int
    cost_centre: str
    sku: str
    region: str
    service_class: str
    provider: str
    shares: str


TERMS = tuple(field.name for field in fields(Terms))


@made_quickly
@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What a usage charge is for. energy_mj: what the cards took for it; None: not known."""

    terms: Terms
    starts_at: datetime
    ends_at: datetime
    gpu_millis: int
    energy_mj: int | None = None


@made_quickly
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


@made_quickly
@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """One charge to one account, by one of `use`, `storage` and `once`.

    entry_id, lease_id: as they are written; "" for none. nanos: what it costs; what is given back
    is below zero. Of a payment what was paid in. at: when that happened which happens once.
    """

    position: int
    entry_id: str
    payer: Payer
    nanos: int
    reference: str
    lease_id: str
    at: datetime | None = None
    use: Use | None = None
    storage: Storage | None = None
    once: Once | None = None
    corrects_from: datetime | None = None
    """When the use began that it gives back; None: it gives back none."""
    document: str = ""
    """The number of the invoice or credit note that it is on; empty: none."""

    @property
    def category(self) -> Category:
        """Return what FOCUS calls it."""
        return "Usage" if self.once is None else self.once.category

    @property
    def cost_nanos(self) -> int:
        """Return what it costs: a payment nothing."""
        return 0 if self.once is not None and self.once.is_payment else self.nanos


_charge, _use = maker(Charge), maker(Use)


def charges(actor: Actor, *, period: Period, position: Position) -> Iterator[Charge]:
    """Yield every charge of a period that was recorded up to `position` and `actor` may see."""
    payers = payers_of(actor)
    numbers = InvoiceNumbers(actor, position=position)
    found = heapq.merge(
        _usage(actor, payers, period, position),
        _storage(actor, payers, period, position),
        _others(actor, payers, period, position),
        key=lambda charge: charge.position,
    )
    if not numbers.are_there:
        yield from found
        return
    for charge in found:
        yield replace(charge, document=_document_of(charge, numbers, str(period)))


def _document_of(charge: Charge, numbers: InvoiceNumbers, period: str) -> str:
    if charge.once is not None and charge.once.is_payment:
        return ""
    if charge.once is not None and charge.once.names_document:
        return charge.reference
    return numbers.of(charge.payer.account_id, period=period, position=charge.position)


def payers_of(actor: Actor) -> dict[UUID, Payer]:
    """Return the accounts that pay and the actor may see, by id."""
    rows = list(visible(actor, AccountRow).filter(kind__in=PAYING_KINDS))
    parties = {row.tenant_id for row in rows} | {row.subscriber_id for row in rows}
    names = queries.party_names(TenantId(each) for each in parties if each)
    return {row.pk: _payer(row, names) for row in rows}


def _payer(row: AccountRow, names: dict[UUID, str]) -> Payer:
    assert row.tenant_id is not None
    unit_id = row.subscriber_id
    return Payer(
        account_id=row.pk,
        account_title=row.title,
        prepaid=row.kind == "prepaid",
        tenant_id=row.tenant_id,
        tenant_title=names.get(row.tenant_id) or str(row.tenant_id),
        unit_id=unit_id,
        unit_title=(names.get(unit_id) or str(unit_id)) if unit_id else "",
        currency=row.currency,
    )


def _usage(
    actor: Actor, payers: dict[UUID, Payer], period: Period, position: Position
) -> Iterator[Charge]:
    rows = visible(actor, UsageChargeRow).filter(
        period=str(period), position__lte=position, account_id__in=list(payers)
    )
    told = rows.order_by("position").values_list(
        "position",
        Cast("entry_id", CharField()),
        "account_id",
        "charged_nanos",
        Cast("lease_id", CharField()),
        _Micros("starts_at"),
        _Micros("ends_at"),
        "gpu_millis",
        "energy_mj",
        *TERMS,
    )
    known: dict[tuple[object, ...], Terms] = {}
    for (
        place,
        entry_id,
        account_id,
        nanos,
        lease_id,
        starts_at,
        ends_at,
        gpu_millis,
        energy_mj,
        *common,
    ) in told.iterator(CHUNK):
        key = tuple(common)
        terms = known.get(key)
        if terms is None:
            if len(known) >= TERMS_KNOWN:
                known.clear()
            terms = known[key] = Terms(*common)
        yield _charge(
            position=place,
            entry_id=entry_id,
            payer=payers[account_id],
            nanos=nanos,
            reference=terms.sku,
            lease_id=lease_id,
            use=_use(
                terms=terms,
                starts_at=_moment(starts_at),
                ends_at=_moment(ends_at),
                gpu_millis=gpu_millis,
                energy_mj=energy_mj,
            ),
        )


class _Micros(Func):
    """A moment in microseconds since 1970: many windows share one, so each is made once."""

    template = "(extract(epoch from %(expressions)s) * 1000000)::bigint"
    output_field = BigIntegerField()


@lru_cache(MOMENTS_KNOWN)
def _moment(micros: int) -> datetime:
    return BEGIN + timedelta(microseconds=micros)


def _storage(
    actor: Actor, payers: dict[UUID, Payer], period: Period, position: Position
) -> Iterator[Charge]:
    rows = visible(actor, StorageChargeRow).filter(
        period=str(period), position__lte=position, account_id__in=list(payers)
    )
    for row in rows.order_by("position").iterator(CHUNK):
        yield Charge(
            position=row.position,
            entry_id=str(row.entry_id),
            payer=payers[row.account_id],
            nanos=row.charged_nanos,
            reference=row.title,
            lease_id="",
            storage=Storage(
                volume_id=row.volume_id,
                title=row.title,
                starts_at=row.starts_at,
                ends_at=row.ends_at,
                byte_seconds=row.byte_seconds,
                price_nanos=row.nanos_per_gib_month,
                cost_centre=row.cost_centre,
            ),
        )


def _others(
    actor: Actor, payers: dict[UUID, Payer], period: Period, position: Position
) -> Iterator[Charge]:
    every_kind: tuple[EntryKind, ...] = get_args(EntryKind)
    known = {kind: found for kind in every_kind if (found := once(kind)) is not None}
    rows = visible(actor, PostingRow).filter(
        period=str(period),
        position__lte=position,
        kind__in=list(known),
        account_id__in=list(payers),
    )
    for row in rows.order_by("position").iterator(CHUNK):
        payer, what = payers[row.account_id], known[row.kind]  # type: ignore[index]  # filtered
        if what.is_payment and not payer.prepaid:
            continue  # settling what was charged before is no new charge
        yield Charge(
            position=row.position,
            entry_id=str(row.entry_id),
            payer=payer,
            nanos=row.nanos if what.is_payment else -row.nanos,
            reference=row.reference,
            lease_id=str(row.lease_id or ""),
            at=row.at,
            once=what,
            corrects_from=datetime.fromisoformat(row.reference) if what.corrects_use else None,
        )
