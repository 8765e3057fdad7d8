"""What a policy looks like in JSON, by its kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rest_framework import serializers

from ledger.access import Actor
from ledger.rest import AmountField, Body, CountField, MomentField, TextField
from marketplace.domain.governance.authority import GPU_HOURS_MAX, WHY_CHARS_MAX
from marketplace.domain.governance.dispatch import (
    FIRM_SECONDS_MAX,
    HALF_LIFE_SECONDS_MAX,
    PERIOD_SECONDS_MAX,
    PERIOD_SECONDS_MIN,
    WEIGHT_PPM_MAX,
)
from marketplace.trials.proposed_policies import Asked, policy_of

HOURS: Mapping[str, Any] = {
    "value_min": 0,
    "value_max": GPU_HOURS_MAX,
    "required": False,
    "allow_null": True,
}
GPUS: Mapping[str, Any] = {"value_min": 0, "required": False, "allow_null": True}


class OfMarket(Body):
    """What is about one market: that of the installation, if none is named."""

    market = TextField(required=False)


class Reasoned(OfMarket):
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
    """How much use counts, of a unit or of all in a cohort; 1,000,000 counts once, 0 comes last."""

    node = TextField()
    weight_ppm = CountField(value_min=0, value_max=WEIGHT_PPM_MAX)


class HalfLifeBody(Reasoned):
    """In which time use is forgotten by half."""

    seconds = CountField(value_min=60, value_max=HALF_LIFE_SECONDS_MAX)


class PeriodBody(Reasoned):
    """In which spans guaranteed GPU-hours are counted, one of which starts at `starts_at`."""

    seconds = CountField(value_min=PERIOD_SECONDS_MIN, value_max=PERIOD_SECONDS_MAX)
    starts_at = MomentField()


class LeastRunBody(Reasoned):
    """How long a lease runs at least before it is interrupted for another bid.

    gpu_class: of which GPUs; left out: of all that no class speaks of. lift: in place of `seconds`:
    the class has no time of its own any more. firm: it is how much of work that may be paused is
    done before it is, up to seven days; of no class.
    """

    seconds = CountField(value_min=0, value_max=FIRM_SECONDS_MAX, required=False)
    gpu_class = TextField(required=False)
    lift = serializers.BooleanField(required=False)
    firm = serializers.BooleanField(required=False)


class CountingBody(Reasoned):
    """How a part of a card is counted: `whole`, as one GPU, or `parts`, as the part it is."""

    counts = serializers.ChoiceField(choices=("whole", "parts"))


class UseBody(Reasoned):
    """Who may lease, or borrow, GPUs of a class. who: a unit's, tenant's id, or a cohort's name."""

    who = TextField(required=False)
    gpu_class = TextField()
    what = serializers.ChoiceField(choices=("lease", "borrow"))
    allowed = serializers.BooleanField()


class ListingBody(Reasoned):
    """Whether an organisation may list GPUs of a class; without tenant_id: each of them."""

    tenant_id = serializers.UUIDField(required=False)
    gpu_class = TextField()
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
    "least-run": LeastRunBody,
    "counting": CountingBody,
    "use": UseBody,
    "listing": ListingBody,
}
"""Every kind of policy that can be set, or tried, and its body."""


def policies_of(
    asked: Sequence[Mapping[str, Any]], actor: Actor, *, market: str, currency: str, now: datetime
) -> list[Asked]:
    """Return the policies that a list holds: each says its `kind`, and the fields of that kind.

    Raises: ValidationError, and as `policy_of`.
    """
    made = []
    for each in asked:
        kind = str(each.get("kind"))
        if kind not in BODIES:
            known = f"Each policy has a kind: {', '.join(BODIES)}."
            raise serializers.ValidationError({"policies": known}, code="kind-unknown")
        if "market" in each:
            once = "Name the market once, beside the policies."
            raise serializers.ValidationError({"policies": once}, code="market-named-twice")
        body = BODIES[kind](data={name: each[name] for name in each if name != "kind"})
        body.is_valid(raise_exception=True)
        made.append(
            policy_of(kind, body.validated_data, actor, market=market, currency=currency, now=now)
        )
    return made
