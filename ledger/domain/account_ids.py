"""Where an account is found: its id follows from whose it is, what it counts, and the currency."""

from __future__ import annotations

from uuid import uuid5

from ledger.domain.ids import AccountId, SubscriberId, TenantId


def funds_account(subscriber_id: SubscriberId, currency: str) -> AccountId:
    """Return the account that pays for a business unit's use."""
    return AccountId(uuid5(subscriber_id, f"funds:{currency}"))


def earnings_account(tenant_id: TenantId, currency: str) -> AccountId:
    """Return the account that counts what an owner is owed."""
    return AccountId(uuid5(tenant_id, f"earnings:{currency}"))


def fee_account(platform_id: TenantId, currency: str) -> AccountId:
    """Return the account that counts the platform's share."""
    return AccountId(uuid5(platform_id, f"fees:{currency}"))


def cash_account(platform_id: TenantId, currency: str) -> AccountId:
    """Return the account that stands for the outside world: below zero by what came in."""
    return AccountId(uuid5(platform_id, f"cash:{currency}"))


def rounding_account(platform_id: TenantId, currency: str) -> AccountId:
    """Return the account of what invoices are rounded by."""
    return AccountId(uuid5(platform_id, f"rounding:{currency}"))


def tax_account(platform_id: TenantId, currency: str) -> AccountId:
    """Return the account that counts the tax on invoices, which is owed to the state."""
    return AccountId(uuid5(platform_id, f"tax:{currency}"))


def burst_account(platform_id: TenantId, currency: str) -> AccountId:
    """Return the account that counts what clouds cost: below zero by what was paid."""
    return AccountId(uuid5(platform_id, f"burst:{currency}"))


def transit_account(platform_id: TenantId, currency: str) -> AccountId:
    """Return the account that counts what is on its way to owners and not paid yet."""
    return AccountId(uuid5(platform_id, f"payouts:{currency}"))


def processing_account(platform_id: TenantId, currency: str) -> AccountId:
    """Return the account that counts what taking payments costs: below zero by what was paid."""
    return AccountId(uuid5(platform_id, f"stripe-fees:{currency}"))
