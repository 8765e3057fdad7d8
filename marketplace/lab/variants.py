"""What a run of the past puts differently: rules, lanes, rounds, and what the policies say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from listings.domain.permits import ListingPermits
from marketplace.domain.clearing.fills import PRESENT, Rules
from marketplace.domain.facts.policy_events import GovernanceEvent, HalfLifeSet, LeastRunSet

Lanes = Literal["as-bid", "instant", "patient"]


@dataclass(frozen=True, slots=True)
class Variant:
    """What is put differently. round_seconds: between two rounds of patient bids.

    half_life_seconds: in which use is forgotten by half, where there are quotas; None: as set.
    least_run_seconds: before other bids interrupt a lease of a class without a time of its own;
    None: as set.
    policies: in force from the start of the stretch on, in place of those of the same kind.
    listing: who may list, of what is listed in the stretch; None: whoever did.
    """

    rules: Rules = PRESENT
    lanes: Lanes = "as-bid"
    round_seconds: int = 60
    half_life_seconds: int | None = None
    least_run_seconds: int | None = None
    policies: tuple[GovernanceEvent, ...] = ()
    listing: ListingPermits | None = None

    def decrees(self, market: str, since: datetime) -> Iterator[GovernanceEvent]:
        """Yield the policies that are set before the stretch begins."""
        yield from self.policies
        if self.half_life_seconds is not None:
            yield HalfLifeSet(market=market, seconds=self.half_life_seconds, at=since)
        if self.least_run_seconds is not None:
            yield LeastRunSet(market=market, seconds=self.least_run_seconds, at=since)

    def overrules(self, event: HalfLifeSet | LeastRunSet) -> bool:
        """Tell if what was set within the stretch is left out."""
        if isinstance(event, HalfLifeSet):
            return self.half_life_seconds is not None
        of_all = event.gpu_class is None and not event.firm
        return self.least_run_seconds is not None and of_all
