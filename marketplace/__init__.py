"""Where demand meets supply: bids, clearing, leases."""
