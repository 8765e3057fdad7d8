"""Disputes as one actor may see them, and the charges that may be contested."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID, uuid5

from django.db.models import QuerySet

from ledger.access import Actor, visible
from ledger.domain.dispute_events import DisputeOpened
from ledger.domain.disputes import Charge, ChargeUnknown, DisputeUnknown, dispute_of
from ledger.domain.ids import AccountId, EntryId, LeaseId, TenantId, UserId
from ledger.domain.money import Money
from ledger.domain.span import Window
from ledger.models import AccountRow, PostingRow, UsageChargeRow
from ledger.models.disputes import DisputeRow, DisputeSaidRow

LEASE_MAX = 50
"""Disputes of one lease on its page."""


def disputes(actor: Actor) -> QuerySet[DisputeRow]:
    """Return the disputes that the actor's organisation is part of; all for the platform's."""
    return DisputeRow.objects.all() if actor.has_platform_money else visible(actor, DisputeRow)


def dispute(actor: Actor, dispute_id: UUID) -> DisputeRow:
    """Return one. Raises: DisputeUnknown."""
    found = disputes(actor).filter(pk=dispute_id).first()
    if found is None:
        raise DisputeUnknown(dispute_id=dispute_id)
    return found


def overdue_disputes(*, now: datetime, after: UUID | None, limit: int) -> list[UUID]:
    """Return open disputes whose time to be decided is over, in order of id, behind one."""
    rows = DisputeRow.objects.filter(state="open", decide_by__lte=now).order_by("pk")
    if after is not None:
        rows = rows.filter(pk__gt=after)
    return list(rows.values_list("pk", flat=True)[:limit])


def charge_to_contest(
    actor: Actor, entry_id: UUID, *, used_millis: int, reason: str, user_id: UserId, now: datetime
) -> Charge:
    """Return a charge of the actor's own organisation, and who got what of it.

    Raises: ChargeUnknown.
    """
    row = UsageChargeRow.objects.filter(pk=entry_id, tenant_id=actor.tenant_id).first()
    return _charge(row, entry_id, used_millis=used_millis, reason=reason, user_id=user_id, now=now)


def charge_of(entry_id: UUID, *, used_millis: int, reason: str, now: datetime) -> Charge:
    """Return a charge that nobody in particular contests, and who got what of it.

    Raises: ChargeUnknown.
    """
    row = UsageChargeRow.objects.filter(pk=entry_id).first()
    return _charge(row, entry_id, used_millis=used_millis, reason=reason, user_id=None, now=now)


def statements_of(row: DisputeRow) -> list[DisputeSaidRow]:
    """Return what was said about a dispute that the actor may see, in order."""
    return list(DisputeSaidRow.objects.filter(dispute_id=row.dispute_id).order_by("number"))


def entries_of(actor: Actor, row: DisputeRow) -> list[PostingRow]:
    """Return the lines of its charge and of what was given back, as far as the actor sees them."""
    charged = PostingRow.objects.filter(entry_id=row.entry_id, lease_id=row.lease_id)
    given = [uuid5(row.dispute_id, f"credit:{line.account_id}") for line in charged]
    rows = visible(actor, PostingRow) if not actor.has_platform_money else PostingRow.objects.all()
    found = rows.filter(entry_id__in=[row.entry_id, *given], lease_id=row.lease_id)
    return list(found.order_by("position", "line_id"))


def titles_of(lines: Sequence[PostingRow]) -> dict[UUID, str]:
    """Return what the accounts of lines that were just read are called."""
    accounts = AccountRow.objects.filter(pk__in={line.account_id for line in lines})
    return dict(accounts.values_list("pk", "title"))


def charges_of_lease(
    actor: Actor, lease_id: UUID, *, since: datetime, limit: int
) -> list[UsageChargeRow]:
    """Return what the actor's own organisation was charged for a lease, the newest use first."""
    rows = UsageChargeRow.objects.filter(
        tenant_id=actor.tenant_id, lease_id=lease_id, ends_at__gt=since, charged_nanos__gt=0
    )
    return list(rows.order_by("-starts_at")[:limit])


def disputed(actor: Actor, lease_id: UUID) -> list[DisputeRow]:
    """Return the disputes about a lease that the actor may see, the newest use first."""
    return list(disputes(actor).filter(lease_id=lease_id).order_by("-starts_at")[:LEASE_MAX])


def _charge(
    row: UsageChargeRow | None,
    entry_id: UUID,
    *,
    used_millis: int,
    reason: str,
    user_id: UserId | None,
    now: datetime,
) -> Charge:
    if row is None:
        raise ChargeUnknown(entry_id=entry_id)
    lines = PostingRow.objects.filter(position=row.position, entry_id=entry_id, nanos__gt=0)
    got = {line.account_id: line.nanos for line in lines.order_by("line_id")}
    owners = {
        account.pk: account.tenant_id
        for account in AccountRow.objects.filter(pk__in=got, kind="earnings")
    }
    known = EntryId(entry_id)
    return Charge(
        terms=DisputeOpened(
            dispute_id=dispute_of(known),
            entry_id=known,
            account_id=AccountId(row.account_id),
            tenant_id=TenantId(row.tenant_id),
            lease_id=LeaseId(row.lease_id),
            window=Window(row.starts_at, row.ends_at),
            charged_millis=row.gpu_millis,
            used_millis=used_millis,
            money=Money(0, row.currency),
            contested=(),
            reason=reason,
            opened_by=user_id,
            decide_by=now,
            at=now,
        ),
        charged=Money(row.charged_nanos, row.currency),
        parts=tuple(
            (AccountId(account_id), _tenant(owners.get(account_id)), nanos)
            for account_id, nanos in got.items()
        ),
    )


def _tenant(tenant_id: UUID | None) -> TenantId | None:
    return None if tenant_id is None else TenantId(tenant_id)
