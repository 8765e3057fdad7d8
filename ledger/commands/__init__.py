"""What may be asked of the book of record, one function a verb."""

from __future__ import annotations

from ledger.commands.invitations import accept_invitation, invite_member, revoke_invitation
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
    set_budget,
)
from ledger.commands.notices import give_notice
from ledger.commands.parties import (
    add_subscriber,
    admit_member,
    change_member,
    register_tenant,
    remove_member,
    remove_second_factor,
)
from ledger.commands.tokens import issue_host_token, issue_token, revoke_token

__all__ = [
    "accept_invitation",
    "add_funds",
    "add_subscriber",
    "admit_member",
    "capture_usage",
    "change_member",
    "credit_payment",
    "give_notice",
    "invite_member",
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
    "remove_second_factor",
    "resize_hold",
    "revoke_invitation",
    "revoke_token",
    "set_budget",
]
