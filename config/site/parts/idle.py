"""What several pages say of idle leases: the bounds of the time, and below what all must be."""

from __future__ import annotations

from django import forms

from marketplace.domain.bids.idle_time import IDLE_SECONDS_MAX, IDLE_SECONDS_MIN
from metering.domain.idle_events import IdleTerms

MEBIBYTE = 1_048_576
THOUSAND = 1_000


IDLE_HINT = (
    "GPU, processor, disk and network all quiet for so long, and 5 minutes' warning: the lease"
    " ends, and the rest is not charged. Empty: never."
)


def minutes_field(label: str) -> forms.IntegerField:
    """Return the field of how many minutes a lease is idle before it ends; empty: it does not."""
    return forms.IntegerField(
        label=label,
        help_text=IDLE_HINT,
        required=False,
        min_value=IDLE_SECONDS_MIN // 60,
        max_value=IDLE_SECONDS_MAX // 60,
    )


def figures_of_terms(terms: IdleTerms) -> tuple[tuple[str, str], ...]:
    """Return below what each figure must be, as name and amount."""
    return (
        ("GPU busy", f"{terms.busy_percent} %"),
        ("processor", f"{terms.cpu_millicores / THOUSAND:g} cores"),
        ("disk", f"{terms.disk_bytes / MEBIBYTE:g} MiB/s"),
        ("network", f"{terms.network_bytes / MEBIBYTE:g} MiB/s"),
    )
