"""Who owes whom over HTTP: units on one side, whom their money went to on the other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.queries.matrix import Cell, between_organisations, owed
from ledger.queries.money import party_names
from ledger.rest import AmountField, Endpoint
from ledger.rest.months import FIRST, LAST, months_asked

READS = ("ledger.money",)


class OwedShape(serializers.Serializer[Any]):
    """What a unit came to owe an organisation. left = gross - against; below zero: the other way.

    unit_id: null: the organisation itself, or a unit of another one, which is its own affair.
    other_id: to whom; null: accounts that nobody opened yet. gross: charged; against: what the
    other came to owe the unit, by compensation and credits.
    """

    tenant_id = serializers.UUIDField()
    tenant = serializers.CharField()
    unit_id = serializers.UUIDField(allow_null=True)
    unit = serializers.CharField()
    other_id = serializers.UUIDField(allow_null=True)
    other = serializers.CharField()
    currency = serializers.CharField()
    gross = AmountField()
    against = AmountField()
    left = AmountField()


class NettedShape(serializers.Serializer[Any]):
    """What one organisation is to pay another once both sides are set off."""

    debtor_id = serializers.UUIDField()
    debtor = serializers.CharField()
    creditor_id = serializers.UUIDField()
    creditor = serializers.CharField()
    currency = serializers.CharField()
    amount = AmountField()


class OwedMatrix(Endpoint):
    """Who came to owe whom in some months."""

    scopes = {"GET": "billing:read"}
    reads = READS

    @extend_schema(parameters=[FIRST, LAST], responses=OwedShape(many=True))
    def get(self, request: Request) -> Response:
        """List it by unit and by whom its money went to; both sides, and what is left."""
        cells = owed(self.actor, *months_asked(request))
        names = _names(each for cell in cells for each in _parties(cell))
        shown = [_cell(each, names) for each in cells]
        return self.listed(shown, ("tenant_id", "unit_id", "other_id", "currency"))


class OwedNetted(Endpoint):
    """What is left to be paid between two organisations."""

    scopes = {"GET": "billing:read"}
    reads = READS

    @extend_schema(parameters=[FIRST, LAST], responses=NettedShape(many=True))
    def get(self, request: Request) -> Response:
        """List it, all units of an organisation together."""
        found = between_organisations(owed(self.actor, *months_asked(request)))
        names = _names(each for net in found for each in (net.debtor_id, net.creditor_id))
        shown = [
            {
                "debtor_id": each.debtor_id,
                "debtor": names.get(each.debtor_id, ""),
                "creditor_id": each.creditor_id,
                "creditor": names.get(each.creditor_id, ""),
                "currency": each.currency,
                "amount": _written(each.nanos),
            }
            for each in found
        ]
        return self.listed(shown, ("debtor_id", "creditor_id", "currency"))


def _parties(cell: Cell) -> Iterable[UUID | None]:
    return cell.tenant_id, cell.unit_id, cell.other_id


def _names(ids: Iterable[UUID | None]) -> dict[UUID | None, str]:
    found: dict[UUID | None, str] = {None: ""}
    for each, name in party_names({each for each in ids if each is not None}).items():
        found[each] = name
    return found


def _cell(each: Cell, names: dict[UUID | None, str]) -> dict[str, Any]:
    return {
        "tenant_id": each.tenant_id,
        "tenant": names.get(each.tenant_id, ""),
        "unit_id": each.unit_id,
        "unit": names.get(each.unit_id, ""),
        "other_id": each.other_id,
        "other": names.get(each.other_id, ""),
        "currency": each.currency,
        "gross": _written(each.gross_nanos),
        "against": _written(each.against_nanos),
        "left": _written(each.nanos),
    }


def _written(nanos: int) -> str:
    return AmountField().to_representation(nanos)
