"""JSON over HTTP for the policy lab: a stretch of the log, run again under other rules."""

from __future__ import annotations

from typing import Any, ClassVar, get_args

from django.conf import settings
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.access import PlatformOnly
from ledger.rest import AmountField, CountField, Endpoint, MomentField
from listings.domain.permits import ListingPermits
from marketplace.api.market import market_named
from marketplace.api.quota_bodies import OfMarket, policies_of
from marketplace.domain.clearing.fills import PriceRule, Rules
from marketplace.domain.facts.policy_events import GovernanceEvent
from marketplace.domain.governance.authority import Setter
from marketplace.domain.governance.dispatch import HALF_LIFE_SECONDS_MAX, LEAST_RUN_SECONDS_MAX
from marketplace.lab.apart import compare_apart
from marketplace.lab.comparing import (
    CANNOT_CHANGE,
    FEE_PPM_MAX,
    HOURS_MAX,
    ROUND_SECONDS_MAX,
    Question,
    prepared,
)
from marketplace.lab.variants import Lanes, Variant
from marketplace.queries.quotas import setter_of
from marketplace.trials.on_the_book import permits_with, recorded_by


class AskLab(OfMarket):
    """What to run again, and under which rules. What is left out stays as it is."""

    hours = CountField(value_min=1, value_max=HOURS_MAX, default=24)
    price = serializers.ChoiceField(choices=get_args(PriceRule), default="market")
    lanes = serializers.ChoiceField(choices=get_args(Lanes), default="as-bid")
    round_seconds = CountField(value_min=1, value_max=ROUND_SECONDS_MAX, required=False)
    fee_ppm = CountField(value_min=0, value_max=FEE_PPM_MAX, required=False)
    preemption = serializers.BooleanField(default=True)
    half_life_seconds = CountField(
        value_min=60, value_max=HALF_LIFE_SECONDS_MAX, required=False, allow_null=True
    )
    least_run_seconds = CountField(
        value_min=0, value_max=LEAST_RUN_SECONDS_MAX, required=False, allow_null=True
    )
    policies = serializers.ListField(child=serializers.DictField(), required=False)


class FiguresShape(serializers.Serializer[Any]):
    """A stretch of the log in numbers; null where there is nothing to take one of."""

    bids = serializers.IntegerField()
    grants = serializers.IntegerField()
    gpu_seconds = serializers.SerializerMethodField()
    offered_gpu_seconds = serializers.SerializerMethodField()
    used_gpu_seconds = serializers.SerializerMethodField()
    utilisation_ppm = serializers.IntegerField(allow_null=True)
    welfare = AmountField(source="welfare_nanos")
    owners = AmountField(source="owners_nanos")
    consumer_surplus = AmountField(source="surplus_nanos")
    platform_fee = AmountField(source="fee_nanos")
    wait_mean_seconds = serializers.IntegerField(allow_null=True)
    wait_p95_seconds = serializers.IntegerField(allow_null=True)
    jain_ppm = serializers.IntegerField(allow_null=True)
    jain_cohorts_ppm = serializers.IntegerField(allow_null=True)
    interrupted = serializers.IntegerField()
    burst_spend = AmountField(source="burst_nanos")

    def get_gpu_seconds(self, figures: Any) -> int:
        """Return the GPU-time of the leases granted."""
        return int(figures.gpu_millis // 1000)

    def get_offered_gpu_seconds(self, figures: Any) -> int:
        """Return the local GPU-time on offer."""
        return int(figures.offered_millis // 1000)

    def get_used_gpu_seconds(self, figures: Any) -> int:
        """Return how much of it was leased."""
        return int(figures.used_millis // 1000)


class PartyShape(serializers.Serializer[Any]):
    """What the stretch came to for one: `money` is gained (limits less prices) or earned."""

    bids = serializers.IntegerField()
    grants = serializers.IntegerField()
    gpu_seconds = serializers.SerializerMethodField()
    wait_mean_seconds = serializers.IntegerField(allow_null=True)
    money = AmountField(source="nanos")

    def get_gpu_seconds(self, party: Any) -> int:
        """Return the GPU-time of its leases."""
        return int(party.gpu_millis // 1000)


class SwingShape(serializers.Serializer[Any]):
    """One business unit that bids, or organisation that lists, under both rules.

    side: `consumer` or `owner`; fares: `wins`, `loses` or `same`, by money and then by GPU-time.
    """

    side = serializers.CharField()
    who = serializers.UUIDField()
    fares = serializers.CharField()
    before = PartyShape()
    after = PartyShape()


class ComparisonShape(serializers.Serializer[Any]):
    """What was, what comes of the present rules run again, and what of the others."""

    since = MomentField()
    until = MomentField()
    facts = serializers.IntegerField()
    recorded = FiguresShape()
    again = FiguresShape()
    variant = FiguresShape()
    parties = SwingShape(many=True)
    cannot_change = serializers.ListField(child=serializers.CharField())


class Lab(Endpoint):
    """The policy lab. For those who govern the platform: operators and auditors."""

    scopes: ClassVar = {"POST": "market:read"}
    reads: ClassVar = ()

    @extend_schema(request=AskLab, responses=ComparisonShape)
    def post(self, request: Request) -> Response:
        """Run the last hours of the market again under other rules; nothing is written."""
        if not self.actor.sees_all:
            raise PlatformOnly()
        asked = self.body(AskLab)
        present = Variant(round_seconds=settings.ENV.round_seconds)
        market = market_named(asked.get("market"))
        policies, listing = self._policies(market, asked.get("policies", []))
        variant = Variant(
            Rules(asked["price"], preemption=asked["preemption"]),
            asked["lanes"],
            asked.get("round_seconds", present.round_seconds),
            half_life_seconds=asked.get("half_life_seconds"),
            least_run_seconds=asked.get("least_run_seconds"),
            policies=policies,
            listing=listing,
        )
        job = prepared(
            self.store(),
            market=market,
            currency=settings.ENV.currency,
            question=Question(asked["hours"], variant, asked.get("fee_ppm", settings.ENV.fee_ppm)),
            present=present,
            fee_ppm=settings.ENV.fee_ppm,
            now=timezone.now(),
        )
        found = compare_apart(job)
        shown = ComparisonShape({**_fields(found), "cannot_change": CANNOT_CHANGE}).data
        return Response({"currency": settings.ENV.currency, **shown})

    def _policies(
        self, market: str, asked: list[dict[str, Any]]
    ) -> tuple[tuple[GovernanceEvent, ...], ListingPermits | None]:
        """Return the policies to run the past under, each checked by its kind and its rule."""
        wanted = policies_of(
            asked,
            self.actor,
            market=market,
            currency=settings.ENV.currency,
            now=timezone.now(),
        )
        _, is_platform = setter_of(self.actor)
        setter = Setter(self.actor.tenant_id, is_platform)
        return (
            recorded_by(self.store(), wanted, market=market, setter=setter),
            permits_with(self.store(), wanted, market=market, setter=setter),
        )


def _fields(found: Any) -> dict[str, Any]:
    names = ("since", "until", "facts", "recorded", "again", "variant", "parties")
    return {name: getattr(found, name) for name in names}
