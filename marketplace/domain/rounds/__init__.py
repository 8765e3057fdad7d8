"""Patient bids cleared together in a round, step by step."""
