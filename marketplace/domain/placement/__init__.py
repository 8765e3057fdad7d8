"""Where a bid goes: the one rule, sizes of elastic bids, and the funnel that explains it."""
