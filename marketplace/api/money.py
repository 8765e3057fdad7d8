"""Money of work over HTTP: how long an account lasts, and what waits for money."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.domain.accounts import AccountCannotPay
from ledger.domain.ids import AccountId
from ledger.rest import AmountField, Endpoint, MomentField
from marketplace.queries import money_waits
from marketplace.queries.depletion import forecast_of

WAITS_MAX = 1_000


class AccountForecastShape(serializers.Serializer[Any]):
    """How an account stands, and how long it lasts.

    there: what could be set aside when money last came in, or its limit was set. left: now; null:
    without limit. used_ppm: what is gone of that, in millionths. per_hour: what runs on it now
    costs, storage included. lasts_until: what goes on by itself is covered up to then, at the
    prices of now; null: for thirty days at least.
    """

    account_id = serializers.UUIDField()
    there = AmountField(source="there.nanos")
    left = AmountField(source="left.nanos", allow_null=True, default=None)
    used_ppm = serializers.IntegerField()
    per_hour = AmountField(source="per_hour.nanos")
    lasts_until = MomentField(allow_null=True)
    currency = serializers.CharField(source="there.currency")


class MoneyWaitShape(serializers.Serializer[Any]):
    """Work that goes on once its account covers it. bid_id: behind which it waits.

    lease_id: the bid's lease; null: it had none. account: its title.
    needs: what is set aside for what follows. missing: what has to come in for that. until: from
    when on nothing follows any more.
    budget: which budget of the organisation had no room for it, and opens_at: when its next period
    begins; empty and null: the account lacks the money.
    """

    bid_id = serializers.UUIDField(source="row.bid_id")
    chain_id = serializers.UUIDField(source="row.chain_id")
    lease_id = serializers.UUIDField(source="row.lease_id", allow_null=True)
    account_id = serializers.UUIDField(source="row.account_id")
    account = serializers.CharField()
    needs = AmountField(source="needs.nanos")
    missing = AmountField(source="missing.nanos")
    currency = serializers.CharField(source="row.currency")
    since = MomentField(source="row.since")
    until = MomentField(source="row.until")
    budget = serializers.CharField(source="row.budget")
    opens_at = MomentField(source="row.opens_at", allow_null=True)


class AccountForecast(Endpoint):
    """How long an account lasts."""

    scopes = {"GET": "billing:read"}
    reads = ("ledger.money", "marketplace.leases", "marketplace.bids")

    @extend_schema(responses=AccountForecastShape)
    def get(self, request: Request, account_id: UUID) -> Response:
        """Show what is left of an account, what runs on it, and how long it lasts."""
        found = forecast_of(self.actor, AccountId(account_id), now=timezone.now())
        if found is None:
            raise AccountCannotPay()
        return Response(AccountForecastShape(found).data)


class MoneyWaits(Endpoint):
    """Work that waits for money."""

    scopes = {"GET": "bids:read"}
    reads = ("marketplace.bids", "ledger.money")

    @extend_schema(responses=MoneyWaitShape(many=True))
    def get(self, request: Request) -> Response:
        """List work that waits for money, the first to wait first; a thousand at most."""
        found = money_waits.told(money_waits.waits(self.actor), limit=WAITS_MAX)
        return self.listed(MoneyWaitShape(found, many=True).data, ("since", "bid_id"))
