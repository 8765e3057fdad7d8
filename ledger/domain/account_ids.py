"""Where an account is found: its id follows from whose it is, what it counts, and the currency."""

from __future__ import annotations

from functools import lru_cache
from uuid import uuid5

from ledger.domain.ids import AccountId, SubscriberId, TenantId

REMEMBERED = 4_096
"""So many ids of each kind are remembered: an id is a hash, asked for by each line of an entry."""


@lru_cache(REMEMBERED)
def funds_account(subscriber_id: SubscriberId, currency: str) -> AccountId:
    """Return the account that pays for a business unit's use."""
    return AccountId(uuid5(subscriber_id, f"funds:{currency}"))


@lru_cache(REMEMBERED)
def earnings_account(tenant_id: TenantId, currency: str) -> AccountId:
    """Return the account that counts what an owner is owed."""
    return AccountId(uuid5(tenant_id, f"earnings:{currency}"))


@lru_cache(REMEMBERED)
def fee_account(platform_id: TenantId, currency: str) -> AccountId:
    """Return the account that counts the platform's share."""
    return AccountId(uuid5(platform_id, f"fees:{currency}"))


@lru_cache(REMEMBERED)
def cash_account(platform_id: TenantId, currency: str) -> AccountId:
    """Return the account that stands for the outside world: below zero by what came in."""
    return AccountId(uuid5(platform_id, f"cash:{currency}"))


@lru_cache(REMEMBERED)
def rounding_account(platform_id: TenantId, currency: str) -> AccountId:
    """Return the account of what invoices are rounded by."""
    return AccountId(uuid5(platform_id, f"rounding:{currency}"))


@lru_cache(REMEMBERED)
def tax_account(platform_id: TenantId, currency: str) -> AccountId:
    """Return the account that counts the tax on invoices, which is owed to the state."""
    return AccountId(uuid5(platform_id, f"tax:{currency}"))


@lru_cache(REMEMBERED)
def burst_account(platform_id: TenantId, currency: str) -> AccountId:
    """Return the account that counts what clouds cost: below zero by what was paid."""
    return AccountId(uuid5(platform_id, f"burst:{currency}"))


@lru_cache(REMEMBERED)
def transit_account(platform_id: TenantId, currency: str) -> AccountId:
    """Return the account that counts what is on its way to owners and not paid yet."""
    return AccountId(uuid5(platform_id, f"payouts:{currency}"))


@lru_cache(REMEMBERED)
def processing_account(platform_id: TenantId, currency: str) -> AccountId:
    """Return the account that counts what taking payments costs: below zero by what was paid."""
    return AccountId(uuid5(platform_id, f"stripe-fees:{currency}"))


def bad_debts_account(platform_id: TenantId, currency: str) -> AccountId:
    """Return the account of what was owed and given up: below zero by it."""
    return AccountId(uuid5(platform_id, f"bad-debts:{currency}"))
