"""Who may say how quotas and limits count the parts of a card."""

from __future__ import annotations

from collections.abc import Sequence

from marketplace.domain.facts.policy_events import CountingSet, GovernanceEvent
from marketplace.domain.governance.authority import Setter, need_platform
from marketplace.domain.quotas.policies_in_force import Policies


def set_counting(
    policies: Policies | None, event: CountingSet, by: Setter
) -> Sequence[GovernanceEvent]:
    """Set how parts of a card are counted. Only the platform does: it holds for all.

    Raises: PolicyNotYours.
    """
    need_platform(by)
    return [] if (policies or Policies()).counts == event.counts else [event]
