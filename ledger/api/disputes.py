"""Disputes over HTTP: contesting a charge, saying something about it, and deciding."""

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
from ledger.domain.money import Money
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


class AskUpheld(AskDecision):
    """Why a dispute is upheld. given_back: a part of what is contested; without it, all of it."""

    given_back = AmountField(required=False, allow_null=True)


class AskStatement(Body):
    """What somebody who is part of a dispute has to say about it."""

    text = TextField(max_length=2_000)


class DisputeShape(serializers.Serializer[Any]):
    """A dispute. state: open; upheld: the contested amount went back; in-part: some; dismissed.

    contested: what is set aside, as decimal text in `currency`, until it is decided, or until
    `decide_by`, when what was metered stands. opened_by: null where two meters were compared.
    decided_by is null where nobody decided in time. given_back: what went back.
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
    opened_by = serializers.UUIDField(allow_null=True)
    opened_at = MomentField()
    decide_by = MomentField()
    decision = serializers.CharField(allow_blank=True)
    decided_by = serializers.UUIDField(allow_null=True)
    decided_at = MomentField(allow_null=True)
    given_back = AmountField(source="given_nanos")


class DisputeStatementShape(serializers.Serializer[Any]):
    """What somebody said about a dispute on behalf of an organisation."""

    number = serializers.IntegerField()
    tenant_id = serializers.UUIDField()
    said_by = serializers.UUIDField()
    text = serializers.CharField()
    at = MomentField()


class DisputeWhole(DisputeShape):
    """A dispute with what was said about it, the oldest first."""

    statements = DisputeStatementShape(many=True)


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

    @extend_schema(responses=DisputeWhole)
    def get(self, request: Request, dispute_id: UUID) -> Response:
        """Show what is contested, what was said about it, and how it was decided."""
        row = queries.dispute(self.actor, dispute_id)
        said = DisputeStatementShape(queries.statements_of(row), many=True).data
        return Response({**DisputeShape(row).data, "statements": said})


class DisputeStatements(Endpoint):
    """What is said about a dispute."""

    scopes = {"POST": "billing:write"}
    reads = DISPUTES

    @extend_schema(request=AskStatement, responses={201: WrittenAt})
    def post(self, request: Request, dispute_id: UUID) -> Response:
        """Put a statement on record; both sides and the platform see it."""
        position = disputing.say(
            self.store(),
            self.actor,
            dispute_id,
            self.body(AskStatement)["text"],
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"position": position}, status=201)


class Upheld(Endpoint):
    """A dispute that is upheld."""

    scopes = {"POST": "billing:write"}
    reads = DISPUTES

    @extend_schema(request=AskUpheld, responses=WrittenAt)
    def post(self, request: Request, dispute_id: UUID) -> Response:
        """Give the contested amount, or a part of it, back to who paid it."""
        asked = self.body(AskUpheld)
        nanos = asked.get("given_back")
        row = queries.dispute(self.actor, dispute_id)
        part = None if nanos is None else Money(nanos, row.currency)
        outcome: Outcome = "upheld" if part is None else "in-part"
        return _decided(self, dispute_id, outcome, asked["reason"], part)


class Dismissed(Endpoint):
    """A dispute that is dismissed."""

    scopes = {"POST": "billing:write"}
    reads = DISPUTES

    @extend_schema(request=AskDecision, responses=WrittenAt)
    def post(self, request: Request, dispute_id: UUID) -> Response:
        """Let what was metered stand: what was set aside is free again."""
        return _decided(self, dispute_id, "dismissed", self.body(AskDecision)["reason"])


def _decided(
    asked: Endpoint, dispute_id: UUID, outcome: Outcome, reason: str, part: Money | None = None
) -> Response:
    position = disputing.decide(
        asked.store(),
        asked.actor,
        dispute_id,
        outcome,
        reason=reason,
        by=asked.meta(),
        now=timezone.now(),
        given_back=part,
    )
    return Response({"position": position})
