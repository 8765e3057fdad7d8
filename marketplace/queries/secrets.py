"""What can be asked about secrets: their names. Whoever governs the platform sees its own alone."""

from __future__ import annotations

from django.db.models import QuerySet

from ledger.access import Actor, visible
from marketplace.models.secrets import SecretRow


def secrets(actor: Actor) -> QuerySet[SecretRow]:
    """Return the secrets of `actor`'s organisation, by name."""
    rows = visible(actor, SecretRow).filter(tenant_id=actor.tenant_id)
    return rows.order_by("name", "secret_id")
