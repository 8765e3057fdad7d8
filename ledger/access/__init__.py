"""Who is asking, how they proved it, and what they may see."""

from __future__ import annotations

from ledger.access.actors import Actor, PlatformOnly, RoleMissing, ScopeMissing, visible
from ledger.access.proofs import (
    TENANT_CHOSEN,
    actor_of_person,
    actor_of_token,
    actors_of_person,
    actors_of_tokens,
)

__all__ = [
    "TENANT_CHOSEN",
    "Actor",
    "PlatformOnly",
    "RoleMissing",
    "ScopeMissing",
    "actor_of_person",
    "actor_of_token",
    "actors_of_person",
    "actors_of_tokens",
    "visible",
]
