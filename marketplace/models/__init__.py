"""Tables of the market: read models, snapshots of books, where blobs are, and sealed values."""

from __future__ import annotations

from marketplace.models.bids import BidRow, RouteRow
from marketplace.models.folders import BlobRow, BlobUseRow, FolderRow
from marketplace.models.leases import LeaseRow, LeaseShareRow
from marketplace.models.logs import LogRow
from marketplace.models.money_waits import MoneyWaitRow
from marketplace.models.prices import PriceProposalRow
from marketplace.models.quotas import PolicyNodeRow, PolicyRow, QuotaRequestRow
from marketplace.models.rounds import PriceRow, RoundRow, TradeRow
from marketplace.models.secrets import SecretRow, SecretValueRow
from marketplace.models.snapshots import SnapshotRow
from marketplace.models.spending import (
    ComparisonRow,
    SpendingBidRow,
    SpendingBudgetRow,
    SpendingCrossingRow,
    SpendingDayRow,
    SpendingGrantRow,
    SpendingReadRow,
    SpendingVolumeRow,
)
from marketplace.models.volumes import VolumeRow

__all__ = [
    "BidRow",
    "BlobRow",
    "BlobUseRow",
    "ComparisonRow",
    "FolderRow",
    "LeaseRow",
    "LeaseShareRow",
    "LogRow",
    "MoneyWaitRow",
    "PolicyNodeRow",
    "PolicyRow",
    "PriceProposalRow",
    "PriceRow",
    "QuotaRequestRow",
    "RoundRow",
    "RouteRow",
    "SecretRow",
    "SecretValueRow",
    "SnapshotRow",
    "SpendingBidRow",
    "SpendingBudgetRow",
    "SpendingCrossingRow",
    "SpendingDayRow",
    "SpendingGrantRow",
    "SpendingReadRow",
    "SpendingVolumeRow",
    "TradeRow",
    "VolumeRow",
]
