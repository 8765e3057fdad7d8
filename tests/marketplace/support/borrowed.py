"""A market in which one unit has borrowed what another owns."""

from __future__ import annotations

from datetime import timedelta

from marketplace.domain.facts.events import ServiceClass
from tests.marketplace.support.governed import Governed

SHORTLY = 2.0
"""Hours within which the candidates have to start: too short to wait for the borrowers' end."""


class Lent(Governed):
    """The cohort of red and blue; blue borrows what red does not use."""

    def borrow(
        self, word: str, gpus: int, *, service: ServiceClass = "on-demand", hours: float = 30
    ) -> None:
        self._ask("blue", word, gpus, hours=hours, service=service)
        self.run()

    def _ask(
        self, unit: str, word: str, gpus: int, *, hours: float, service: ServiceClass, at: float = 2
    ) -> None:
        self.asking = unit
        length = timedelta(hours=hours)
        try:
            self.bid(
                word,
                gpus=gpus,
                at=at,
                hours=hours,
                service_class=service,
                deadline=self.now + length + timedelta(hours=SHORTLY),
            )
        finally:
            self.asking = ""

    def want(
        self, word: str, gpus: int, *, service: ServiceClass = "on-demand", at: float = 4
    ) -> None:
        """Ask for what is red's own, soon."""
        self._ask("red", word, gpus, hours=4, service=service, at=at)
        self.run()

    def cut(self, word: str) -> list[str]:
        """Return the bids whose leases were cut for a bid, by their words' ids."""
        granted = self.grant(word)
        return [] if granted is None else [str(each.lease_id) for each in granted.cuts]
