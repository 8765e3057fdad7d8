"""JSON over HTTP for policies together: tried before they bind, and set all at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, ClassVar
from uuid import UUID

from django.conf import settings
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.rest import CountField, MomentField, TextField
from marketplace.api.market import market_named
from marketplace.api.quota_bodies import OfMarket, policies_of
from marketplace.api.quotas import PolicyWritten, Setting
from marketplace.domain.governance.authority import WHY_CHARS_MAX
from marketplace.trials.on_the_book import Trial, try_policies
from marketplace.trials.on_the_past import DAYS_MAX
from marketplace.trials.proposed_policies import Asked


class TogetherBody(OfMarket):
    """Policies, one after the other: each with its `kind` and the fields of that kind."""

    policies = serializers.ListField(child=serializers.DictField(), allow_empty=False)


class SetTogetherBody(TogetherBody):
    """Policies to set. why: for the log, of each that says none of its own."""

    why = TextField(max_length=WHY_CHARS_MAX, required=False, allow_blank=True, default="")


class TryBody(TogetherBody):
    """Policies to try. days: how far back permissions are tried; seven, if one is a permission."""

    days = CountField(value_min=1, value_max=DAYS_MAX, required=False)


class JudgedShape(serializers.Serializer[Any]):
    """An offer, bid or lease that would have fared otherwise.

    before, after: `allowed`, `fewer-models`, `needs-approval` (more quota of its own) or `refused`.
    """

    kind = serializers.CharField()
    id = serializers.UUIDField()
    who = serializers.CharField()
    gpu_models = serializers.ListField(child=serializers.CharField())
    gpus = serializers.IntegerField()
    at = MomentField()
    before = serializers.CharField()
    after = serializers.CharField()


class HindsightShape(serializers.Serializer[Any]):
    """What permissions would have meant for what came in the last days or stands there now."""

    since = MomentField()
    until = MomentField()
    looked = serializers.DictField(child=serializers.IntegerField())
    changes = JudgedShape(many=True)


class TrialShape(serializers.Serializer[Any]):
    """What the policies would change as of now. past: null where it was not asked for."""

    at = MomentField()
    bids = serializers.IntegerField()
    admitted_before = serializers.IntegerField()
    admitted_after = serializers.IntegerField()
    bid_changes = serializers.ListField(child=serializers.DictField())
    lease_changes = serializers.ListField(child=serializers.DictField())
    run_changes = serializers.ListField(child=serializers.DictField())
    queues = serializers.ListField(child=serializers.DictField())
    cohorts = serializers.ListField(child=serializers.DictField())
    past = HindsightShape(allow_null=True)


class QuotaTrials(Setting):
    """Policies tried before they bind."""

    scopes: ClassVar = {"POST": "admin"}

    @extend_schema(request=TryBody, responses=TrialShape)
    def post(self, request: Request) -> Response:
        """Clear the market with these policies in force, all together, and write nothing."""
        asked = self.body(TryBody)
        market = market_named(asked.get("market"))
        found = try_policies(
            self.store(),
            self.actor,
            market=market,
            policies=_asked(self, market, asked["policies"]),
            setter=self.setter,
            now=timezone.now(),
            days=asked.get("days"),
        )
        return Response(trial_json(found))


class QuotaPolicies(Setting):
    """Policies set together."""

    scopes: ClassVar = {"POST": "admin"}

    @extend_schema(request=SetTogetherBody, responses={201: PolicyWritten})
    def post(self, request: Request) -> Response:
        """Set several policies, one after the other: all of them, or none if one is refused."""
        asked = self.body(SetTogetherBody)
        market = market_named(asked.get("market"))
        wanted = [{"why": asked["why"], **each} for each in asked["policies"]]
        return self.set(*_asked(self, market, wanted))


def _asked(
    endpoint: Setting, market: str, policies: Sequence[Mapping[str, Any]]
) -> Sequence[Asked]:
    return policies_of(
        policies,
        endpoint.actor,
        market=market,
        currency=settings.ENV.currency,
        now=timezone.now(),
    )


def trial_json(found: Trial) -> dict[str, Any]:
    """Return a trial as it is sent."""

    def plain(change: Any) -> dict[str, Any]:
        return {
            name: str(value) if isinstance(value, UUID) else value
            for name, value in asdict(change).items()
        }

    said = {each.name: getattr(found, each.name) for each in fields(found)} | {
        name: [plain(change) for change in getattr(found, name)]
        for name in ("bid_changes", "lease_changes", "run_changes", "queues", "cohorts")
    }
    return dict(TrialShape(said).data)
