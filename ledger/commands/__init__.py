"""What may be asked of the book of record, one function a verb."""

from __future__ import annotations

from ledger.commands.money import (
    add_funds,
    capture_usage,
    credit_payment,
    open_account,
    open_tenant_accounts,
    pay_compensation,
    place_hold,
    record_cost,
    release_hold,
    resize_hold,
)
from ledger.commands.parties import (
    add_subscriber,
    admit_member,
    register_tenant,
    remove_member,
)
from ledger.commands.tokens import issue_host_token, issue_token, revoke_token

__all__ = [
    "add_funds",
    "add_subscriber",
    "admit_member",
    "capture_usage",
    "credit_payment",
    "issue_host_token",
    "issue_token",
    "open_account",
    "open_tenant_accounts",
    "pay_compensation",
    "place_hold",
    "record_cost",
    "register_tenant",
    "release_hold",
    "remove_member",
    "resize_hold",
    "revoke_token",
]
