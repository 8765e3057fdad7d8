"""What a policy looks like in JSON, by its kind, and how it becomes one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from rest_framework import serializers

from ledger.access import Actor
from ledger.domain.ids import SubscriberId, TenantId
from ledger.domain.money import Money
from ledger.domain.parties import MemberUnknown, SubscriberUnknown
from ledger.queries.parties import members, subscribers, unit_tenants
from ledger.rest import AmountField, Body, CountField, MomentField, TextField
from marketplace.domain.governance import (
    GPU_HOURS_MAX,
    HALF_LIFE_SECONDS_MAX,
    PERIOD_SECONDS_MAX,
    PERIOD_SECONDS_MIN,
    WEIGHT_PPM_MAX,
    WHY_CHARS_MAX,
)
from marketplace.domain.governance_events import (
    CohortPlaced,
    GuaranteePeriodSet,
    HalfLifeSet,
    LimitSet,
    QuotaOverridden,
    QuotaSet,
    ShareWeightSet,
    UnitPlaced,
    UseAllowed,
)
from marketplace.domain.governance_rules import Policy

HOURS: Mapping[str, Any] = {
    "value_min": 0,
    "value_max": GPU_HOURS_MAX,
    "required": False,
    "allow_null": True,
}
GPUS: Mapping[str, Any] = {"value_min": 0, "required": False, "allow_null": True}


class Reasoned(Body):
    """A policy. why: for the log."""

    why = TextField(max_length=WHY_CHARS_MAX, required=False, allow_blank=True, default="")


class CohortBody(Reasoned):
    """A cohort. parent: the cohort it lies in. tenant_id: whose grant it is."""

    cohort = TextField()
    parent = TextField(required=False)  # type: ignore[assignment]  # a field of that name
    tenant_id = serializers.UUIDField(required=False)


class UnitBody(Reasoned):
    """Where a business unit stands; without a cohort it stands alone."""

    subscriber_id = serializers.UUIDField()
    cohort = TextField(required=False)


class QuotaBody(Reasoned):
    """A quota in GPUs at one time. What is left out is not set, which is not 0.

    gpu_hours: of what is within nominal quota, how much is guaranteed in each period.
    """

    node = TextField()
    gpu_class = TextField()
    nominal = CountField(**GPUS)
    borrowing = CountField(**GPUS)
    lending = CountField(**GPUS)
    gpu_hours = CountField(**HOURS)


class OverrideBody(QuotaBody):
    """Another quota between two moments; it takes the place of the whole quota."""

    starts_at = MomentField()
    ends_at = MomentField()


class LimitBody(Reasoned):
    """A limit. subject: whose; left out: each one's that has none of its own.

    tenant_id: whose people or units it is for; of a tenant's operators always their own.
    """

    scope = serializers.ChoiceField(choices=("bid", "user", "subscriber", "tenant"))
    subject = serializers.UUIDField(required=False)
    tenant_id = serializers.UUIDField(required=False)
    gpus = CountField(**GPUS)
    memory_mib = CountField(**GPUS)
    gpu_hours = CountField(**HOURS)
    money = AmountField(required=False, allow_null=True)
    currency = TextField(max_length=3, required=False)
    period = serializers.ChoiceField(choices=("day", "week", "month"), default="week")


class WeightBody(Reasoned):
    """How much a unit's use counts; 1,000,000 counts once, 0 comes last."""

    node = TextField()
    weight_ppm = CountField(value_min=0, value_max=WEIGHT_PPM_MAX)


class HalfLifeBody(Reasoned):
    """In which time use is forgotten by half."""

    seconds = CountField(value_min=60, value_max=HALF_LIFE_SECONDS_MAX)


class PeriodBody(Reasoned):
    """In which spans guaranteed GPU-hours are counted, one of which starts at `starts_at`."""

    seconds = CountField(value_min=PERIOD_SECONDS_MIN, value_max=PERIOD_SECONDS_MAX)
    starts_at = MomentField()


class UseBody(Reasoned):
    """Who may lease, or borrow, GPUs of a class. who: a unit's, tenant's id, or a cohort's name."""

    who = TextField(required=False)
    gpu_class = TextField()
    what = serializers.ChoiceField(choices=("lease", "borrow"))
    allowed = serializers.BooleanField()


BODIES: Mapping[str, type[Reasoned]] = {
    "cohort": CohortBody,
    "unit": UnitBody,
    "quota": QuotaBody,
    "override": OverrideBody,
    "limit": LimitBody,
    "weight": WeightBody,
    "half-life": HalfLifeBody,
    "period": PeriodBody,
    "use": UseBody,
}
"""Every kind of policy that can be set, or tried, and its body."""


def policy_of(
    kind: str, asked: Mapping[str, Any], actor: Actor, *, market: str, currency: str, now: datetime
) -> Policy:
    """Return the policy that a checked body of a kind asks for.

    Raises: SubscriberUnknown, MemberUnknown; what is another's is as unknown as what is not.
    """
    about = {"market": market, "at": now, "why": asked["why"]}
    return MAKERS[kind](asked, actor, about, currency)


def policies_of(
    asked: Sequence[Mapping[str, Any]], actor: Actor, *, market: str, currency: str, now: datetime
) -> list[Policy]:
    """Return the policies that a list holds: each says its `kind`, and the fields of that kind.

    Raises: ValidationError, and as `policy_of`.
    """
    made = []
    for each in asked:
        kind = str(each.get("kind"))
        if kind not in BODIES:
            known = f"Each policy has a kind: {', '.join(BODIES)}."
            raise serializers.ValidationError({"policies": known}, code="kind-unknown")
        body = BODIES[kind](data={name: each[name] for name in each if name != "kind"})
        body.is_valid(raise_exception=True)
        made.append(
            policy_of(kind, body.validated_data, actor, market=market, currency=currency, now=now)
        )
    return made


def _cohort(asked: Mapping[str, Any], actor: Actor, about: Any, currency: str) -> Policy:
    return CohortPlaced(
        cohort=asked["cohort"],
        parent=asked.get("parent"),
        tenant_id=_tenant(asked.get("tenant_id")),
        **about,
    )


def _unit(asked: Mapping[str, Any], actor: Actor, about: Any, currency: str) -> Policy:
    unit = asked["subscriber_id"]
    tenant_id = unit_tenants(actor).get(unit)
    if tenant_id is None:
        raise SubscriberUnknown(subscriber_id=unit)
    return UnitPlaced(
        subscriber_id=SubscriberId(unit),
        tenant_id=TenantId(tenant_id),
        cohort=asked.get("cohort"),
        **about,
    )


def _figures(asked: Mapping[str, Any]) -> dict[str, Any]:
    names = ("nominal", "borrowing", "lending", "gpu_hours")
    return {name: asked.get(name) for name in names}


def _quota(asked: Mapping[str, Any], actor: Actor, about: Any, currency: str) -> Policy:
    return QuotaSet(node=asked["node"], gpu_class=asked["gpu_class"], **_figures(asked), **about)


def _override(asked: Mapping[str, Any], actor: Actor, about: Any, currency: str) -> Policy:
    return QuotaOverridden(
        override_id=asked.get("override_id") or uuid4(),
        node=asked["node"],
        gpu_class=asked["gpu_class"],
        starts_at=asked["starts_at"],
        ends_at=asked["ends_at"],
        request_id=None,
        **_figures(asked),
        **about,
    )


def _limit(asked: Mapping[str, Any], actor: Actor, about: Any, currency: str) -> Policy:
    subject, money = asked.get("subject"), asked.get("money")
    tenant_id = asked.get("tenant_id") if actor.sees_all else actor.tenant_id
    if not actor.sees_all:
        _need_own(asked["scope"], subject, actor)
    return LimitSet(
        scope=asked["scope"],
        subject=subject,
        tenant_id=_tenant(tenant_id),
        gpus=asked.get("gpus"),
        memory_mib=asked.get("memory_mib"),
        gpu_hours=asked.get("gpu_hours"),
        money=None if money is None else Money(money, asked.get("currency", currency)),
        period=asked["period"],
        **about,
    )


def _need_own(scope: str, subject: UUID | None, actor: Actor) -> None:
    if subject is None:
        return  # the rule refuses a limit of each
    if scope == "subscriber" and not subscribers(actor).filter(pk=subject).exists():
        raise SubscriberUnknown(subscriber_id=subject)
    if scope == "user" and not members(actor).filter(user_id=subject).exists():
        raise MemberUnknown(user_id=subject)


def _weight(asked: Mapping[str, Any], actor: Actor, about: Any, currency: str) -> Policy:
    return ShareWeightSet(node=asked["node"], weight_ppm=asked["weight_ppm"], **about)


def _half_life(asked: Mapping[str, Any], actor: Actor, about: Any, currency: str) -> Policy:
    return HalfLifeSet(seconds=asked["seconds"], **about)


def _period(asked: Mapping[str, Any], actor: Actor, about: Any, currency: str) -> Policy:
    return GuaranteePeriodSet(seconds=asked["seconds"], starts_at=asked["starts_at"], **about)


def _use(asked: Mapping[str, Any], actor: Actor, about: Any, currency: str) -> Policy:
    return UseAllowed(
        who=asked.get("who"),
        gpu_class=asked["gpu_class"],
        what=asked["what"],
        allowed=asked["allowed"],
        **about,
    )


def _tenant(tenant_id: UUID | None) -> TenantId | None:
    return None if tenant_id is None else TenantId(tenant_id)


MAKERS: Mapping[str, Callable[[Mapping[str, Any], Actor, Any, str], Policy]] = {
    "cohort": _cohort,
    "unit": _unit,
    "quota": _quota,
    "override": _override,
    "limit": _limit,
    "weight": _weight,
    "half-life": _half_life,
    "period": _period,
    "use": _use,
}
