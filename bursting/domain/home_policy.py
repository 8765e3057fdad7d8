"""Whether an organisation's work in clouds moves home, and for how much: its own word on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar

from bursting.domain.events import HomePolicySet
from bursting.domain.home_moves import HomeRules
from ledger.domain.ids import TenantId
from ledger.domain.refusal import Invalid

PERCENT_MAX = 100
PPM_PER_PERCENT = 10_000


class MarginOutOfRange(Invalid):
    """`margin_percent` lies between 0 and 100: so much of what the rest costs in the cloud."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HomePolicy:
    """What an organisation said last of its work in clouds."""

    STREAM: ClassVar[str] = "burst-policy"

    said: HomePolicySet

    def over(self, rules: HomeRules) -> HomeRules:
        """Return the platform's rules as they hold for this organisation.

        It can switch moves off, and not on where the platform has none; the margin is its own.
        """
        percent = self.said.margin_percent
        margin = rules.margin_ppm if percent is None else percent * PPM_PER_PERCENT
        return replace(rules, is_on=rules.is_on and self.said.moves, margin_ppm=margin)

    @classmethod
    def evolve(cls, state: HomePolicy | None, event: HomePolicySet, /) -> HomePolicy:
        """Return the policy after `event`."""
        return cls(said=event)


def set_policy(
    policy: HomePolicy | None,
    *,
    tenant_id: TenantId,
    moves: bool,
    margin_percent: int | None,
    now: datetime,
) -> Sequence[HomePolicySet]:
    """Decide what an organisation says of its work in clouds; the same again changes nothing.

    margin_percent: None: as the platform has it. Raises: MarginOutOfRange.
    """
    if margin_percent is not None and not 0 <= margin_percent <= PERCENT_MAX:
        raise MarginOutOfRange(margin_percent=margin_percent, most=PERCENT_MAX)
    said = None if policy is None else (policy.said.moves, policy.said.margin_percent)
    if said == (moves, margin_percent):
        return []
    return [HomePolicySet(tenant_id=tenant_id, moves=moves, margin_percent=margin_percent, at=now)]
