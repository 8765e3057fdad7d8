"""Which rule of governance a policy falls under, and the rules of a market's own figures.

One place for setting a policy and for trying it. How use counts (weights, half-life, period, parts
of cards) and how long leases run undisturbed is the platform's to say; but a tenant's operators
weigh their own units within their grant, against each other: what the grant has against others is
not theirs to say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ledger.domain.refusal import Invalid, Refusal
from marketplace.domain.facts import policy_events
from marketplace.domain.governance import authority, quota_requests
from marketplace.domain.governance.authority import Events, Setter
from marketplace.domain.quotas.card_units import ANY_CLASS
from marketplace.domain.quotas.policies_in_force import Policies

WEIGHT_PPM_MAX = 1_000_000_000
HALF_LIFE_SECONDS_MAX = 366 * 86_400
PERIOD_SECONDS_MIN, PERIOD_SECONDS_MAX = 3_600, 31 * 86_400


def set_weight(now: Policies, event: policy_events.ShareWeightSet, by: Setter) -> Events:
    """Set how much use counts of a unit, or of all in a cohort, against those beside it.

    A tenant's operators: of their own units within their grant, for as long as they stand there.

    Raises: PolicyNotYours, CohortUnknown, FigureOutOfRange.
    """
    authority.need_node(now, event.node)
    within = None if by.is_platform else authority.grant_of(now, event.node, by).cohort
    authority.need_figure(event.weight_ppm, WEIGHT_PPM_MAX)
    same = (now.weights.get(event.node), now.weighed_in.get(event.node))
    return [] if same == (event.weight_ppm, within) else [replace(event, within=within)]


def set_half_life(now: Policies, event: policy_events.HalfLifeSet, by: Setter) -> Events:
    """Set in which time use is forgotten by half. Only the platform does.

    Raises: PolicyNotYours, FigureOutOfRange.
    """
    authority.need_platform(by)
    authority.need_figure(event.seconds, HALF_LIFE_SECONDS_MAX, least=60)
    same = now.half_life_seconds == event.seconds
    return [] if same else [event]


def set_period(now: Policies, event: policy_events.GuaranteePeriodSet, by: Setter) -> Events:
    """Set in which spans guaranteed GPU-hours are counted. Only the platform does.

    Raises: PolicyNotYours, FigureOutOfRange.
    """
    authority.need_platform(by)
    authority.need_figure(event.seconds, PERIOD_SECONDS_MAX, least=PERIOD_SECONDS_MIN)
    same = (now.period_seconds, now.period_starts) == (event.seconds, event.starts_at)
    return [] if same else [event]


def set_counting(now: Policies, event: policy_events.CountingSet, by: Setter) -> Events:
    """Set how parts of a card are counted. Only the platform does: it holds for all.

    Raises: PolicyNotYours.
    """
    authority.need_platform(by)
    return [] if now.counts == event.counts else [event]


LEAST_RUN_SECONDS_MAX = 86_400
LEAST_RUN_CLASSES_MAX = 100
FIRM_SECONDS_MAX = 7 * 86_400


class LeastRunMissing(Invalid):
    """Say how long leases run at least, or lift what holds for a class that you name."""


class FirmTimeOfAll(Invalid):
    """The firm time of work that may be paused is one for all classes of GPUs; it is not lifted."""


class TooManyLeastRuns(Refusal):
    """A market has least running times of their own for at most a hundred classes of GPUs."""


def set_least_run(now: Policies, event: policy_events.LeastRunSet, by: Setter) -> Events:
    """Set how long a lease runs at least before it is interrupted for another bid.

    Raises: PolicyNotYours, GpuClassUnreadable, LeastRunMissing, FigureOutOfRange,
        FirmTimeOfAll, TooManyLeastRuns.
    """
    authority.need_platform(by)
    if event.firm:
        return _set_firm_time(now, event)
    if event.gpu_class == ANY_CLASS:
        event = replace(event, gpu_class=None)
    if event.gpu_class is not None:
        authority.need_class(event.gpu_class)
    elif event.lifted:
        raise LeastRunMissing()
    authority.need_figure(event.seconds, LEAST_RUN_SECONDS_MAX)
    after = now.least_runs.after(event)
    if len(after.classes) > LEAST_RUN_CLASSES_MAX:
        raise TooManyLeastRuns()
    return [] if after == now.least_runs else [event]


def _set_firm_time(now: Policies, event: policy_events.LeastRunSet) -> Events:
    if event.gpu_class not in (None, ANY_CLASS) or event.lifted:
        raise FirmTimeOfAll()
    authority.need_figure(event.seconds, FIRM_SECONDS_MAX)
    event = replace(event, gpu_class=None)
    return [] if event.seconds == now.least_runs.firm_seconds else [event]


Policy = (
    policy_events.CohortPlaced
    | policy_events.UnitPlaced
    | policy_events.QuotaSet
    | policy_events.QuotaOverridden
    | policy_events.LimitSet
    | policy_events.ShareWeightSet
    | policy_events.HalfLifeSet
    | policy_events.CountingSet
    | policy_events.GuaranteePeriodSet
    | policy_events.LeastRunSet
    | policy_events.UseAllowed
    | policy_events.QuotaRequested
)


_RULES: Mapping[type[Policy], Callable[[Policies, Any, Setter], Events]] = {
    policy_events.CohortPlaced: authority.place_cohort,
    policy_events.UnitPlaced: authority.place_unit,
    policy_events.QuotaSet: authority.set_quota,
    policy_events.QuotaOverridden: authority.override_quota,
    policy_events.LimitSet: authority.set_limit,
    policy_events.ShareWeightSet: set_weight,
    policy_events.HalfLifeSet: set_half_life,
    policy_events.CountingSet: set_counting,
    policy_events.GuaranteePeriodSet: set_period,
    policy_events.LeastRunSet: set_least_run,
    policy_events.UseAllowed: authority.allow_use,
    policy_events.QuotaRequested: quota_requests.request_quota,
}


def ruled(now: Policies | None, policy: Policy, setter: Setter) -> Events:
    """Return what setting a policy would record, by the rule that it falls under.

    Raises: every refusal of that rule.
    """
    authority.need_reason(policy.why)
    return _RULES[type(policy)](now or Policies(), policy, setter)
