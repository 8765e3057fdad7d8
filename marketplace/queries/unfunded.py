"""Which running work has no money behind it any more, or has it again."""

from __future__ import annotations

from ledger.domain.ids import BidId, LeaseId
from ledger.queries.depletion import too_far_below
from marketplace.domain.facts.close_reasons import FUNDS_TAKEN
from marketplace.models.bids import BidRow
from marketplace.models.leases import LeaseRow

LEASES_MAX = 500


def without_money() -> list[tuple[LeaseId, BidId]]:
    """Return the running leases, each with its bid, of accounts that banks took too much from."""
    accounts = too_far_below()
    if not accounts:
        return []
    bids = BidRow.objects.filter(account_id__in=accounts, state="filled")
    rows = LeaseRow.objects.filter(state="active", bid_id__in=bids.values("bid_id"))
    found = rows.order_by("lease_id").values_list("lease_id", "bid_id")[:LEASES_MAX]
    return [(LeaseId(lease_id), BidId(bid_id)) for lease_id, bid_id in found]


def told_of_it() -> list[tuple[LeaseId, BidId]]:
    """Return the running leases, each with its bid, that were told that their money is gone."""
    rows = LeaseRow.objects.filter(state="active", extension__reason=FUNDS_TAKEN)
    found = rows.order_by("lease_id").values_list("lease_id", "bid_id")[:LEASES_MAX]
    return [(LeaseId(lease_id), BidId(bid_id)) for lease_id, bid_id in found]
