"""Who may set how long leases run undisturbed: only the platform, for all of a market."""

from __future__ import annotations

from collections.abc import Sequence

from marketplace.domain.governance import Setter, need_figure, need_platform
from marketplace.domain.governance_events import GovernanceEvent, LeastRunSet
from marketplace.domain.policies import Policies

LEAST_RUN_SECONDS_MAX = 86_400


def set_least_run(
    policies: Policies | None, event: LeastRunSet, by: Setter
) -> Sequence[GovernanceEvent]:
    """Set how long a lease runs at least before it is interrupted for another bid.

    Raises: PolicyNotYours, FigureOutOfRange.
    """
    need_platform(by)
    need_figure(event.seconds, LEAST_RUN_SECONDS_MAX)
    same = (policies or Policies()).least_run_seconds == event.seconds
    return [] if same else [event]
