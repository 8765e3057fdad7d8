"""Which rule of governance a policy falls under: one place for setting it and for trying it."""

from __future__ import annotations

from collections.abc import Sequence

from marketplace.domain import (
    governance,
    governance_requests,
    governance_runs,
    governance_shares,
)
from marketplace.domain.governance import Setter
from marketplace.domain.governance_counting import set_counting
from marketplace.domain.governance_events import (
    CohortPlaced,
    CountingSet,
    GovernanceEvent,
    GuaranteePeriodSet,
    HalfLifeSet,
    LeastRunSet,
    LimitSet,
    QuotaOverridden,
    QuotaRequested,
    QuotaSet,
    ShareWeightSet,
    UnitPlaced,
    UseAllowed,
)
from marketplace.domain.policies import Policies

Policy = (
    CohortPlaced
    | UnitPlaced
    | QuotaSet
    | QuotaOverridden
    | LimitSet
    | ShareWeightSet
    | HalfLifeSet
    | CountingSet
    | GuaranteePeriodSet
    | LeastRunSet
    | UseAllowed
    | QuotaRequested
)


def ruled(now: Policies | None, policy: Policy, setter: Setter) -> Sequence[GovernanceEvent]:
    """Return what setting a policy would record, by the rule that it falls under.

    Raises: every refusal of that rule.
    """
    governance.need_reason(policy.why)
    match policy:
        case CohortPlaced():
            return governance.place_cohort(now, policy, setter)
        case UnitPlaced():
            return governance.place_unit(now, policy, setter)
        case QuotaSet():
            return governance.set_quota(now, policy, setter)
        case QuotaOverridden():
            return governance.override_quota(now, policy, setter)
        case LimitSet():
            return governance.set_limit(now, policy, setter)
        case ShareWeightSet():
            return governance_shares.set_weight(now, policy, setter)
        case HalfLifeSet():
            return governance_shares.set_half_life(now, policy, setter)
        case CountingSet():
            return set_counting(now, policy, setter)
        case GuaranteePeriodSet():
            return governance_shares.set_period(now, policy, setter)
        case LeastRunSet():
            return governance_runs.set_least_run(now, policy, setter)
        case UseAllowed():
            return governance.allow_use(now, policy, setter)
        case QuotaRequested():
            return governance_requests.request_quota(now, policy, setter)
