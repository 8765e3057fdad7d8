"""How much a round may have left undone, of the most that any clearing could be worth."""

from __future__ import annotations

PPM = 1_000_000
DUST_NANOS = 10_000
"""A thousandth of a cent. Bounds are rounded up for each bid and grants down: less than this is
what rounding left, and a ratio of it says nothing."""


def gap_ppm(*, worth_nanos: int, bound_nanos: int) -> int | None:
    """Return the gap to the bound in parts per million of the bound, rounded up.

    Args:
        worth_nanos: what the grants are worth, with what waiting counted for.

    Returns:
        None where the bound is no more than what rounding left, as in a round in which nothing
        could have been granted.
    """
    if bound_nanos <= DUST_NANOS:
        return None
    return -(-max(0, bound_nanos - worth_nanos) * PPM // bound_nanos)
