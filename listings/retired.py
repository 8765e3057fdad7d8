"""Which hosts are gone for good, for who lets their agents in."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from listings.models import HostRow


def retired_among(host_ids: Collection[UUID]) -> set[UUID]:
    """Return those of these hosts that are retired."""
    rows = HostRow.objects.filter(host_id__in=host_ids, state="retired")
    return set(rows.values_list("host_id", flat=True))
