"""Rounds in which a patient bid takes back what was borrowed."""

from __future__ import annotations

from datetime import timedelta

from marketplace.domain.facts.events import ServiceClass
from tests.marketplace.support.borrowed import Lent
from tests.marketplace.verification.victim_order import in_turn as in_turn

NOTICE = timedelta(minutes=5)


def lent(gpus: int = 4, *, waits: float = 5, service: ServiceClass = "on-demand") -> Lent:
    """Return a market in which blue has all eight GPUs, and red wants some of its own four.

    waits: hours within which it has to start.
    """
    market = Lent()
    market.offer("rack", gpus=8)
    market.govern(red=(4, None), blue=(4, None))
    for word in ("one", "two"):
        market.borrow(word, 4)
        market.wait(minutes=40)
    market.asking = "red"
    deadline = market.now + timedelta(hours=4 + waits)
    market.bid(
        "mine", gpus=gpus, at=4, hours=4, service_class=service, deadline=deadline,
        patience="patient",
    )  # fmt: skip
    market.asking = ""
    return market


def rounds(market: Lent, hours: float) -> None:
    """Let time pass with a round every few minutes."""
    end = market.now + timedelta(hours=hours)
    while market.now < end:
        market.wait(minutes=5)
        market.run()
