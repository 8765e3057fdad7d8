"""What may be asked of the book of record, one function a verb."""

from __future__ import annotations

from ledger.commands.money import (
    add_funds,
    capture_usage,
    open_account,
    open_tenant_accounts,
    pay_compensation,
    place_hold,
    record_cost,
    release_hold,
    resize_hold,
)

__all__ = [
    "add_funds",
    "capture_usage",
    "open_account",
    "open_tenant_accounts",
    "pay_compensation",
    "place_hold",
    "record_cost",
    "release_hold",
    "resize_hold",
]
