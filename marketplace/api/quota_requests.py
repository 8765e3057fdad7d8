"""JSON over HTTP for requests for quota: asked with a reason, approved with a token, taken up."""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.domain.ids import SubscriberId, TenantId
from ledger.domain.parties import SubscriberUnknown
from ledger.queries.parties import unit_tenants
from ledger.rest import CountField, MomentField, TextField
from marketplace.api.market import MARKET, market_named, market_of
from marketplace.api.quota_bodies import OfMarket
from marketplace.api.quotas import PolicyWritten, Setting
from marketplace.commands.quotas import approve_request, decline_request, take_up
from marketplace.domain.facts.policy_events import QuotaRequested
from marketplace.domain.governance.authority import WHY_CHARS_MAX
from marketplace.queries.quota_log import quota_request, quota_requests
from marketplace.queries.quotas import token_of

NEWEST_FIRST = ("-asked_at", "request_id")


class AskQuota(OfMarket):
    """Another nominal quota between two moments. expires_at: when it can no longer be approved."""

    subscriber_id = serializers.UUIDField()
    gpu_class = TextField()
    nominal = CountField()
    starts_at = MomentField()
    ends_at = MomentField()
    why = TextField(max_length=WHY_CHARS_MAX)
    expires_at = MomentField(required=False)


class DeclineBody(OfMarket):
    """Why a request is declined."""

    why = TextField(max_length=WHY_CHARS_MAX)


class TakeUpBody(OfMarket):
    """The token that the approval gave."""

    token_id = serializers.UUIDField()


class RequestShape(serializers.Serializer[Any]):
    """A request for quota and what became of it."""

    id = serializers.UUIDField(source="request_id")
    subscriber_id = serializers.UUIDField()
    user_id = serializers.UUIDField(allow_null=True)
    gpu_class = serializers.CharField()
    nominal = serializers.IntegerField()
    starts_at = MomentField()
    ends_at = MomentField()
    why = serializers.CharField()
    state = serializers.CharField()
    answer = serializers.CharField()
    expires_at = MomentField()
    token_expires_at = MomentField(allow_null=True)
    asked_at = MomentField()
    decided_at = MomentField(allow_null=True)


class RequestWritten(serializers.Serializer[Any]):
    """The request's id, and the position at which it is written."""

    id = serializers.UUIDField()
    position = serializers.IntegerField()


class Approved(serializers.Serializer[Any]):
    """The token that takes the quota up, once, until it expires: hand it to who asked."""

    token_id = serializers.UUIDField()
    expires_at = MomentField()
    position = serializers.IntegerField()


class QuotaRequests(Setting):
    """Requests for quota."""

    scopes: ClassVar = {"GET": "market:read", "POST": "bids:write"}
    reads: ClassVar[tuple[str, ...]] = ("marketplace.quotas", "ledger.parties")

    @extend_schema(responses=RequestShape(many=True), parameters=[MARKET])
    def get(self, request: Request) -> Response:
        """List your organisation's requests, newest first; a consumer those of the own unit."""
        rows = quota_requests(self.actor, market_of(request))
        return self.page(rows, RequestShape, NEWEST_FIRST)

    @extend_schema(request=AskQuota, responses={201: RequestWritten})
    def post(self, request: Request) -> Response:
        """Ask for another nominal quota for a time."""
        asked, unit_tenant = self.body(AskQuota), unit_tenants(self.actor)
        unit, mine = asked["subscriber_id"], self.actor.subscriber_id
        bound = "operator" not in self.actor.roles
        if unit not in unit_tenant or (bound and unit != mine):
            raise SubscriberUnknown(subscriber_id=unit)
        answer = self.set(
            QuotaRequested(
                market=market_named(asked.get("market")),
                request_id=self.command_id,
                tenant_id=TenantId(unit_tenant[unit]),
                subscriber_id=SubscriberId(unit),
                user_id=self.actor.user_id,
                gpu_class=asked["gpu_class"],
                nominal=asked["nominal"],
                starts_at=asked["starts_at"],
                ends_at=asked["ends_at"],
                why=asked["why"],
                expires_at=asked.get("expires_at", asked["ends_at"]),
                at=timezone.now(),
            )
        )
        answer.data["id"] = self.command_id
        return answer


class OneQuotaRequest(Setting):
    """One request for quota."""

    scopes: ClassVar = {"GET": "market:read"}
    reads: ClassVar[tuple[str, ...]] = ("marketplace.quotas", "ledger.parties")

    @extend_schema(responses=RequestShape, parameters=[MARKET])
    def get(self, request: Request, request_id: UUID) -> Response:
        """Show it."""
        row = quota_request(self.actor, market_of(request), request_id)
        return Response(RequestShape(row).data)


class ApproveQuotaRequest(Setting):
    """The approval of a request."""

    scopes: ClassVar = {"POST": "admin"}
    secret_fields: ClassVar = frozenset({"token_id"})

    @extend_schema(request=OfMarket, responses={201: Approved})
    def post(self, request: Request, request_id: UUID) -> Response:
        """Approve it; the answer holds the token, once."""
        asked = self.body(OfMarket) if request.data else {}
        market, store = market_named(asked.get("market")), self.store()
        position = approve_request(
            store,
            market=market,
            request_id=request_id,
            setter=self.setter,
            by=self.meta(),
            now=timezone.now(),
        )
        token_id, expires_at = token_of(store, market, request_id)
        answer = {"token_id": token_id, "expires_at": expires_at, "position": position}
        return Response(Approved(answer).data, status=201)


class DeclineQuotaRequest(Setting):
    """The refusal of a request."""

    scopes: ClassVar = {"POST": "admin"}

    @extend_schema(request=DeclineBody, responses={201: PolicyWritten})
    def post(self, request: Request, request_id: UUID) -> Response:
        """Decline it, with the reason."""
        asked = self.body(DeclineBody)
        position = decline_request(
            self.store(),
            market=market_named(asked.get("market")),
            request_id=request_id,
            why=asked["why"],
            setter=self.setter,
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"position": position}, status=201)


class TakeUpQuotaRequest(Setting):
    """The taking up of what was approved."""

    scopes: ClassVar = {"POST": "bids:write"}

    @extend_schema(request=TakeUpBody, responses={201: PolicyWritten})
    def post(self, request: Request, request_id: UUID) -> Response:
        """Take the quota up by its token, once and before it expires."""
        asked = self.body(TakeUpBody)
        position = take_up(
            self.store(),
            market=market_named(asked.get("market")),
            request_id=request_id,
            token_id=asked["token_id"],
            setter=self.setter,
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"position": position}, status=201)
