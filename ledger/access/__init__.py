"""Who is asking, how they proved it, and what they may see."""

from __future__ import annotations

from ledger.access.actors import Actor, RoleMissing, ScopeMissing, visible
from ledger.access.proofs import TENANT_CHOSEN, actor_of_person, actor_of_token, actors_of_person

__all__ = [
    "TENANT_CHOSEN",
    "Actor",
    "RoleMissing",
    "ScopeMissing",
    "actor_of_person",
    "actor_of_token",
    "actors_of_person",
    "visible",
]
