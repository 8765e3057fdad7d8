"""The versions of the rules by which the market matches, as every round and match is stamped."""

from __future__ import annotations

RULE = "price-time-7"
"""Of the instant lane."""
ROUND_RULE = "welfare-8"
"""Of rounds: see `batch_clearing.clear_round`."""
