"""Columns that only save time: they find hosts for bids, and bids for new supply."""
