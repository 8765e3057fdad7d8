"""Journal entries one by one: those that a sum is made of, and what one of them says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from uuid import UUID

from django.db.models import Q, QuerySet

from ledger.access import Actor, visible
from ledger.domain.accounts import PAYING_KINDS
from ledger.domain.costs import COST_KINDS
from ledger.domain.periods import Period
from ledger.domain.refusal import Unknown
from ledger.models import AccountRow, JournalEntryRow, StorageChargeRow, UsageChargeRow
from ledger.queries.costs import OF_ACCOUNTS, VOLUME, accounts_of

NEWEST_ENTRIES = ("-position",)
CHARGED = ("usage", "storage")
COLUMNS = {
    "sku": "sku",
    "class": "service_class",
    "region": "region",
    "provider": "provider",
}
"""What only the charge of an entry tells."""


class EntryUnknown(Unknown):
    """There is no such journal entry, or none that you may see."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which entries. first, last: months, both among them.

    only: as for `costs`; with any of it only costs of accounts that pay. with_id: costs that moved
    something of this organisation as well. payer_id: costs of this organisation, which the actor
    sees as far as its own accounts are part of them. leases: a condition on `lease_id`. after: only
    what was recorded after that position. of: a condition of its own, as of what is on an invoice.
    """

    first: Period
    last: Period
    only: Mapping[str, str] = field(default_factory=dict)
    with_id: UUID | None = None
    payer_id: UUID | None = None
    leases: Q = field(default_factory=Q)
    after: int = 0
    of: Q = field(default_factory=Q)


def entries(actor: Actor, wanted: Wanted) -> QuerySet[JournalEntryRow]:
    """Return entries that touch accounts of the actor's tenant, the newest first; see `visible`."""
    rows = _seen(actor).filter(
        wanted.leases,
        wanted.of,
        period__gte=str(wanted.first),
        period__lte=str(wanted.last),
        position__gt=wanted.after,
    )
    if wanted.only or wanted.with_id or wanted.payer_id or wanted.leases:
        rows = rows.filter(kind__in=COST_KINDS)
    if wanted.only or wanted.leases:
        rows = rows.filter(account_id__in=accounts_of(actor, wanted.only))
    if wanted.payer_id:
        payers = AccountRow.objects.filter(tenant_id=wanted.payer_id, kind__in=PAYING_KINDS)
        rows = rows.filter(account_id__in=payers.values("account_id"))
    if wanted.with_id:
        rows = rows.filter(account_ids__overlap=list(accounts_of_party(wanted.with_id)))
    for name, key in wanted.only.items():
        if name not in OF_ACCOUNTS:
            rows = rows.filter(_where(name, key, wanted))
    return rows.order_by(*NEWEST_ENTRIES)


def accounts_of_party(tenant_id: UUID) -> frozenset[UUID]:
    """Return the accounts of an organisation, to tell its lines of entries by."""
    rows = AccountRow.objects.filter(tenant_id=tenant_id)
    return frozenset(rows.values_list("account_id", flat=True))


def _seen(actor: Actor) -> QuerySet[JournalEntryRow]:
    rows = JournalEntryRow.objects.all()
    if actor.sees_all:
        return rows
    mine = visible(actor, AccountRow).values_list("account_id", flat=True)
    return rows.filter(account_ids__overlap=list(mine))


def _where(name: str, key: str, wanted: Wanted) -> Q:
    match name:
        case "kind":
            return Q(kind=key)
        case "month":
            return Q(period=key)
        case "cost-centre":
            return Q(cost_centre=key)
        case "day":
            try:
                return Q(day=date.fromisoformat(key))
            except ValueError:
                return Q(pk__in=())
        case "lease":
            try:
                return Q(lease_id=UUID(key) if key else None)
            except ValueError:
                return Q(pk__in=())
        case _:
            return _of_charge(name, key, wanted)


def _of_charge(name: str, key: str, wanted: Wanted) -> Q:
    charged = UsageChargeRow.objects.filter(
        period__gte=str(wanted.first), period__lte=str(wanted.last), **{COLUMNS[name]: key}
    )
    found = Q(kind="usage", entry_id__in=charged.values("entry_id"))
    if name == "sku" and key == VOLUME:
        found |= Q(kind="storage")
    if not key:
        found |= ~Q(kind__in=CHARGED) if name == "sku" else ~Q(kind="usage")
    return found


def moved(row: JournalEntryRow, account_id: UUID) -> int:
    """Return what an entry added to an account, in nano-units."""
    pairs = zip(row.account_ids, row.nanos, strict=True)
    return sum(nanos for each, nanos in pairs if each == account_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryLine:
    """One line of an entry. account: None: all lines of accounts that the actor may not see."""

    account: AccountRow | None
    nanos: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EntrySeen:
    """One entry. is_whole: the actor sees the account that it is recorded for, and so all that led
    to it; others see their own lines and nothing of who paid for what."""

    row: JournalEntryRow
    lines: Sequence[EntryLine]
    is_whole: bool
    usage: UsageChargeRow | None
    storage: StorageChargeRow | None


def entry(actor: Actor, entry_id: UUID) -> EntrySeen:
    """Return one entry.

    Raises: EntryUnknown.
    """
    row = _seen(actor).filter(pk=entry_id).first()
    if row is None:
        raise EntryUnknown(entry_id=entry_id)
    seen = visible(actor, AccountRow).in_bulk(row.account_ids)
    others, lines = 0, list[EntryLine]()
    for account_id, nanos in zip(row.account_ids, row.nanos, strict=True):
        if account_id in seen:
            lines.append(EntryLine(account=seen[account_id], nanos=nanos))
        else:
            others += nanos
    if len(lines) < len(row.account_ids):
        lines.append(EntryLine(account=None, nanos=others))
    return EntrySeen(
        row=row,
        lines=lines,
        is_whole=actor.sees_all or row.account_id in seen,
        usage=visible(actor, UsageChargeRow).filter(pk=entry_id).first(),
        storage=visible(actor, StorageChargeRow).filter(pk=entry_id).first(),
    )
