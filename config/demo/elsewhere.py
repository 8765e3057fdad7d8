"""What GPUs cost elsewhere in the demo, so that *Spend* can tell what pooling saved: made up."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from config.demo.cast import PLATFORM
from ledger.domain.money import NANOS_PER_UNIT, Money, Rate
from marketplace.domain.spending.events import ComparisonSet

PRICES = {
    "H100-80GB": ("5.60", 31_000, "0.45"),
    "A100-SXM4-80GB": ("3.10", 15_000, "0.30"),
    "L40S": ("1.90", 9_000, "0.22"),
    "A10": ("1.10", 3_400, "0.12"),
    "L4": ("0.80", 2_600, "0.08"),
}
"""By model: in a cloud for an hour, to buy with its part of the machine, to run for an hour."""
YEARS = 4
UTILISATION_PPM = 300_000
"""As most organisations use GPUs of their own: under a third of the time."""


def comparisons(currency: str, now: datetime) -> Iterator[ComparisonSet]:
    """Yield what is compared with."""
    for model, (cloud, purchase, running) in PRICES.items():
        yield ComparisonSet(
            gpu_model=model,
            currency=currency,
            cloud=_rate(cloud, currency),
            purchase=Money(purchase * NANOS_PER_UNIT, currency),
            years=YEARS,
            utilisation_ppm=UTILISATION_PPM,
            running=_rate(running, currency),
            source="made-up figures of the demo",
            by=PLATFORM.people[0].user_id,
            at=now,
        )


def _rate(price: str, currency: str) -> Rate:
    whole, cents = price.split(".")
    return Rate(int(whole + cents) * NANOS_PER_UNIT // 100, currency)
