"""The order book of one market, folded from its log."""
