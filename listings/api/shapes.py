"""What the API of supply is sent and answers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date, time
from typing import Any, get_args

from django.conf import settings
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from ledger.domain.ids import BidId
from ledger.domain.money import Money, Rate
from ledger.rest import AmountField, Body, CountField, MomentField, TextField
from ledger.rest.fields import refuse
from listings.api.service import SlaShape
from listings.api.shares import (
    ByDemandBody,
    ByDemandShape,
    ChosenShape,
    DivisionShape,
    SharesBody,
    by_demand_of,
    division_of,
)
from listings.domain.events import Isolation, ReclaimStep, WeeklyRule
from listings.domain.markets import Market, market_of_region, named
from listings.domain.terms import OfferTerms
from listings.domain.windows import read_window
from listings.queries import Listed

_WALL = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


@extend_schema_field({"type": "string", "pattern": r"^([01][0-9]|2[0-3]):[0-5][0-9]$"})
class WallTimeField(serializers.Field[time, Any, str, Any]):
    """A time on a local clock: HH:MM, no offset."""

    def to_internal_value(self, data: Any) -> time:
        """Read `"22:00"`."""
        form = _WALL.fullmatch(data) if isinstance(data, str) else None
        if form is None:
            refuse("wall-time-unreadable", "Write a local time as HH:MM, such as 22:00.")
        return time.fromisoformat(data)

    def to_representation(self, value: time | str) -> str:
        """Write HH:MM."""
        return str(value)[:5]


@extend_schema_field({"type": "string", "format": "date"})
class DayField(serializers.Field[date, Any, str, Any]):
    """A calendar day: YYYY-MM-DD."""

    def to_internal_value(self, data: Any) -> date:
        """Read `"2026-01-05"`."""
        form = _DAY.fullmatch(data) if isinstance(data, str) else None
        if form is None:
            refuse("day-unreadable", "Write a day as YYYY-MM-DD.")
        try:
            day = date.fromisoformat(data)
        except ValueError:
            refuse("day-unreadable", "There is no such day.")
        if not 2000 <= day.year < 2200:
            refuse("day-out-of-range", "A day must lie between the years 2000 and 2200.")
        return day

    def to_representation(self, value: date | str) -> str:
        """Write YYYY-MM-DD."""
        return str(value)


class LabelsField(serializers.DictField):
    """Names and their texts."""

    child = TextField(allow_blank=True, trim_whitespace=False)


class WindowBody(Body):
    """A one-off window, half open."""

    starts_at = MomentField()
    ends_at = MomentField()


class WeeklyBody(Body):
    """A window that comes back every week on the clock of an IANA zone; 0 is Monday."""

    zone = TextField()
    days = serializers.ListField(child=CountField(value_max=6), max_length=7)
    since = WallTimeField()
    until = WallTimeField()
    first = DayField()
    last = DayField(required=False, allow_null=True)


class ReclaimStepBody(Body):
    """What a reclaim pays that comes with at least this much notice."""

    notice_seconds = CountField()
    fee_ppm = CountField()


class RegisterHost(Body):
    """What an owner says of a host."""

    title = TextField()
    region = TextField()
    market = TextField(required=False)
    labels = LabelsField(required=False)


class OfferBody(Body):
    """The terms of an offer, as it is published or previewed. host_id: the host of its GPUs; only a
    preview may leave it out, and then nothing is looked up. offer_id: one of your choice.
    """

    host_id = serializers.UUIDField(required=False)
    offer_id = serializers.UUIDField(required=False)
    gpu_uuids = serializers.ListField(child=TextField(), max_length=256)
    windows = serializers.ListField(child=WindowBody(), required=False, max_length=1000)
    weekly = WeeklyBody(required=False, allow_null=True)
    floor = AmountField()
    currency = TextField(required=False)
    lease_min_seconds = CountField(required=False)
    cleaning_seconds = CountField(required=False)
    notice_seconds = CountField(required=False)
    grace_seconds = CountField(required=False)
    reclaim_fee_ppm = CountField(required=False)
    reclaim_steps = serializers.ListField(child=ReclaimStepBody(), required=False, max_length=100)
    workload_kinds = serializers.ListField(child=TextField(), required=False, max_length=100)
    isolation = serializers.ChoiceField(choices=get_args(Isolation), required=False)
    shares = SharesBody(required=False, allow_null=True)
    by_demand = ByDemandBody(required=False, allow_null=True)
    labels = LabelsField(required=False)
    reserved_for = serializers.UUIDField(required=False, allow_null=True)


class PublishOffer(OfferBody):
    """The terms of an offer and the host of its GPUs. offer_id: one of your choice, if you like."""

    host_id = serializers.UUIDField()


class MakeAgentToken(Body):
    """A token for the agent of a host. expires_at: 90 days from now, if left out."""

    title = TextField()
    expires_at = MomentField(required=False)


class AgentTokenMade(serializers.Serializer[Any]):
    """A token's secret, shown this once."""

    id = serializers.UUIDField()
    token = serializers.CharField()
    position = serializers.IntegerField()


class EnrolmentCodeMade(serializers.Serializer[Any]):
    """A code by which the agent of a host gets its token: shown this once, and works once."""

    code = serializers.CharField()
    expires_at = MomentField()
    position = serializers.IntegerField()


class Written(serializers.Serializer[Any]):
    """What was written, and the position to read it at."""

    id = serializers.UUIDField()
    position = serializers.IntegerField()


class WindowShape(serializers.Serializer[Any]):
    """A window, half open."""

    starts_at = MomentField()
    ends_at = MomentField()


class WeeklyShape(serializers.Serializer[Any]):
    """A weekly rule."""

    zone = serializers.CharField()
    days = serializers.ListField(child=serializers.IntegerField())
    since = WallTimeField()
    until = WallTimeField()
    first = DayField()
    last = DayField(allow_null=True)


class GpuShape(serializers.Serializer[Any]):
    """A GPU as its agent reported it, or a share of one: `card_uuid` is then the GPU."""

    uuid = serializers.CharField()
    model = serializers.CharField()
    memory_mib = serializers.IntegerField()
    compute_capability = serializers.CharField()
    driver = serializers.CharField()
    nvlink_group = serializers.CharField(allow_null=True)
    mig_enabled = serializers.BooleanField()
    mig_profiles = serializers.ListField(child=serializers.CharField())
    card_uuid = serializers.CharField(allow_null=True, default=None)
    compute_percent = serializers.IntegerField(allow_null=True, default=None)


class ReclaimStepShape(serializers.Serializer[Any]):
    """What a reclaim pays that comes with at least this much notice."""

    notice_seconds = serializers.IntegerField()
    fee_ppm = serializers.IntegerField()


class HostShape(serializers.Serializer[Any]):
    """A host as its owner sees it."""

    id = serializers.UUIDField(source="host_id")
    title = serializers.CharField()
    market = serializers.CharField()
    region = serializers.CharField()
    labels = serializers.DictField(child=serializers.CharField())
    source = serializers.CharField()  # type: ignore[assignment]  # a field of that name
    state = serializers.CharField()
    gpus = GpuShape(many=True)
    sandbox = serializers.CharField()
    """How far its agent keeps leased work apart: `none`, `account`, `process`, `full`; or empty."""
    enforces = serializers.DictField(child=serializers.CharField(allow_blank=True))
    """What is kept from work, and what keeps it; empty where nothing does."""
    abilities = serializers.ListField(child=serializers.CharField())
    """What work may ask of it: `files`, `logs`, `secrets`, `podman`, `access`."""
    at_host = serializers.CharField()
    """What its owner lets be done, by the switch at the host: `all`, `paused`, `draining` or
    `released`."""
    on_market = serializers.CharField()
    """The same by the switch on the market; the stricter one holds."""
    registered_at = MomentField()
    reported_at = MomentField(allow_null=True)


class OfferShape(serializers.Serializer[Any]):
    """An offer as its owner sees it."""

    id = serializers.UUIDField(source="offer_id")
    host_id = serializers.UUIDField()
    market = serializers.CharField()
    region = serializers.CharField()
    source = serializers.CharField()  # type: ignore[assignment]  # a field of that name
    state = serializers.CharField()
    gpus = GpuShape(many=True)
    windows = serializers.SerializerMethodField()
    weekly = WeeklyShape(allow_null=True)
    floor = AmountField(source="floor_nanos_per_gpu_hour")
    currency = serializers.CharField()
    lease_min_seconds = serializers.IntegerField()
    cleaning_seconds = serializers.IntegerField()
    notice_seconds = serializers.IntegerField()
    grace_seconds = serializers.IntegerField()
    reclaim_fee_ppm = serializers.IntegerField()
    reclaim_steps = ReclaimStepShape(many=True)
    sla = SlaShape(allow_null=True)
    workload_kinds = serializers.ListField(child=serializers.CharField())
    isolation = serializers.CharField()
    shares = DivisionShape(source="division", allow_null=True)
    by_demand = ByDemandShape(allow_null=True)
    chosen = ChosenShape(allow_null=True)
    succeeded_by = serializers.UUIDField(allow_null=True)
    labels = serializers.DictField(child=serializers.CharField())
    reserved_for = serializers.UUIDField(allow_null=True)
    starts_at = MomentField()
    ends_at = MomentField(allow_null=True)
    published_at = MomentField()
    ended_at = MomentField(allow_null=True)
    actions = serializers.ListField(child=serializers.CharField(), default=list)
    """What may be done with it now by who asks: `pause` or `resume`, `reprice`, `terms`,
    `withdraw`; or nothing."""

    @extend_schema_field(WindowShape(many=True))
    def get_windows(self, row: Any) -> list[dict[str, str]]:
        """Return the one-off windows as they are kept: RFC 3339 in UTC."""
        return list(row.windows)


class ListedShape(serializers.Serializer[Any]):
    """An offer as anybody sees it."""

    id = serializers.UUIDField(source="offer_id")
    market = serializers.CharField()
    region = serializers.CharField()
    source = serializers.CharField()  # type: ignore[assignment]  # a field of that name
    model = serializers.CharField()
    gpus = serializers.IntegerField()
    memory_mib = serializers.IntegerField()
    nvlink = serializers.BooleanField()
    mig_profiles = serializers.ListField(child=serializers.CharField())
    isolation = serializers.CharField()
    sandbox = serializers.CharField()
    """How far its host keeps leased work apart; empty: its agent does not say."""
    abilities = serializers.ListField(child=serializers.CharField())
    """What work may ask of its host."""
    compute_percent = serializers.IntegerField(allow_null=True)
    floor = AmountField(source="floor.nanos_per_gpu_hour")
    currency = serializers.CharField(source="floor.currency")
    lease_min_seconds = serializers.IntegerField()
    notice_seconds = serializers.IntegerField()
    grace_seconds = serializers.IntegerField()
    reclaim_fee_ppm = serializers.IntegerField()
    reclaim_steps = ReclaimStepShape(many=True)
    sla = SlaShape(allow_null=True)
    workload_kinds = serializers.ListField(child=serializers.CharField())
    labels = serializers.SerializerMethodField()
    window = WindowShape()

    def get_labels(self, listed: Listed) -> dict[str, str]:
        """Return the labels by name."""
        return dict(listed.labels)


class SupplyShape(serializers.Serializer[Any]):
    """How many GPUs of a model are listed."""

    model = serializers.CharField()
    gpus_now = serializers.IntegerField()
    gpus_day = serializers.IntegerField()
    gpus_week = serializers.IntegerField()
    floor_min = AmountField(source="floor_min.nanos_per_gpu_hour")
    currency = serializers.CharField(source="floor_min.currency")


class FillShape(serializers.Serializer[Any]):
    """Which share of listed time is sold, in millionths."""

    low_ppm = serializers.IntegerField()
    high_ppm = serializers.IntegerField()
    basis = serializers.CharField()
    days = serializers.IntegerField()


@extend_schema_field({"type": "string"})
class MoneyAmountField(AmountField):
    """The amount of a `Money`."""

    def to_representation(self, value: Money | int) -> str:
        """Write its nano-units as a decimal string."""
        return super().to_representation(value.nanos if isinstance(value, Money) else value)


class EarningsShape(serializers.Serializer[Any]):
    """What an offer may bring in after the fee, at the floor."""

    listed_gpu_ms = serializers.IntegerField(source="earnings.listed_ms")
    low = MoneyAmountField(source="earnings.low")
    high = MoneyAmountField(source="earnings.high")
    full = MoneyAmountField(source="earnings.full")
    currency = serializers.CharField(source="earnings.full.currency")
    fill = FillShape(source="earnings.fill")
    windows = WindowShape(many=True)


def host_fields(asked: Mapping[str, Any], *, markets: Sequence[Market]) -> dict[str, Any]:
    """Turn a checked RegisterHost into what the command takes.

    A host that names no market goes to that of its region.

    Raises: MarketUnknown.
    """
    name = asked.get("market")
    by_region = market_of_region(markets, asked["region"])
    return {
        "title": asked["title"],
        "market": by_region if name is None else named(markets, name).name,
        "region": asked["region"],
        "labels": tuple(asked.get("labels", {}).items()),
    }


def terms_of(asked: Mapping[str, Any]) -> OfferTerms:
    """Turn checked terms into those of the domain; what is left out keeps its default.

    Raises: WindowEmpty, WindowTooFine.
    """
    weekly, reserved_for = asked.get("weekly"), asked.get("reserved_for")
    shares, by_demand = asked.get("shares"), asked.get("by_demand")
    currency = asked.get("currency", settings.ENV.currency)
    said = (
        "lease_min_seconds",
        "cleaning_seconds",
        "notice_seconds",
        "grace_seconds",
        "reclaim_fee_ppm",
        "isolation",
    )
    return OfferTerms(
        gpu_uuids=tuple(asked["gpu_uuids"]),
        windows=tuple(
            read_window(each["starts_at"], each["ends_at"]) for each in asked.get("windows", ())
        ),
        weekly=None if weekly is None else _weekly_of(weekly),
        division=None if shares is None else division_of(shares),
        by_demand=None if by_demand is None else by_demand_of(by_demand, currency),
        floor=Rate(asked["floor"], currency),
        workload_kinds=tuple(asked.get("workload_kinds", ())),
        labels=tuple(asked.get("labels", {}).items()),
        reclaim_steps=tuple(ReclaimStep(**step) for step in asked.get("reclaim_steps", ())),
        reserved_for=None if reserved_for is None else BidId(reserved_for),
        **{name: asked[name] for name in said if name in asked},
    )


def _weekly_of(asked: Mapping[str, Any]) -> WeeklyRule:
    return WeeklyRule(
        zone=asked["zone"],
        days=tuple(asked["days"]),
        since=asked["since"],
        until=asked["until"],
        first=asked["first"],
        last=asked.get("last"),
    )
