"""What a market changes: GPU-hours in use without it and with it."""

from __future__ import annotations

import pytest

from metering.domain.heat import Utilisation


@pytest.mark.parametrize(
    ("whole", "listed", "leased", "before", "after"),
    [
        (100, 80, 50, 200_000, 700_000),
        (100, 0, 0, 1_000_000, 1_000_000),
        (100, 100, 0, 0, 0),
        # Leases go on when what they run on is taken off the market: never more than there is.
        (100, 40, 70, 600_000, 1_000_000),
        # GPUs that were on offer and are gone.
        (100, 120, 90, 0, 900_000),
        (0, 0, 0, 0, 0),
    ],
)
def test_hours_that_were_not_listed_count_as_used(
    whole: int, listed: int, leased: int, before: int, after: int
) -> None:
    used = Utilisation(whole_ms=whole, listed_ms=listed, leased_ms=leased)

    assert (used.before_ppm, used.after_ppm) == (before, after)
