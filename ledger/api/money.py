"""Money over HTTP: statements, balances, who spends and who owes, exports."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from ledger import exports, queries
from ledger.access import Actor
from ledger.api.money_shapes import (
    PAGE,
    ManifestShape,
    SpendShape,
    StatementShape,
    TrialBalanceShape,
)
from ledger.domain.ids import AccountId
from ledger.domain.periods import Period, read_period
from ledger.eventstore import default_store
from ledger.eventstore.port import Position
from ledger.models import DebtRow
from ledger.queries.money import Spend
from ledger.queries.statements import StatementLine
from ledger.rest import AmountField, Endpoint, MomentField, paginate
from ledger.rest.rendering import PlainJson

PERIOD = OpenApiParameter(
    "period",
    required=True,
    pattern=r"^2[01][0-9]{2}-(0[1-9]|1[0-2])$",
    description="A month in UTC, such as 2026-11.",
)
KIND = OpenApiParameter("kind", description="Only entries of that kind, such as usage.")
POSITION = OpenApiParameter(
    "position",
    {"type": "integer", "minimum": 0},
    description="Leave out what was recorded after it.",
)
SINCE = OpenApiParameter(
    "since",
    {"type": "integer", "minimum": 0},
    description="Say also what came since that position, such as that of an export sent before.",
)
FORMAT = OpenApiParameter("format", required=True, enum=sorted(exports.FORMATS))


class DebtShown(serializers.ModelSerializer[DebtRow]):
    """What one tenant owes another for a month; `creditor_id` null is the platform."""

    amount = AmountField(source="nanos")

    class Meta:
        model = DebtRow
        fields = ("period", "debtor_id", "creditor_id", "amount", "currency")


class Statement(Endpoint):
    """What happened to an account in a month."""

    scopes = {"GET": "billing:read"}
    reads = ("ledger.money",)

    @extend_schema(parameters=[PERIOD, KIND, *PAGE], responses=StatementShape)
    def get(self, request: Request, account_id: UUID) -> Response:
        """Show opening, closing, totals by kind, and one page of lines, newest first."""
        key, period = AccountId(account_id), _period(request)
        said = queries.statement(self.actor, key, period)
        kind = request.query_params.get("kind", "")
        lines = queries.statement_lines(self.actor, key, period, kind=kind)
        order = queries.NEWEST_FIRST
        page = paginate(lines, lambda line: line, order, query=request.query_params)
        told = queries.with_balances(self.actor, key, page["data"])
        return Response(
            {
                "account_id": account_id,
                "period": str(period),
                "currency": said.account.currency,
                "opening": _written(said.opening_nanos),
                "closing": _written(said.closing_nanos),
                "totals": {kind: _written(nanos) for kind, nanos in said.by_kind.items()},
                "lines": said.lines,
                "data": [_line(each) for each in told],
                "next": page["next"],
            }
        )


class TrialBalance(Endpoint):
    """Every account's total, summed from the journal's lines."""

    scopes = {"GET": "billing:read"}
    reads = ("ledger.money",)

    @extend_schema(responses=TrialBalanceShape)
    def get(self, request: Request) -> Response:
        """Show them; with `others` they sum to zero in every currency."""
        said = queries.trial_balance(self.actor)
        return Response(
            {
                "data": [
                    {
                        "account_id": row.pk,
                        "kind": row.kind,
                        "title": row.title,
                        "currency": row.currency,
                        "total": _written(nanos),
                    }
                    for row, nanos in said.totals
                ],
                "others": {name: _written(nanos) for name, nanos in said.others_nanos.items()},
            }
        )


class SpendByCostCentre(Endpoint):
    """What cost centres were charged in a month."""

    scopes = {"GET": "billing:read"}
    reads = ("ledger.money",)

    @extend_schema(parameters=[PERIOD], responses=SpendShape(many=True))
    def get(self, request: Request) -> Response:
        """Show them, the most first."""
        rows = queries.spend_by_cost_centre(self.actor, _period(request))
        key = ("tenant_id", "cost_centre", "currency")
        return self.listed([_spend(row) for row in rows], key)


class Debts(Endpoint):
    """Who owes whom for a month."""

    scopes = {"GET": "billing:read"}
    reads = ("ledger.money",)

    @extend_schema(parameters=[PERIOD], responses=DebtShown(many=True))
    def get(self, request: Request) -> Response:
        """List it, the most first."""
        return self.page(
            queries.debts(self.actor, _period(request)), DebtShown, ("-nanos", "debt_id")
        )


class _OfExport(Endpoint):
    """What is common to an export and its manifest: `?period=&format=&position=`."""

    scopes = {}

    def perform_content_negotiation(
        self, request: Request, force: bool = False
    ) -> tuple[BaseRenderer, str]:
        """Answer what `format` names: the framework would take it for its own parameter."""
        return PlainJson(), "application/json"

    def asked(self) -> tuple[str, Period, Position]:
        """Return format, period and position.

        Raises: ExportFormatUnknown, PeriodUnreadable, PositionAhead.
        """
        query = self.request.query_params
        name = query.get("format", "")
        exports.format_named(name)
        position = exports.position_asked(query.get("position"))
        return name, _period(self.request), position


class Exports(_OfExport):
    """A month as a file."""

    scopes = {"GET": "billing:read"}
    reads = ("ledger.money",)

    @extend_schema(
        parameters=[PERIOD, FORMAT, POSITION],
        responses={
            (200, media_type): OpenApiTypes.STR if "text" in media_type else OpenApiTypes.BINARY
            for media_type in sorted({each.media_type for each in exports.FORMATS.values()})
        },
    )
    def get(self, request: Request) -> StreamingHttpResponse:
        """Send it; the same parameters give the same bytes."""
        name, period, position = self.asked()
        kind = exports.format_named(name)
        file = f"offpeak-{name}-{period}-at-{position}.{kind.suffix}"
        return StreamingHttpResponse(
            exports.export(self.actor, name, period=period, position=position),
            content_type=kind.content_type,
            headers={
                "Content-Disposition": f'attachment; filename="{file}"',
                "X-Offpeak-Position": str(position),
            },
        )


class ExportManifest(_OfExport):
    """What an export holds."""

    scopes = {"GET": "billing:read"}
    reads = ("ledger.money",)

    @extend_schema(parameters=[PERIOD, FORMAT, POSITION, SINCE], responses=ManifestShape)
    def get(self, request: Request) -> Response:
        """Show position, rows, sums and sha256 to check a copy with; with `since`, what came."""
        name, period, position = self.asked()
        since = request.query_params.get("since")
        earlier = None if since is None else exports.position_asked(since)
        said = exports.with_head(
            exports.manifest(self.actor, name, period=period, position=position), default_store()
        )
        return Response(
            {
                "format": said.format,
                "version": said.version,
                "period": said.period,
                "position": said.position,
                "rows": said.rows,
                "sums": {name: _written(nanos) for name, nanos in said.sums_nanos.items()},
                "bytes": said.bytes,
                "sha256": said.sha256,
                "scope": said.scope,
                "head_hash": said.head_hash,
                "differs_from": None if earlier is None else _differs(self.actor, said, earlier),
            }
        )


def _differs(actor: Actor, said: exports.Manifest, since: Position) -> dict[str, Any]:
    found = exports.difference(actor, said, since=since)
    return {
        "position": found.position,
        "sha256": found.sha256,
        "rows": found.rows,
        "sums": {name: _written(nanos) for name, nanos in found.sums_nanos.items()},
        "entries": found.entries,
        "entries_count": found.entries_count,
    }


def _period(request: Request) -> Period:
    return read_period(request.query_params.get("period", ""))


def _written(nanos: int) -> str:
    return AmountField().to_representation(nanos)


def _line(line: StatementLine) -> dict[str, Any]:
    posting = line.posting
    return {
        "entry_id": posting.entry_id,
        "kind": posting.kind,
        "amount": _written(posting.nanos),
        "balance": _written(line.balance_nanos),
        "lease_id": posting.lease_id,
        "cost_centre": posting.cost_centre,
        "reference": posting.reference,
        "at": MomentField().to_representation(posting.at),
        "position": posting.position,
    }


def _spend(row: Spend) -> dict[str, Any]:
    return {
        "tenant_id": row.tenant_id,
        "cost_centre": row.cost_centre,
        "charged": _written(row.charged_nanos),
        "currency": row.currency,
        "gpu_millis": row.gpu_millis,
        "leases": row.leases,
    }
