"""What may be read of the book of record: the only readers of its tables."""

from __future__ import annotations

from ledger.queries.parties import (
    last_uses,
    members,
    people,
    subscribers,
    tenant,
    tenants,
    token,
    tokens,
)

__all__ = [
    "last_uses",
    "members",
    "people",
    "subscribers",
    "tenant",
    "tenants",
    "token",
    "tokens",
]
