"""How use counts: who may set weights, half-life, period and what parts of cards count as.

The platform's operators weigh cohorts and units. A tenant's operators weigh their own units within
their grant, against each other: what the grant has against others is not theirs to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from marketplace.domain.facts.policy_events import (
    CountingSet,
    GovernanceEvent,
    GuaranteePeriodSet,
    HalfLifeSet,
    ShareWeightSet,
)
from marketplace.domain.governance.authority import (
    Setter,
    grant_of,
    need_figure,
    need_node,
    need_platform,
)
from marketplace.domain.quotas.policies_in_force import Policies

WEIGHT_PPM_MAX = 1_000_000_000
HALF_LIFE_SECONDS_MAX = 366 * 86_400
PERIOD_SECONDS_MIN, PERIOD_SECONDS_MAX = 3_600, 31 * 86_400


def set_weight(
    policies: Policies | None, event: ShareWeightSet, by: Setter
) -> Sequence[GovernanceEvent]:
    """Set how much use counts of a unit, or of all in a cohort, against those beside it.

    A tenant's operators: of their own units within their grant, for as long as they stand there.

    Raises: PolicyNotYours, CohortUnknown, FigureOutOfRange.
    """
    now = policies or Policies()
    need_node(now, event.node)
    within = None if by.is_platform else grant_of(now, event.node, by).cohort
    need_figure(event.weight_ppm, WEIGHT_PPM_MAX)
    same = (now.weights.get(event.node), now.weighed_in.get(event.node))
    return [] if same == (event.weight_ppm, within) else [replace(event, within=within)]


def set_half_life(
    policies: Policies | None, event: HalfLifeSet, by: Setter
) -> Sequence[GovernanceEvent]:
    """Set in which time use is forgotten by half. Only the platform does.

    Raises: PolicyNotYours, FigureOutOfRange.
    """
    need_platform(by)
    need_figure(event.seconds, HALF_LIFE_SECONDS_MAX, least=60)
    same = (policies or Policies()).half_life_seconds == event.seconds
    return [] if same else [event]


def set_period(
    policies: Policies | None, event: GuaranteePeriodSet, by: Setter
) -> Sequence[GovernanceEvent]:
    """Set in which spans guaranteed GPU-hours are counted. Only the platform does.

    Raises: PolicyNotYours, FigureOutOfRange.
    """
    now = policies or Policies()
    need_platform(by)
    need_figure(event.seconds, PERIOD_SECONDS_MAX, least=PERIOD_SECONDS_MIN)
    same = (now.period_seconds, now.period_starts) == (event.seconds, event.starts_at)
    return [] if same else [event]


def set_counting(
    policies: Policies | None, event: CountingSet, by: Setter
) -> Sequence[GovernanceEvent]:
    """Set how parts of a card are counted. Only the platform does: it holds for all.

    Raises: PolicyNotYours.
    """
    need_platform(by)
    return [] if (policies or Policies()).counts == event.counts else [event]
