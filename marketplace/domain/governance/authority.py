"""Who may set which policy, and what it must not say. Every rule returns what is to be recorded.

The platform's operators set everything. A tenant's operators share out their tenant's grant (the
cohort that is theirs) among their own units, and limit their own people; they never give
themselves more. Whoever needs more asks for it, for a time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from ledger.domain.ids import SubscriberId, TenantId, UserId
from ledger.domain.refusal import Forbidden, Invalid, Refusal, Unknown
from marketplace.domain.facts.policy_events import (
    CohortPlaced,
    GovernanceEvent,
    LimitSet,
    OverrideLifted,
    QuotaOverridden,
    QuotaSet,
    UnitPlaced,
    UseAllowed,
)
from marketplace.domain.quotas.policies_in_force import Policies

GPUS_MAX = 1_000_000
NODES_MAX = 1_000
OVERRIDES_MAX = 1_000
DEPTH_MAX = 8
OVERRIDE_MAX = timedelta(days=366)
GPU_HOURS_MAX = 1_000_000_000
WHY_CHARS_MAX = 300

Events = Sequence[GovernanceEvent]
"""What a rule records; nothing where that is in force already."""
Reasoned = CohortPlaced | UnitPlaced | QuotaSet | LimitSet

_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
_CLASS = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]{0,39}")


class CohortUnreadable(Invalid):
    """A cohort is named by 1 to 40 lower-case letters, digits and hyphens, a letter first."""


class GpuClassUnreadable(Invalid):
    """A class of GPUs is a model or kind such as H100, or any."""


class FigureOutOfRange(Invalid):
    """A policy's figure is a whole number within a range; leave it out for no limit.

    It lies between `least` and `most`.
    """


class CohortUnknown(Unknown):
    """There is no such cohort or business unit among the policies.

    Place it first.
    """


class CohortCircular(Refusal):
    """A cohort cannot lie within itself, nor deeper than eight cohorts."""


class BorrowingNeedsCohort(Refusal):
    """Who stands in no cohort can neither borrow nor lend: leave the limits out."""


class TooManyPolicies(Refusal):
    """A market has at most a thousand nodes, overrides and open requests each."""


class PolicyNotYours(Forbidden):
    """You may set policies for your own organisation's units and people only."""


class GrantExceeded(Refusal):
    """Your units would have more nominal quota than your organisation was granted.

    It was granted `granted` and would share out `shared_out`;
    ask the platform's operators for more.
    """


class OverrideSpanWrong(Invalid):
    """An override begins before it ends, ends in the future, and lasts at most 366 days."""


class ReasonTooLong(Invalid):
    """The reason given for a policy has at most 300 characters."""


class OverrideUnknown(Unknown):
    """There is no such override."""


@dataclass(frozen=True, slots=True)
class Setter:
    """Who sets a policy. is_platform: an operator of the platform. user_id: which person."""

    tenant_id: TenantId
    is_platform: bool
    user_id: UserId | None = None


def place_cohort(now: Policies, event: CohortPlaced, by: Setter) -> Events:
    """Make a cohort, or move it. Only the platform does.

    Raises: PolicyNotYours, CohortUnreadable, CohortUnknown, CohortCircular, TooManyPolicies.
    """
    need_platform(by)
    if not _NAME.fullmatch(event.cohort):
        raise CohortUnreadable(given=event.cohort[:40])
    _known_cohort(now, event.parent)
    after = Policies.evolve(now, event)
    _bounded(after)
    _not_circular(after, event.cohort)
    return _unless_same(now.cohorts.get(event.cohort), event)


def place_unit(now: Policies, event: UnitPlaced, by: Setter) -> Events:
    """Put a unit into a cohort. A tenant's operators: their own, into their own cohort.

    Raises: PolicyNotYours, CohortUnknown, TooManyPolicies.
    """
    _known_cohort(now, event.cohort)
    if not by.is_platform:
        into = now.cohorts.get(event.cohort or "")
        was = now.units.get(str(event.subscriber_id))
        outside = was is not None and was.cohort not in _cohorts_of(now, by.tenant_id)
        mine = into is not None and into.tenant_id == by.tenant_id == event.tenant_id
        if outside or not mine:
            raise PolicyNotYours(subscriber_id=event.subscriber_id)
    _bounded(Policies.evolve(now, event))
    return _unless_same(now.units.get(str(event.subscriber_id)), event)


def set_quota(now: Policies, event: QuotaSet, by: Setter) -> Events:
    """Set the quota of a unit or cohort.

    Raises: GpuClassUnreadable, FigureOutOfRange, CohortUnknown, BorrowingNeedsCohort,
        PolicyNotYours, GrantExceeded.
    """
    _sound(now, event)
    if not by.is_platform:
        _within_grant(now, event, by)
    return _unless_same(now.quotas.get((event.node, event.gpu_class)), event)


def override_quota(now: Policies, event: QuotaOverridden, by: Setter) -> Events:
    """Set another quota between two moments. Only the platform does.

    Raises: PolicyNotYours, OverrideSpanWrong, TooManyPolicies, and as `set_quota`.
    """
    need_platform(by)
    if event.override_id in now.overrides:
        return []
    _sound(now, event)
    need_span(event.starts_at, event.ends_at, event.at)
    _bounded(Policies.evolve(now, event))
    return [event]


def lift_override(
    policies: Policies, override_id: UUID, by: Setter, *, market: str, why: str = "", now: datetime
) -> Events:
    """End an override before its time.

    Raises: PolicyNotYours, OverrideUnknown.
    """
    need_platform(by)
    if override_id not in policies.overrides:
        raise OverrideUnknown(override_id=override_id)
    return [OverrideLifted(market=market, override_id=override_id, at=now, why=why)]


def set_limit(now: Policies, event: LimitSet, by: Setter) -> Events:
    """Limit a bid, a user, a unit or a tenant. A tenant's operators: their own people and units.

    Raises: PolicyNotYours, FigureOutOfRange.
    """
    for figure in (event.gpus, event.memory_mib, event.gpu_hours):
        need_figure(figure, 10**9)
    if not by.is_platform and (
        event.scope not in ("user", "subscriber")
        or event.subject is None
        or event.tenant_id != by.tenant_id
    ):
        raise PolicyNotYours(scope=event.scope)
    was = now.limits.get((event.scope, event.subject))
    if was is not None and not by.is_platform and was.tenant_id != by.tenant_id:
        raise PolicyNotYours(scope=event.scope)
    return _unless_same(was, event)


def allow_use(now: Policies, event: UseAllowed, by: Setter) -> Events:
    """Set who may lease or borrow what. Only the platform does.

    Raises: PolicyNotYours, GpuClassUnreadable, CohortUnknown, TooManyPolicies.
    """
    need_platform(by)
    need_class(event.gpu_class)
    if event.who is not None and not _is_id(event.who):
        need_node(now, event.who)
    if len(Policies.evolve(now, event).permits) > OVERRIDES_MAX:
        raise TooManyPolicies()
    key = (event.who, event.what, event.gpu_class)
    return [] if now.permits.get(key) == event.allowed else [event]


def _is_id(text: str) -> bool:
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False


# --- what is asked of every policy --------------------------------------------------------------


def need_platform(by: Setter) -> None:
    """Refuse all but the platform's operators."""
    if not by.is_platform:
        raise PolicyNotYours()


def _unless_same(was: Reasoned | None, event: Reasoned) -> Events:
    """Return a policy unless it says what is in force already, for whatever reason."""
    same = was is not None and replace(was, at=event.at, why=event.why) == event
    return [] if same else [event]


def need_reason(why: str) -> None:
    if len(why) > WHY_CHARS_MAX:
        raise ReasonTooLong(given=len(why))


def need_figure(figure: int | None, most: int, *, least: int = 0) -> None:
    if figure is not None and not least <= figure <= most:
        raise FigureOutOfRange(given=figure, least=least, most=most)


def need_class(gpu_class: str) -> None:
    if not _CLASS.fullmatch(gpu_class):
        raise GpuClassUnreadable(given=gpu_class[:40])


def need_span(starts_at: datetime, ends_at: datetime, now: datetime) -> None:
    if not (starts_at < ends_at and now < ends_at and ends_at - starts_at <= OVERRIDE_MAX):
        raise OverrideSpanWrong(starts_at=starts_at, ends_at=ends_at)


def _sound(now: Policies, event: QuotaSet | QuotaOverridden) -> None:
    need_class(event.gpu_class)
    for figure in (event.nominal, event.borrowing, event.lending):
        need_figure(figure, GPUS_MAX)
    need_figure(event.gpu_hours, GPU_HOURS_MAX)
    need_node(now, event.node)
    alone = now.parents[event.node] is None
    if alone and (event.borrowing is not None or event.lending is not None):
        raise BorrowingNeedsCohort(node=event.node)


def grant_of(now: Policies, node: str, by: Setter) -> CohortPlaced:
    """Return the cohort of a unit of one's own that stands in one's own grant; refuse others."""
    unit = now.units.get(node)
    cohort = None if unit is None else now.cohorts.get(unit.cohort or "")
    if unit is None or cohort is None or {unit.tenant_id, cohort.tenant_id} != {by.tenant_id}:
        raise PolicyNotYours(node=node)
    return cohort


def _within_grant(now: Policies, event: QuotaSet, by: Setter) -> None:
    cohort = grant_of(now, event.node, by)
    key = (cohort.cohort, event.gpu_class)
    given = now.quotas.get(key)
    if given is None:
        granted, hours = 0, None
    else:
        granted, hours = given.nominal or 0, given.gpu_hours
    members = {
        node: each
        for (node, of), each in now.quotas.items()
        if of == event.gpu_class and now.parents.get(node) == cohort.cohort
    } | {event.node: event}
    shared_out = sum(each.nominal or 0 for each in members.values())
    if shared_out > granted:
        raise GrantExceeded(granted=granted, shared_out=shared_out)
    hours_out = sum(each.gpu_hours or 0 for each in members.values())
    if hours is not None and hours_out > hours:
        raise GrantExceeded(granted=hours, shared_out=hours_out, of="gpu-hours")


def need_node(now: Policies, node: str) -> None:
    """Refuse what is neither a cohort nor a unit that stands anywhere."""
    if node not in now.cohorts and node not in now.units:
        raise CohortUnknown(node=node[:40])


def _known_cohort(now: Policies, cohort: str | None) -> None:
    if cohort is not None and cohort not in now.cohorts:
        raise CohortUnknown(node=cohort[:40])


def need_unit(now: Policies, subscriber_id: SubscriberId) -> UnitPlaced:
    """Return where a unit stands, or refuse one that stands nowhere."""
    unit = now.units.get(str(subscriber_id))
    if unit is None:
        raise CohortUnknown(node=subscriber_id)
    return unit


def _cohorts_of(now: Policies, tenant_id: TenantId) -> set[str | None]:
    return {name for name, each in now.cohorts.items() if each.tenant_id == tenant_id}


def _bounded(after: Policies) -> None:
    if len(after.parents) > NODES_MAX or len(after.overrides) > OVERRIDES_MAX:
        raise TooManyPolicies()


def _not_circular(after: Policies, cohort: str) -> None:
    for start in after.cohorts:
        at: str | None = start
        for _ in range(DEPTH_MAX):
            at = None if at is None else after.cohorts[at].parent
        if at is not None:
            raise CohortCircular(cohort=cohort)
