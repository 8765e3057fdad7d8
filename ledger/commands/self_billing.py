"""What may be asked about invoices that the platform issues for owners."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from ledger.commands.money import opening_account
from ledger.domain.account_ids import tax_account
from ledger.domain.billing_details import BillingDetails
from ledger.domain.event import Event
from ledger.domain.ids import TenantId, UserId
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.self_billing import BillDraft, SelfBilling
from ledger.eventstore.port import EventStore, Meta, Position, load, record
from ledger.eventstore.together import Part, record_together


def agree_to_self_billing(
    store: EventStore,
    tenant_id: TenantId,
    *,
    small_business: bool,
    user_id: UserId,
    by: Meta,
    now: datetime,
) -> Position:
    """Put on record that an owner agrees that the platform issues its invoices from now on.

    small_business: the owner charges no VAT, by the scheme for small enterprises.
    Raises: SupplierUnnamed.
    """
    billing = load(store, BillingDetails, tenant_id)

    def decide(known: SelfBilling | None) -> Sequence[Event]:
        return (known or SelfBilling()).agree(
            tenant_id,
            details=billing.newest.details if billing else None,
            small_business=small_business,
            by=user_id,
            now=now,
        )

    return record(store, SelfBilling, tenant_id, decide, by=by)


def end_self_billing(
    store: EventStore, tenant_id: TenantId, *, user_id: UserId, by: Meta, now: datetime
) -> Position:
    """Put on record that an owner issues its invoices itself again."""

    def decide(known: SelfBilling | None) -> Sequence[Event]:
        return (known or SelfBilling()).end(by=user_id, now=now)

    return record(store, SelfBilling, tenant_id, decide, by=by)


def issue_self_billed(
    store: EventStore,
    draft: BillDraft,
    *,
    platform_id: TenantId = PLATFORM_ID,
    by: Meta,
    now: datetime,
) -> Position:
    """Issue an owner's invoice for one settlement, with its number and the entry of its tax.

    Raises: what `SelfBilling.bill` raises.
    """
    opening = opening_account(
        account_id=tax_account(platform_id, draft.currency),
        tenant_id=platform_id,
        kind="tax",
        title="Tax on invoices",
        currency=draft.currency,
        by=by,
        now=now,
    )

    def decide(known: SelfBilling | None) -> Sequence[Event]:
        return (known or SelfBilling()).bill(draft, platform_id=platform_id, now=now)

    parts = [opening, Part(SelfBilling, draft.tenant_id, decide, by)]
    return record_together(store, parts, whole=True)[-1]
