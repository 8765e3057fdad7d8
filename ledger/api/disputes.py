"""Disputes over HTTP: contesting a charge, and deciding."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ledger import disputing
from ledger.domain.dispute_events import Outcome
from ledger.queries import disputes as queries
from ledger.rest import AmountField, Body, Endpoint, MomentField, TextField
from ledger.rest.schema import WrittenAt

DISPUTES = ("ledger.disputes", "ledger.money")


class AskDispute(Body):
    """Which charge is contested, what of it is not, and why.

    used_millis: GPU-milliseconds that were used as who paid sees it: less than was charged.
    """

    entry_id = serializers.UUIDField()
    used_millis = serializers.IntegerField(min_value=0, max_value=10**15)
    reason = TextField(max_length=200)


class AskDecision(Body):
    """Why a dispute is decided so, for both sides."""

    reason = TextField(max_length=200)


class DisputeShape(serializers.Serializer[Any]):
    """A dispute. state: open; upheld: the contested amount went back; dismissed: it stands.

    contested: what is set aside, as decimal text in `currency`, until it is decided, or until
    `decide_by`, when what was metered stands. decided_by is null where nobody decided in time.
    """

    dispute_id = serializers.UUIDField()
    entry_id = serializers.UUIDField()
    lease_id = serializers.UUIDField()
    starts_at = MomentField()
    ends_at = MomentField()
    charged_millis = serializers.IntegerField()
    used_millis = serializers.IntegerField()
    contested = AmountField(source="contested_nanos")
    currency = serializers.CharField()
    reason = serializers.CharField()
    state = serializers.CharField()
    opened_at = MomentField()
    decide_by = MomentField()
    decision = serializers.CharField(allow_blank=True)
    decided_at = MomentField(allow_null=True)


class DisputeMade(WrittenAt):
    """A dispute that was opened, and up to where the log tells of it."""

    dispute_id = serializers.UUIDField()


class Disputes(Endpoint):
    """Disputes about charged use."""

    scopes = {"GET": "billing:read", "POST": "billing:write"}
    reads = DISPUTES

    @extend_schema(responses=DisputeShape(many=True))
    def get(self, request: Request) -> Response:
        """List those of one's organisation; the platform's finance people see all."""
        return self.page(queries.disputes(self.actor), DisputeShape, ("dispute_id",))

    @extend_schema(request=AskDispute, responses={201: DisputeMade})
    def post(self, request: Request) -> Response:
        """Contest a charge: what owners got of the contested amount is not paid out meanwhile."""
        asked = self.body(AskDispute)
        dispute_id, position = disputing.contest(
            self.store(),
            self.actor,
            asked["entry_id"],
            used_millis=asked["used_millis"],
            reason=asked["reason"],
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"dispute_id": str(dispute_id), "position": position}, status=201)


class DisputeDetail(Endpoint):
    """One dispute."""

    scopes = {"GET": "billing:read"}
    reads = DISPUTES

    @extend_schema(responses=DisputeShape)
    def get(self, request: Request, dispute_id: UUID) -> Response:
        """Show what is contested and how it was decided."""
        return Response(DisputeShape(queries.dispute(self.actor, dispute_id)).data)


class Upheld(Endpoint):
    """A dispute that is upheld."""

    scopes = {"POST": "billing:write"}
    reads = DISPUTES

    @extend_schema(request=AskDecision, responses=WrittenAt)
    def post(self, request: Request, dispute_id: UUID) -> Response:
        """Give the contested amount back to who paid it."""
        return _decided(self, dispute_id, "upheld")


class Dismissed(Endpoint):
    """A dispute that is dismissed."""

    scopes = {"POST": "billing:write"}
    reads = DISPUTES

    @extend_schema(request=AskDecision, responses=WrittenAt)
    def post(self, request: Request, dispute_id: UUID) -> Response:
        """Let what was metered stand: what was set aside is free again."""
        return _decided(self, dispute_id, "dismissed")


def _decided(asked: Endpoint, dispute_id: UUID, outcome: Outcome) -> Response:
    reason = asked.body(AskDecision)["reason"]
    position = disputing.decide(
        asked.store(),
        asked.actor,
        dispute_id,
        outcome,
        reason=reason,
        by=asked.meta(),
        now=timezone.now(),
    )
    return Response({"position": position})
