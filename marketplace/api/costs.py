"""Costs by anything over HTTP: what accounts were charged, told apart by one or two groupings."""

from __future__ import annotations

from typing import Any, ClassVar

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.queries.costs import COST_BYS
from ledger.rest import AmountField, Endpoint
from ledger.rest.months import FIRST, LAST, months_asked
from marketplace.queries.costs import LEASE_BYS, cost_by
from marketplace.queries.naming import names_of

BYS = (*COST_BYS, *LEASE_BYS)
BY = OpenApiParameter("by", enum=list(BYS), description="What is told apart; unit, else.")
THEN = OpenApiParameter("then", enum=list(BYS), description="What each part is told apart by.")
ONLY = [OpenApiParameter(name, description=f"Only that {name}.") for name in BYS]


class CostShape(serializers.Serializer[Any]):
    """What one part came to. key: its id or word; empty: of none. title: the name of an id.

    then_key, then_title: the same of the second grouping; empty without one. entries: of the
    journal; a lease on several offers counts with each of them.
    """

    key = serializers.CharField()
    title = serializers.CharField()
    then_key = serializers.CharField()
    then_title = serializers.CharField()
    currency = serializers.CharField()
    cost = AmountField()
    gpu_milliseconds = serializers.IntegerField()
    entries = serializers.IntegerField()


class Costs(Endpoint):
    """What accounts were charged in some months, by anything."""

    scopes: ClassVar = {"GET": "billing:read"}
    reads = ("ledger.money", "marketplace.leases", "marketplace.spending")

    @extend_schema(parameters=[FIRST, LAST, BY, THEN, *ONLY], responses=CostShape(many=True))
    def get(self, request: Request) -> Response:
        """List it by one grouping or two, the most first; narrowed by any of them."""
        query, (first, last) = request.query_params, months_asked(request)
        by, then = query.get("by", "unit"), query.get("then", "")
        groupings = [by, then] if then and then != by else [by]
        only: dict[str, str] = {name: query[name] for name in BYS if name in query}
        found = cost_by(self.actor, first, last, by=groupings, only=only)
        named = [
            names_of(self.actor, name, (each.keys[i] for each in found))
            for i, name in enumerate(groupings)
        ]
        shown = []
        for each in found:
            keys = [*each.keys, ""][:2]
            titles = [*(named[i].get(key, key) for i, key in enumerate(each.keys)), ""][:2]
            shown.append(
                {
                    "key": keys[0],
                    "title": titles[0],
                    "then_key": keys[1],
                    "then_title": titles[1],
                    "currency": each.currency,
                    "cost": AmountField().to_representation(each.nanos),
                    "gpu_milliseconds": each.gpu_millis,
                    "entries": each.entries,
                }
            )
        return self.listed(shown, ("key", "then_key", "currency"))
