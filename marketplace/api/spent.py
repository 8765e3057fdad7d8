"""JSON over HTTP for what was spent, by whom and on what, and what pooling saved."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, ClassVar

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.domain.refusal import Invalid
from ledger.rest import AmountField, Endpoint
from marketplace.queries import spending as queries
from marketplace.queries.naming import names_of

READS = ("marketplace.spending",)
DAYS_MAX = 400
DAYS_USUAL = 30
DAY = {"type": "string", "format": "date"}
SINCE = OpenApiParameter("since", DAY, description="First day in UTC; thirty days ago, else.")
UNTIL = OpenApiParameter("until", DAY, description="The day after the last one; tomorrow, else.")
BY = OpenApiParameter("by", enum=list(queries.BYS), description="What is told apart; unit, else.")
ONLY = [
    OpenApiParameter(name, description=f"Only that {name}.")
    for name in queries.BYS
    if name != "tenant"
]


class DaysUnreadable(Invalid):
    """Days are written as 2026-11-30, the last behind the first, and no more than 400 of them."""


class SpentShape(serializers.Serializer[Any]):
    """What one part came to. key: its id, label or model; empty: of none. title: the name of an id,
    else the key. storage: what of it was for volumes."""

    key = serializers.CharField()
    title = serializers.CharField()
    currency = serializers.CharField()
    spent = serializers.CharField()
    storage = serializers.CharField()
    gpu_milliseconds = serializers.IntegerField()
    leases = serializers.IntegerField()


class SavedShape(serializers.Serializer[Any]):
    """What GPUs of a model came to, and what the same hours would have cost elsewhere, less that.

    against_cloud, against_dedicated: below zero where it cost more; null: no figure is set.
    """

    gpu = serializers.CharField()
    currency = serializers.CharField()
    gpu_milliseconds = serializers.IntegerField()
    paid = serializers.CharField()
    against_cloud = serializers.CharField(allow_null=True)
    against_dedicated = serializers.CharField(allow_null=True)


class Spending(Endpoint):
    """What leases and volumes were charged, by the day of their use."""

    scopes: ClassVar = {"GET": "market:read"}
    reads = READS

    @extend_schema(parameters=[SINCE, UNTIL, BY, *ONLY], responses=SpentShape(many=True))
    def get(self, request: Request) -> Response:
        """List it by unit, person, project, kind, gpu or lease, the most first."""
        since, until = _days(request.query_params, timezone.now())
        only: dict[str, str] = {
            name: request.query_params[name]
            for name in queries.BYS
            if name != "tenant" and name in request.query_params
        }
        rows = queries.chosen(queries.spending(self.actor, since, until), only)
        by = request.query_params.get("by", "unit")
        found = queries.spent_by(rows, by)
        named = names_of(self.actor, by, (each.key for each in found))
        return self.listed([_spent(each, named) for each in found], ("key", "currency"))


class PoolingSaved(Endpoint):
    """What pooling saved against a cloud's list price and against GPUs of one's own."""

    scopes: ClassVar = {"GET": "market:read"}
    reads = READS

    @extend_schema(parameters=[SINCE, UNTIL], responses=SavedShape(many=True))
    def get(self, request: Request) -> Response:
        """List it by GPU model; chapter *Budgets and spending* has the formula."""
        since, until = _days(request.query_params, timezone.now())
        found = queries.saved_by_gpu(queries.spending(self.actor, since, until))
        return self.listed([_saved(each) for each in found], ("gpu", "currency"))


def _days(asked: Mapping[str, str], now: datetime) -> tuple[date, date]:
    tomorrow = now.astimezone(UTC).date() + timedelta(days=1)
    try:
        until = date.fromisoformat(asked["until"]) if "until" in asked else tomorrow
        since = until - timedelta(days=DAYS_USUAL)
        if "since" in asked:
            since = date.fromisoformat(asked["since"])
    except (ValueError, OverflowError):
        raise DaysUnreadable() from None
    if not since < until or (until - since).days > DAYS_MAX:
        raise DaysUnreadable()
    return since, until


def _spent(each: queries.Spent, named: Mapping[str, str]) -> dict[str, Any]:
    return {
        "key": each.key,
        "title": named.get(each.key, each.key),
        "currency": each.currency,
        "spent": _written(each.spent_nanos),
        "storage": _written(each.storage_nanos),
        "gpu_milliseconds": each.gpu_millis,
        "leases": each.leases,
    }


def _saved(each: queries.Saved) -> dict[str, Any]:
    against = {"against_cloud": each.cloud_nanos, "against_dedicated": each.dedicated_nanos}
    return {
        "gpu": each.spent.key,
        "currency": each.spent.currency,
        "gpu_milliseconds": each.spent.gpu_millis,
        "paid": _written(each.spent.spent_nanos),
        **{name: None if nanos is None else _written(nanos) for name, nanos in against.items()},
    }


def _written(nanos: int) -> str:
    return AmountField().to_representation(nanos)
