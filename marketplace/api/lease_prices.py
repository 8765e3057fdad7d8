"""JSON over HTTP for the price of a lease: proposed by one side, agreed by the other."""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID, uuid5

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.domain.ids import LeaseId
from ledger.domain.money import Rate
from ledger.rest import AmountField, Body, Endpoint, MomentField, TextField
from marketplace.commands.price_changes import agree_price, decline_price, propose_price
from marketplace.domain.leases.price_changes import PriceChanges, Wish
from marketplace.models.prices import PriceProposalRow
from marketplace.queries import leases, prices


class LeasePriceShape(serializers.Serializer[Any]):
    """A price that was proposed for a lease. state: open, agreed, declined, withdrawn, overtaken by
    another one, or lapsed without an answer. waits_for_you: your organisation is asked."""

    id = serializers.UUIDField(source="proposal_id")
    lease_id = serializers.UUIDField()
    proposed_by = serializers.UUIDField(source="tenant_id")
    parties = serializers.ListField(child=serializers.UUIDField(), source="of")
    agreed_by = serializers.ListField(child=serializers.UUIDField())
    before = AmountField(source="before_nanos")
    price = AmountField(source="price_nanos")
    currency = serializers.CharField()
    since = MomentField()
    answer_by = MomentField()
    why = serializers.CharField()
    state = serializers.CharField()
    declined_why = serializers.CharField()
    waits_for_you = serializers.BooleanField(default=False)
    proposed_at = MomentField()
    ended_at = MomentField(allow_null=True)


class AskLeasePrice(Body):
    """Another price per GPU-hour, from `since` on. answer_by: left out: a day, as far as there is
    one before."""

    price = AmountField()
    since = MomentField()
    answer_by = MomentField(required=False)
    why = TextField(required=False)


class DeclineLeasePrice(Body):
    """Why it is declined."""

    why = TextField(required=False)


class LeasePriceWritten(serializers.Serializer[Any]):
    """Which proposal was written, and the position to read it at."""

    id = serializers.UUIDField()
    position = serializers.IntegerField()


class LeasePrices(Endpoint):
    """The prices that were proposed for a lease."""

    scopes: ClassVar = {"GET": "leases:read", "POST": "leases:write"}
    reads: ClassVar = ("marketplace.leases", "marketplace.prices")

    @extend_schema(responses=LeasePriceShape(many=True))
    def get(self, request: Request, lease_id: UUID) -> Response:
        """List them, the newest first."""
        now = timezone.now()

        def show(row: PriceProposalRow) -> dict[str, Any]:
            return dict(LeasePriceShape(row).data) | {
                "state": row.state_at(now),
                "waits_for_you": row.waits_for(self.actor.tenant_id, now=now),
            }

        return self.page(prices.prices_of(self.actor, lease_id), show, prices.NEWEST_FIRST)

    @extend_schema(request=AskLeasePrice, responses={201: LeasePriceWritten})
    def post(self, request: Request, lease_id: UUID) -> Response:
        """Propose a price, as the consumer or an owner; it holds once all sides agreed."""
        asked = self.body(AskLeasePrice)
        tenant_id = prices.speaks_for(self.actor, lease_id)
        row, by = leases.lease(self.actor, lease_id), self.meta()
        proposal_id = uuid5(self.command_id, "price")
        position = propose_price(
            self.store(f"{PriceChanges.STREAM}-{lease_id}"),
            lease_id=LeaseId(lease_id),
            wish=Wish(
                proposal_id=proposal_id,
                tenant_id=tenant_id,
                user_id=self.actor.user_id,
                price=Rate(asked["price"], row.currency),
                since=asked["since"],
                answer_by=asked.get("answer_by"),
                why=asked.get("why", ""),
            ),
            by=by,
            now=timezone.now(),
        )
        return Response({"id": proposal_id, "position": position}, status=201)


class AgreeLeasePrice(Endpoint):
    """Consent to a price."""

    scopes: ClassVar = {"POST": "leases:write"}
    reads: ClassVar = ("marketplace.leases", "marketplace.prices")

    @extend_schema(request=None, responses=LeasePriceWritten)
    def post(self, request: Request, lease_id: UUID, proposal_id: UUID) -> Response:
        """Agree: what it costs at most is set aside, or nothing changes."""
        tenant_id = prices.speaks_for(self.actor, lease_id)
        position = agree_price(
            self.store(f"{PriceChanges.STREAM}-{lease_id}"),
            lease_id=LeaseId(lease_id),
            proposal_id=proposal_id,
            tenant_id=tenant_id,
            user_id=self.actor.user_id,
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"id": proposal_id, "position": position})


class DeclineLeasePriceView(Endpoint):
    """Refusal of a price; of one's own, its withdrawal."""

    scopes: ClassVar = {"POST": "leases:write"}
    reads: ClassVar = ("marketplace.leases", "marketplace.prices")

    @extend_schema(request=DeclineLeasePrice, responses=LeasePriceWritten)
    def post(self, request: Request, lease_id: UUID, proposal_id: UUID) -> Response:
        """Decline it, or withdraw it if you proposed it: the price stays."""
        tenant_id = prices.speaks_for(self.actor, lease_id)
        position = decline_price(
            self.store(f"{PriceChanges.STREAM}-{lease_id}"),
            lease_id=LeaseId(lease_id),
            proposal_id=proposal_id,
            tenant_id=tenant_id,
            user_id=self.actor.user_id,
            why=self.body(DeclineLeasePrice).get("why", ""),
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"id": proposal_id, "position": position})
