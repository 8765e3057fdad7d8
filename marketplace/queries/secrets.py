"""What can be asked about secrets: their names. Whoever governs the platform sees its own alone."""

from __future__ import annotations

from collections import Counter

from django.db.models import Q, QuerySet

from ledger.access import Actor, visible
from marketplace.models.bids import BidRow
from marketplace.models.leases import LeaseRow
from marketplace.models.secrets import SecretRow


def uses(actor: Actor) -> Counter[str]:
    """Return how many bids that wait, or whose lease is not over, name each secret."""
    waiting, over = Q(state="open"), ("closed", "failed")
    leased = LeaseRow.objects.filter(tenant_id=actor.tenant_id).exclude(state__in=over)
    rows = visible(actor, BidRow).filter(tenant_id=actor.tenant_id)
    rows = rows.exclude(secrets=[], fetch_secret="")
    named = rows.filter(waiting | Q(lease_id__in=leased.values("lease_id")))
    found: Counter[str] = Counter()
    for names, fetching in named.values_list("secrets", "fetch_secret"):
        found.update({*names, *([fetching] if fetching else ())})
    return found


def secrets(actor: Actor) -> QuerySet[SecretRow]:
    """Return the secrets of `actor`'s organisation, by name."""
    rows = visible(actor, SecretRow).filter(tenant_id=actor.tenant_id)
    return rows.order_by("name", "secret_id")
