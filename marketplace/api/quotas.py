"""JSON over HTTP for quotas: who has what, who goes first, setting it, and the log of policies."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, ClassVar
from uuid import UUID

from django.conf import settings
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.rest import Endpoint, MomentField, TextField
from marketplace.api.counted import CountedField
from marketplace.api.market import MARKET, market_named, market_of
from marketplace.api.quota_bodies import (
    BODIES,
    CohortBody,
    CountingBody,
    HalfLifeBody,
    LeastRunBody,
    ListingBody,
    OfMarket,
    OverrideBody,
    PeriodBody,
    QuotaBody,
    UnitBody,
    UseBody,
    WeightBody,
)
from marketplace.commands.quotas import lift_override, set_policies
from marketplace.domain.facts.policy_events import QuotaOverridden
from marketplace.domain.governance.authority import WHY_CHARS_MAX, Setter
from marketplace.queries import quotas as queries
from marketplace.queries.quota_log import policy_rows
from marketplace.trials.proposed_policies import Asked, policy_of

NEWEST_FIRST = ("-position",)


class StandingShape(serializers.Serializer[Any]):
    """Quota and use of one unit or cohort for one class of GPUs; null is not set."""

    node = serializers.CharField()
    is_cohort = serializers.BooleanField()
    cohort = serializers.CharField(allow_null=True)
    gpu_class = serializers.CharField()
    nominal = serializers.IntegerField(allow_null=True)
    borrowing = serializers.IntegerField(allow_null=True)
    lending = serializers.IntegerField(allow_null=True)
    gpu_hours = serializers.IntegerField(allow_null=True)
    used = CountedField()
    borrowed = CountedField()
    available = CountedField()


class OverrideShape(serializers.Serializer[Any]):
    """An override that is or will be in force; null is not set."""

    id = serializers.UUIDField(source="override_id")
    node = serializers.CharField()
    gpu_class = serializers.CharField()
    nominal = serializers.IntegerField(allow_null=True)
    borrowing = serializers.IntegerField(allow_null=True)
    lending = serializers.IntegerField(allow_null=True)
    gpu_hours = serializers.IntegerField(allow_null=True)
    starts_at = MomentField()
    ends_at = MomentField()
    why = serializers.CharField()


class AllowedShape(serializers.Serializer[Any]):
    """Who may, or may not, list, lease or borrow GPUs of a class; who null: everybody else."""

    who = serializers.CharField(allow_null=True)
    what = serializers.CharField()
    gpu_class = serializers.CharField()
    allowed = serializers.BooleanField()


class PolicyShape(serializers.Serializer[Any]):
    """One policy of the log: who set it, when, what kind, what it says, and why."""

    position = serializers.IntegerField()
    kind = serializers.CharField()
    policy = serializers.DictField()
    who = serializers.CharField(source="actor")
    why = serializers.CharField()
    at = MomentField()


class PolicyWritten(serializers.Serializer[Any]):
    """The position at which the policy is in force. id: of an override."""

    position = serializers.IntegerField()
    id = serializers.UUIDField(required=False)


class LiftBody(OfMarket):
    """Why an override ends before its time."""

    why = TextField(max_length=WHY_CHARS_MAX, required=False, allow_blank=True, default="")


class Setting(Endpoint):
    """Whatever sets a policy. reads: policies stand in the market's own stream, units in rows."""

    scopes: ClassVar = {}
    reads: ClassVar[tuple[str, ...]] = ("ledger.parties",)

    @property
    def setter(self) -> Setter:
        """Return as whom the actor sets policies; the rules refuse what is not the actor's."""
        _, is_platform = queries.setter_of(self.actor)
        return Setter(self.actor.tenant_id, is_platform, self.actor.user_id)

    def asked(self, kind: str, **more: object) -> Asked:
        """Return the policy that the body asks for, in the market that it names."""
        asked = self.body(BODIES[kind])
        return policy_of(
            kind,
            {**asked, **more},
            self.actor,
            market=market_named(asked.get("market")),
            currency=settings.ENV.currency,
            now=timezone.now(),
        )

    def set(self, *policies: Asked) -> Response:
        """Record policies: all of them, or none."""
        position = set_policies(self.store(), policies=policies, setter=self.setter, by=self.meta())
        return Response({"position": position}, status=201)


class Quotas(Setting):
    """Quotas of units and cohorts."""

    scopes: ClassVar = {"GET": "market:read", "POST": "admin"}

    @extend_schema(responses=StandingShape(many=True), parameters=[MARKET])
    def get(self, request: Request) -> Response:
        """List cohorts and your own units, with quota and use as of now."""
        rows = queries.standings(
            self.store(), self.actor, market=market_of(request), now=timezone.now()
        )
        return self.listed([asdict(row) for row in rows], ("node", "gpu_class"))

    @extend_schema(request=QuotaBody, responses={201: PolicyWritten})
    def post(self, request: Request) -> Response:
        """Set a quota."""
        return self.set(self.asked("quota"))


class QuotaCohorts(Setting):
    """Cohorts."""

    scopes: ClassVar = {"POST": "admin"}

    @extend_schema(request=CohortBody, responses={201: PolicyWritten})
    def post(self, request: Request) -> Response:
        """Make a cohort, or move it."""
        return self.set(self.asked("cohort"))


class QuotaUnits(Setting):
    """Where business units stand."""

    scopes: ClassVar = {"POST": "admin"}

    @extend_schema(request=UnitBody, responses={201: PolicyWritten})
    def post(self, request: Request) -> Response:
        """Put a business unit into a cohort."""
        return self.set(self.asked("unit"))


class QuotaOverrides(Setting):
    """Quotas between two moments."""

    scopes: ClassVar = {"GET": "market:read", "POST": "admin"}

    @extend_schema(responses=OverrideShape(many=True), parameters=[MARKET])
    def get(self, request: Request) -> Response:
        """List those that are or will be in force, of cohorts and your own units."""
        found = queries.overrides(
            self.store(), self.actor, market=market_of(request), now=timezone.now()
        )
        return self.listed(OverrideShape(found, many=True).data, ("id",))

    @extend_schema(request=OverrideBody, responses={201: PolicyWritten})
    def post(self, request: Request) -> Response:
        """Set another quota between two moments; the answer says its id."""
        policy = self.asked("override", override_id=self.command_id)
        assert isinstance(policy, QuotaOverridden)
        answer = self.set(policy)
        answer.data["id"] = policy.override_id
        return answer


class OneQuotaOverride(Setting):
    """One override."""

    scopes: ClassVar = {"DELETE": "admin"}

    @extend_schema(request=LiftBody, responses=PolicyWritten, parameters=[MARKET])
    def delete(self, request: Request, override_id: UUID) -> Response:
        """End an override before its time."""
        asked = self.body(LiftBody) if request.data else {}
        position = lift_override(
            self.store(),
            market=market_named(asked.get("market") or request.query_params.get("market")),
            override_id=override_id,
            why=asked.get("why", ""),
            setter=self.setter,
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"position": position})


class QuotaWeights(Setting):
    """Weights of fair shares."""

    scopes: ClassVar = {"POST": "admin"}

    @extend_schema(request=WeightBody, responses={201: PolicyWritten})
    def post(self, request: Request) -> Response:
        """Set how much the use of a unit, or of all in a cohort, counts."""
        return self.set(self.asked("weight"))


class QuotaHalfLife(Setting):
    """The half-life of use."""

    scopes: ClassVar = {"POST": "admin"}

    @extend_schema(request=HalfLifeBody, responses={201: PolicyWritten})
    def post(self, request: Request) -> Response:
        """Set in which time use is forgotten by half."""
        return self.set(self.asked("half-life"))


class QuotaPeriod(Setting):
    """The spans in which guaranteed GPU-hours are counted."""

    scopes: ClassVar = {"POST": "admin"}

    @extend_schema(request=PeriodBody, responses={201: PolicyWritten})
    def post(self, request: Request) -> Response:
        """Set length and start of the periods."""
        return self.set(self.asked("period"))


class ClassLeastRunShape(serializers.Serializer[Any]):
    """The least running time of a class of GPUs, and of parts of them."""

    gpu_class = serializers.CharField()
    seconds = serializers.IntegerField()


class LeastRunShape(serializers.Serializer[Any]):
    """How long a lease runs at least before it is interrupted for another bid.

    classes: those with a time of their own; `seconds` holds for all others. firm_seconds: how much
    of work that may be paused is done before it is.
    """

    seconds = serializers.IntegerField()
    firm_seconds = serializers.IntegerField()
    classes = ClassLeastRunShape(many=True)


class QuotaLeastRun(Setting):
    """How long leases run at least before they are interrupted for other bids."""

    scopes: ClassVar = {"GET": "market:read", "POST": "admin"}

    @extend_schema(responses=LeastRunShape, parameters=[MARKET])
    def get(self, request: Request) -> Response:
        """Show what is in force; for everybody to know."""
        found = queries.least_runs(self.store(), market=market_of(request))
        classes = [{"gpu_class": name, "seconds": seconds} for name, seconds in found.classes]
        figures = {"seconds": found.seconds, "firm_seconds": found.firm_seconds}
        return Response(figures | {"classes": classes})

    @extend_schema(request=LeastRunBody, responses={201: PolicyWritten})
    def post(self, request: Request) -> Response:
        """Set it, for all or a class; leases that run already are judged by it too."""
        return self.set(self.asked("least-run"))


class CountingShape(serializers.Serializer[Any]):
    """How quotas and limits count a part of a card: `whole` or `parts`."""

    counts = serializers.CharField()


class QuotaCounting(Setting):
    """How quotas and limits count parts of cards."""

    scopes: ClassVar = {"GET": "market:read", "POST": "admin"}

    @extend_schema(responses=CountingShape, parameters=[MARKET])
    def get(self, request: Request) -> Response:
        """Show what is in force; for everybody to know."""
        return Response({"counts": queries.counts(self.store(), market=market_of(request))})

    @extend_schema(request=CountingBody, responses={201: PolicyWritten})
    def post(self, request: Request) -> Response:
        """Set it; what is held is counted anew from then on."""
        return self.set(self.asked("counting"))


class QuotaUses(Setting):
    """Who may lease or borrow what."""

    scopes: ClassVar = {"GET": "market:read", "POST": "admin"}

    @extend_schema(responses=AllowedShape(many=True), parameters=[MARKET])
    def get(self, request: Request) -> Response:
        """List what is set, as far as it concerns you; what nothing speaks of is allowed."""
        found = queries.uses_allowed(self.store(), self.actor, market=market_of(request))
        names = ("who", "what", "gpu_class", "allowed")
        return self.listed([dict(zip(names, row, strict=True)) for row in found], names[:3])

    @extend_schema(request=UseBody, responses={201: PolicyWritten})
    def post(self, request: Request) -> Response:
        """Let somebody lease, or borrow, GPUs of a class, or no longer."""
        return self.set(self.asked("use"))


class QuotaListings(Setting):
    """Who may list what."""

    scopes: ClassVar = {"GET": "market:read", "POST": "admin"}

    @extend_schema(responses=AllowedShape(many=True), parameters=[MARKET])
    def get(self, request: Request) -> Response:
        """List what is set, as far as it concerns you; what nothing speaks of is allowed."""
        found = queries.listings_allowed(self.store(), self.actor, market=market_of(request))
        rows = [
            {"who": who, "what": "list", "gpu_class": gpu_class, "allowed": allowed}
            for who, gpu_class, allowed in found
        ]
        return self.listed(rows, ("who", "gpu_class"))

    @extend_schema(request=ListingBody, responses={201: PolicyWritten})
    def post(self, request: Request) -> Response:
        """Let an organisation list GPUs of a class, and parts of them, or no longer.

        Offers that are there stay.
        """
        return self.set(self.asked("listing"))


class QuotaLog(Endpoint):
    """The policies as they were set."""

    scopes: ClassVar = {"GET": "market:read"}
    reads: ClassVar = ("marketplace.quotas",)

    @extend_schema(responses=PolicyShape(many=True), parameters=[MARKET])
    def get(self, request: Request) -> Response:
        """List the policies that concern you, newest first."""
        return self.page(policy_rows(self.actor, market_of(request)), PolicyShape, NEWEST_FIRST)
