"""Statements over HTTP, and invoices issued for owners: issuing, reading, PDF."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpResponse
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ledger import stating
from ledger.api.invoice_shapes import PrintedPartyShape, TaxShape, taxes_shown
from ledger.api.invoices import PDF, DocumentFile, platform_person, sent
from ledger.commands import self_billing as commands
from ledger.domain.ids import TenantId
from ledger.domain.money import decimal_of
from ledger.domain.periods import read_period
from ledger.models import PaperRow, SelfBillingRow
from ledger.papers import file_of_paper
from ledger.queries import papers as found
from ledger.rest import AmountField, Body, Endpoint, MomentField, TextField
from ledger.rest.schema import WrittenAt

READS = ("ledger.invoices", "ledger.money")
PERIOD = OpenApiParameter("period", description="Only those of a month, such as 2026-11.")
KIND = OpenApiParameter("kind", enum=["statement", "self-billed"])


class StateMonth(Body):
    """Which closed month to issue the statements of."""

    period = TextField(max_length=7)


class AgreeToSelfBilling(Body):
    """agreed: false ends it. small_business: no VAT, by the scheme for small enterprises."""

    agreed = serializers.BooleanField()
    small_business = serializers.BooleanField(required=False)


class SelfBillingShape(serializers.Serializer[Any]):
    """Whether an owner agreed that the platform issues its invoices; ended_at: null: it holds."""

    tenant_id = serializers.UUIDField()
    small_business = serializers.BooleanField()
    wording = serializers.CharField()
    agreed_by = serializers.UUIDField()
    agreed_at = MomentField()
    ended_at = MomentField(allow_null=True)


class MonthStated(serializers.Serializer[Any]):
    """issued: how many statements. left: accounts that are still to be looked at: ask again."""

    issued = serializers.IntegerField()
    left = serializers.IntegerField()
    position = serializers.IntegerField()


class PaperLineShape(serializers.Serializer[Any]):
    """A line. gross, fee: of what an owner's GPUs earned. exact: of an invoice, before rounding."""

    title = serializers.CharField()
    kind = serializers.CharField(allow_blank=True)
    period = serializers.CharField(allow_blank=True)
    gross = AmountField()
    fee = AmountField()
    exact = AmountField()
    amount = AmountField()


class PaperShape(serializers.Serializer[Any]):
    """A statement, or an invoice for an owner. lines, taxes: of a single one alone.

    opening, held: of a statement. total: its closing; of an invoice with tax.
    """

    paper_id = serializers.UUIDField()
    number = serializers.CharField()
    kind = serializers.CharField()
    account_id = serializers.UUIDField()
    account_title = serializers.CharField(allow_blank=True)
    period = serializers.CharField()
    currency = serializers.CharField()
    issuer = PrintedPartyShape()
    party = PrintedPartyShape()
    opening = AmountField()
    tax = AmountField()
    total = AmountField()
    held = AmountField()
    payout_id = serializers.UUIDField(allow_null=True)
    replaces = serializers.CharField(allow_blank=True)
    issued_at = MomentField()
    sha256 = serializers.CharField(allow_blank=True)
    lines = PaperLineShape(many=True, required=False)
    taxes = TaxShape(many=True, required=False)


class Papers(Endpoint):
    """Statements of the actor's accounts, and invoices that the platform issued for it."""

    scopes = {"GET": "billing:read", "POST": "billing:write"}
    reads = READS

    @extend_schema(parameters=[PERIOD, KIND], responses=PaperShape(many=True))
    def get(self, request: Request) -> Response:
        """List them, those of the newest month first."""
        rows = found.papers(self.actor)
        if period := request.query_params.get("period"):
            rows = rows.filter(period=period)
        if kind := request.query_params.get("kind"):
            rows = rows.filter(kind=kind)
        return self.page(rows, paper_shown, found.NEWEST_PAPERS)

    @extend_schema(request=StateMonth, responses={201: MonthStated})
    def post(self, request: Request) -> Response:
        """Issue the statements of a closed month; those that stand already are left as they are."""
        asked, user_id = self.body(StateMonth), platform_person(self.actor)
        done = stating.state_month(
            self.store(),
            read_period(asked["period"]),
            user_id=user_id,
            by=self.meta(),
            now=timezone.now(),
        )
        said = {"issued": done.issued, "left": done.left, "position": done.position}
        return Response(said, status=201)


class PaperDetail(Endpoint):
    """One paper."""

    scopes = {"GET": "billing:read"}
    reads = READS

    @extend_schema(responses=PaperShape)
    def get(self, request: Request, paper_id: UUID) -> Response:
        """Show it with its lines."""
        row = found.paper(self.actor, paper_id)
        lines = [_line(line) for line in row.lines]
        return Response({**paper_shown(row), "lines": lines, "taxes": taxes_shown(row.taxes)})


class PaperFile(DocumentFile):
    """A paper as PDF."""

    scopes = {"GET": "billing:read"}
    reads = READS

    @extend_schema(responses=PDF)
    def get(self, request: Request, paper_id: UUID) -> HttpResponse:
        """Send it: the same bytes each time."""
        row = found.paper(self.actor, paper_id)
        return sent(file_of_paper(row), row.number)


class SelfBilling(Endpoint):
    """Whether the platform issues the actor's invoices for what its GPUs earn."""

    scopes = {"GET": "payouts:read", "PUT": "payouts:write"}
    reads = ("ledger.invoices",)

    @extend_schema(responses=SelfBillingShape(many=True))
    def get(self, request: Request) -> Response:
        """Show what was agreed; to the platform's finance of all owners."""
        return self.page(found.self_billing(self.actor), _agreement, ("tenant_id",))

    @extend_schema(request=AgreeToSelfBilling, responses=WrittenAt)
    def put(self, request: Request) -> Response:
        """Agree to it, or end it, for one's own organisation.

        The owner's billing details need legal name, address and country.
        """
        self.actor.need("owner", "finance", "operator")
        asked, tenant_id = self.body(AgreeToSelfBilling), TenantId(self.actor.tenant_id)
        said: dict[str, Any] = {
            "user_id": self.actor.need_person(),
            "by": self.meta(),
            "now": timezone.now(),
        }
        if not asked["agreed"]:
            position = commands.end_self_billing(self.store(), tenant_id, **said)
            return Response({"position": position})
        small = bool(asked.get("small_business"))
        position = commands.agree_to_self_billing(
            self.store(), tenant_id, small_business=small, **said
        )
        return Response({"position": position})


def _agreement(row: SelfBillingRow) -> dict[str, Any]:
    moment = MomentField()
    return {
        "tenant_id": row.pk,
        "small_business": row.small_business,
        "wording": row.wording,
        "agreed_by": row.agreed_by,
        "agreed_at": moment.to_representation(row.agreed_at),
        "ended_at": row.ended_at and moment.to_representation(row.ended_at),
    }


def paper_shown(row: PaperRow) -> dict[str, Any]:
    """Return a paper as answered, without its lines."""
    return {
        "paper_id": row.pk,
        "number": row.number,
        "kind": row.kind,
        "account_id": row.account_id,
        "account_title": row.account_title,
        "period": row.period,
        "currency": row.currency,
        "issuer": row.issuer,
        "party": row.party,
        "opening": decimal_of(row.opening_nanos),
        "tax": decimal_of(row.tax_nanos),
        "total": decimal_of(row.total_nanos),
        "held": decimal_of(row.held_nanos),
        "payout_id": row.payout_id,
        "replaces": row.replaces,
        "issued_at": MomentField().to_representation(row.issued_at),
        "sha256": row.sha256,
    }


def _line(line: dict[str, Any]) -> dict[str, Any]:
    return {
        "title": line["title"],
        "kind": line.get("kind") or line.get("category", ""),
        "period": line.get("period", ""),
        "gross": decimal_of(line.get("gross_nanos", 0)),
        "fee": decimal_of(line.get("fee_nanos", 0)),
        "exact": decimal_of(line.get("exact_nanos", line["nanos"])),
        "amount": decimal_of(line["nanos"]),
    }
