"""What owners earned, and how they are paid, as one actor may see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Max, Q, QuerySet, Sum

from ledger.access import Actor, visible
from ledger.domain.ids import TenantId, UserId
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.payees import PayoutUnknown
from ledger.domain.refusal import Unknown
from ledger.domain.settling import Due, Earned
from ledger.models import (
    AccountRow,
    BankFileRow,
    EarningRow,
    MemberRow,
    PayeeRow,
    PayoutRow,
)

PAYOUT_KINDS = ("payout", "payout-paid", "payout-back")
NEWEST_FIRST = ("-requested_at", "-payout_id")


class PayeeUnknown(Unknown):
    """There are no such earnings.

    An organisation has earnings once it has an account for them.
    """


class BankFileUnknown(Unknown):
    """There is no such bank file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarnedBy:
    """What a lease, or a kind of entry, did to earnings in a month.

    gross_nanos: what consumers paid. fee_nanos: what of it the platform took. nanos: what is left.
    """

    period: str
    kind: str
    lease_id: UUID | None
    sku: str
    currency: str
    gpu_millis: int
    gross_nanos: int
    fee_nanos: int
    nanos: int


def payees(actor: Actor) -> QuerySet[PayeeRow]:
    """Return the earnings that the actor may see: its own, or all of the platform's owners."""
    rows = PayeeRow.objects.all() if actor.has_platform_money else visible(actor, PayeeRow)
    return rows.order_by("account_id")


def payee(actor: Actor, account_id: UUID) -> PayeeRow:
    """Return one. Raises: PayeeUnknown."""
    found = payees(actor).filter(pk=account_id).first()
    if found is None:
        raise PayeeUnknown(account_id=account_id)
    return found


def own_payees(actor: Actor) -> QuerySet[PayeeRow]:
    """Return the earnings of the actor's own organisation that are paid out."""
    rows = PayeeRow.objects.filter(tenant_id=actor.tenant_id).exclude(tenant_id=PLATFORM_ID)
    return rows.order_by("account_id")


def payouts(actor: Actor) -> QuerySet[PayoutRow]:
    """Return payouts, the newest first: the actor's own, or all for the platform's finance."""
    rows = PayoutRow.objects.all() if actor.has_platform_money else visible(actor, PayoutRow)
    return rows.order_by(*NEWEST_FIRST)


def payout(actor: Actor, payout_id: UUID) -> PayoutRow:
    """Return one. Raises: PayoutUnknown."""
    found = payouts(actor).filter(pk=payout_id).first()
    if found is None:
        raise PayoutUnknown(payout_id=payout_id)
    return found


def earned(row: PayeeRow, due: Due, *, held_days: int) -> Earned:
    """Return what an owner earned, for a settlement."""
    later = Q(day__gte=due.cut_off)
    recent = Q(day__gte=due.held_from(held_days), day__lt=due.cut_off)
    gains = EarningRow.objects.filter(
        later | recent, account_id=row.account_id, nanos__gt=0
    ).exclude(kind__in=PAYOUT_KINDS)
    sums = gains.aggregate(later=Sum("nanos", filter=later), recent=Sum("nanos", filter=recent))
    held = AccountRow.objects.filter(pk=row.account_id).values_list("held_nanos", flat=True).first()
    return Earned(
        total=row.earned_nanos,
        later=int(sums["later"] or 0),
        recent=int(sums["recent"] or 0),
        set_aside=held or 0,
    )


def short_accounts() -> QuerySet[AccountRow]:
    """Return earnings that no longer cover what is contested of them, or are below zero.

    What is on its way to their owners waits.
    """
    return AccountRow.objects.filter(kind="earnings", available_nanos__lt=0)


def due_payees(after: UUID | None, limit: int) -> list[PayeeRow]:
    """Return payees who are owed anything, in order of id, behind one."""
    rows = PayeeRow.objects.filter(earned_nanos__gt=0).order_by("account_id")
    if after is not None:
        rows = rows.filter(account_id__gt=after)
    return list(rows[:limit])


def earnings(
    actor: Actor,
    *,
    account_id: UUID | None = None,
    period: str = "",
    lease_ids: Sequence[UUID] | None = None,
) -> list[EarnedBy]:
    """Return what was earned by month, kind and lease, the newest month and the most first."""
    rows = visible(actor, EarningRow)
    if account_id is not None:
        rows = rows.filter(account_id=account_id)
    if period:
        rows = rows.filter(period=period)
    if lease_ids is not None:
        rows = rows.filter(lease_id__in=lease_ids)
    return _summed(rows.exclude(kind__in=PAYOUT_KINDS))


def statement_lines(row: PayoutRow) -> list[EarnedBy]:
    """Return what came to the earnings between the payout before and this one.

    Opening and these lines, less the payout, make its closing.
    """
    rows = EarningRow.objects.filter(account_id=row.account_id, round=row.round)
    return _summed(rows)


def bank_files(actor: Actor) -> QuerySet[BankFileRow]:
    """Return the bank files, the newest first; none for who does not keep the platform's money."""
    rows = BankFileRow.objects.all() if actor.has_platform_money else BankFileRow.objects.none()
    return rows.order_by("-number")


def bank_file(actor: Actor, file_id: UUID) -> BankFileRow:
    """Return one. Raises: BankFileUnknown."""
    found = bank_files(actor).filter(pk=file_id).first()
    if found is None:
        raise BankFileUnknown(file_id=file_id)
    return found


def is_of(user_id: UserId, tenant_id: TenantId | UUID) -> bool:
    """Tell if a person may act for an organisation."""
    return MemberRow.objects.filter(user_id=user_id, tenant_id=tenant_id).exists()


def _summed(rows: QuerySet[EarningRow]) -> list[EarnedBy]:
    by: Any = rows.values("period", "kind", "lease_id", "currency").annotate(
        sku=Max("sku"),
        millis=Sum("gpu_millis"),
        gross=Sum("gross_nanos"),
        fee=Sum("fee_nanos"),
        net=Sum("nanos"),
    )
    return [
        EarnedBy(
            period=each["period"],
            kind=each["kind"],
            lease_id=each["lease_id"],
            sku=each["sku"],
            currency=each["currency"],
            gpu_millis=int(each["millis"]),
            gross_nanos=int(each["gross"]),
            fee_nanos=int(each["fee"]),
            nanos=int(each["net"]),
        )
        for each in by.order_by("-period", "-net", "kind", "lease_id", "currency")
    ]
