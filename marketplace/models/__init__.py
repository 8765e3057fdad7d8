"""Tables of the market: read models, snapshots of books, and where blobs are."""

from __future__ import annotations

from marketplace.models.bids import BidRow, RouteRow
from marketplace.models.folders import BlobRow, BlobUseRow, FolderRow
from marketplace.models.leases import LeaseRow, LeaseShareRow
from marketplace.models.quotas import PolicyNodeRow, PolicyRow, QuotaRequestRow
from marketplace.models.rounds import PriceRow, RoundRow, TradeRow
from marketplace.models.snapshots import SnapshotRow

__all__ = [
    "BidRow",
    "BlobRow",
    "BlobUseRow",
    "FolderRow",
    "LeaseRow",
    "LeaseShareRow",
    "PolicyNodeRow",
    "PolicyRow",
    "PriceRow",
    "QuotaRequestRow",
    "RoundRow",
    "RouteRow",
    "SnapshotRow",
    "TradeRow",
]
