"""Tables of the market, all of them read models."""

from __future__ import annotations

from marketplace.models.bids import BidRow
from marketplace.models.leases import LeaseRow, LeaseShareRow
from marketplace.models.rounds import PriceRow, RoundRow, TradeRow

__all__ = ["BidRow", "LeaseRow", "LeaseShareRow", "PriceRow", "RoundRow", "TradeRow"]
