"""Where an earlier bid is placed again, as pages of bids and of leases link to it."""

from __future__ import annotations

from marketplace.models.bids import BidRow


def again_at(row: BidRow) -> str:
    """Return the form that shows all of an earlier bid: the short one where that does."""
    is_plain = (
        row.seeks == "soonest"
        and row.placement == "same-host"
        and row.service_class == "on-demand"
        and row.workload_kind == "other"
        and row.good_till == "good-till-deadline"
        and not any((row.gpus_min, row.duration_min_seconds, row.budget_nanos, row.resume))
        and not any((row.checkpoint_seconds, row.burst_allowed))
        and row.auto_extend_until is None
        and row.repeat_until is None
    )
    return f"{'/run' if is_plain else '/bids/new'}?again={row.bid_id}"
