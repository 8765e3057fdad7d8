"""Which rule of governance a policy falls under: one place for setting it and for trying it."""

from __future__ import annotations

from collections.abc import Sequence

from marketplace.domain.facts.policy_events import (
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
from marketplace.domain.governance import authority, fair_share, minimum_runtime, quota_requests
from marketplace.domain.governance.authority import Setter
from marketplace.domain.quotas.policies_in_force import Policies

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
    authority.need_reason(policy.why)
    match policy:
        case CohortPlaced():
            return authority.place_cohort(now, policy, setter)
        case UnitPlaced():
            return authority.place_unit(now, policy, setter)
        case QuotaSet():
            return authority.set_quota(now, policy, setter)
        case QuotaOverridden():
            return authority.override_quota(now, policy, setter)
        case LimitSet():
            return authority.set_limit(now, policy, setter)
        case ShareWeightSet():
            return fair_share.set_weight(now, policy, setter)
        case HalfLifeSet():
            return fair_share.set_half_life(now, policy, setter)
        case CountingSet():
            return fair_share.set_counting(now, policy, setter)
        case GuaranteePeriodSet():
            return fair_share.set_period(now, policy, setter)
        case LeastRunSet():
            return minimum_runtime.set_least_run(now, policy, setter)
        case UseAllowed():
            return authority.allow_use(now, policy, setter)
        case QuotaRequested():
            return quota_requests.request_quota(now, policy, setter)
