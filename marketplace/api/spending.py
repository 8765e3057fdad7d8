"""JSON over HTTP for spending: what was spent by whom, budgets, and grants that raise them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.access import Actor
from ledger.domain.money import Money
from ledger.eventstore.port import Position
from ledger.rest import AmountField, Body, CountField, Endpoint, MomentField, TextField
from marketplace.commands import spending as commands
from marketplace.domain.spending.budget import PPM
from marketplace.domain.spending.budgets import (
    THRESHOLDS_MAX,
    TITLE_CHARS_MAX,
    WHY_CHARS_MAX,
    SpendingBudgetUnknown,
)
from marketplace.domain.spending.events import (
    SpendingBudgetSet,
    SpendingGrantAsked,
    Threshold,
)
from marketplace.models.spending import SpendingBudgetRow, SpendingGrantRow
from marketplace.queries import spending as queries

READS = ("marketplace.spending",)
PERCENT = PPM // 100
SCOPES = ["tenant", "unit", "person", "project", "kind"]


class ThresholdBody(Body):
    """What happens where a part of the limit is reached."""

    at_percent = CountField(value_min=1)
    action = serializers.ChoiceField(choices=["notify", "block", "pause"])


class SetSpendingBudget(Body):
    """A budget. subject: the id of a unit or person, a project, or a kind of work.

    unused_percent: the most of the amount that rolls over unused. zone: an IANA name, in which
    people are shown when a period begins; the periods are of UTC.
    """

    title = TextField(max_length=TITLE_CHARS_MAX)
    scope = serializers.ChoiceField(choices=SCOPES)
    subject = TextField(required=False, allow_blank=True, max_length=64)
    amount = AmountField()
    currency = TextField(max_length=3, required=False)
    period = serializers.ChoiceField(choices=["week", "month", "quarter", "year"])
    roll_over = serializers.ChoiceField(
        choices=["none", "unused", "overspent", "both"], default="none"
    )
    unused_percent = CountField(required=False)
    thresholds = serializers.ListField(child=ThresholdBody(), max_length=THRESHOLDS_MAX)
    zone = TextField(required=False, max_length=64)


class AskGrant(Body):
    """More for a while. starts_at: now, if left out; until: in the same period."""

    amount = AmountField()
    starts_at = MomentField(required=False)
    until = MomentField()
    why = TextField(max_length=WHY_CHARS_MAX)


class ThresholdShape(serializers.Serializer[Any]):
    """What happens where a part of the limit is reached."""

    at_percent = serializers.IntegerField()
    action = serializers.CharField()


class ForecastShape(serializers.Serializer[Any]):
    """What the period comes to: spent + max(run_rate, committed), and the range around it."""

    low = AmountField()
    expected = AmountField()
    high = AmountField()
    run_rate = AmountField()
    committed = AmountField()


class BudgetShape(serializers.Serializer[Any]):
    """A budget and how it stands. limit = amount + carried + granted; used = spent + held."""

    id = serializers.UUIDField()
    title = serializers.CharField()
    scope = serializers.CharField()
    subject = serializers.CharField()
    amount = serializers.CharField()
    currency = serializers.CharField()
    period = serializers.CharField()
    roll_over = serializers.CharField()
    unused_percent = serializers.IntegerField()
    thresholds = ThresholdShape(many=True)
    zone = serializers.CharField()
    period_starts_at = MomentField()
    period_ends_at = MomentField()
    carried = serializers.CharField()
    granted = serializers.CharField()
    limit = serializers.CharField()
    spent = serializers.CharField()
    held = serializers.CharField()
    left = serializers.CharField()
    blocks_at = serializers.CharField(allow_null=True)
    blocked = serializers.BooleanField()
    forecast = ForecastShape()


class GrantShape(serializers.ModelSerializer[SpendingGrantRow]):
    """A grant. state: asked (a second person decides), approved or declined."""

    id = serializers.UUIDField(source="grant_id")
    amount = AmountField(source="money_nanos")

    class Meta:
        model = SpendingGrantRow
        fields = (
            "id",
            "budget_id",
            "amount",
            "currency",
            "starts_at",
            "until",
            "why",
            "state",
            "asked_by",
            "asked_at",
            "decided_by",
            "decided_at",
        )


class SpendingWritten(serializers.Serializer[Any]):
    """Its id, and the position at which it is written."""

    id = serializers.UUIDField()
    position = serializers.IntegerField()


class _Setting(Endpoint):
    """What sets a budget."""

    scopes: ClassVar[Mapping[str, str]] = {}
    reads = READS

    def set(self, budget_id: UUID, *, changes: bool) -> Position:
        """Make it, or change one that is there."""
        asked = self.body(SetSpendingBudget)
        asked["subject"] = queries.subject_of(self.actor, asked["scope"], asked.get("subject", ""))
        terms = _terms(asked, self.actor, budget_id, timezone.now())
        return commands.set_spending_budget(
            self.store(), terms=terms, changes=changes, by=self.meta()
        )


class SpendingBudgets(_Setting):
    """The spending budgets of an organisation."""

    scopes: ClassVar = {"GET": "market:read", "POST": "billing:write"}

    @extend_schema(responses=BudgetShape(many=True))
    def get(self, request: Request) -> Response:
        """List those that concern you and how they stand; finance people see all of them."""
        rows = queries.spending_budgets(self.actor).order_by("title", "budget_id")
        found = queries.standings(rows, self.store(), now=timezone.now())
        return self.listed([_standing(each) for each in found], ("id",))

    @extend_schema(request=SetSpendingBudget, responses={201: SpendingWritten})
    def post(self, request: Request) -> Response:
        """Make one."""
        position = self.set(self.command_id, changes=False)
        return Response({"id": self.command_id, "position": position}, status=201)


class OneSpendingBudget(_Setting):
    """One spending budget."""

    scopes: ClassVar = {"GET": "market:read", "PUT": "billing:write", "DELETE": "billing:write"}

    @extend_schema(responses=BudgetShape)
    def get(self, request: Request, budget_id: UUID) -> Response:
        """Show how it stands."""
        row = named(queries.spending_budgets(self.actor), budget_id)
        found = queries.standings([row], self.store(), now=timezone.now())
        if not found:
            raise SpendingBudgetUnknown(budget_id=budget_id)
        return Response(_standing(found[0]))

    @extend_schema(request=SetSpendingBudget, responses={200: SpendingWritten})
    def put(self, request: Request, budget_id: UUID) -> Response:
        """Change it; what it counts and its currency stay."""
        named(queries.spending_budgets(self.actor), budget_id)
        return Response({"id": budget_id, "position": self.set(budget_id, changes=True)})

    @extend_schema(responses={200: SpendingWritten})
    def delete(self, request: Request, budget_id: UUID) -> Response:
        """End it."""
        position = commands.end_spending_budget(
            self.store(),
            tenant_id=self.actor.tenant_id,
            budget_id=budget_id,
            user_id=self.actor.user_id,
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"id": budget_id, "position": position})


class SpendingGrants(Endpoint):
    """Grants that raise a budget for a while."""

    scopes: ClassVar = {"GET": "billing:read", "POST": "billing:write"}
    reads = READS

    @extend_schema(responses=GrantShape(many=True))
    def get(self, request: Request, budget_id: UUID) -> Response:
        """List them, newest first."""
        named(queries.spending_budgets(self.actor), budget_id)
        rows = queries.grants_of(self.actor, [budget_id])
        return self.page(rows, GrantShape, ("-asked_at", "grant_id"))

    @extend_schema(request=AskGrant, responses={201: SpendingWritten})
    def post(self, request: Request, budget_id: UUID) -> Response:
        """Grant it; of more than a tenth of the amount a second person decides."""
        asked, now = self.body(AskGrant), timezone.now()
        budget = named(queries.spending_budgets(self.actor), budget_id)
        grant = SpendingGrantAsked(
            tenant_id=self.actor.tenant_id,
            budget_id=budget_id,
            grant_id=self.command_id,
            money=Money(asked["amount"], budget.currency),
            starts_at=asked.get("starts_at", now),
            until=asked["until"],
            why=asked["why"],
            alone=False,
            by=self.actor.need_person(),
            at=now,
        )
        position = commands.ask_spending_grant(self.store(), asked=grant, by=self.meta())
        return Response({"id": self.command_id, "position": position}, status=201)


class _Deciding(Endpoint):
    """What a second person says to a grant."""

    scopes: ClassVar[Mapping[str, str]] = {}

    def decide(self, budget_id: UUID, grant_id: UUID, *, approved: bool) -> Response:
        """Record it."""
        position = commands.decide_spending_grant(
            self.store(),
            tenant_id=self.actor.tenant_id,
            budget_id=budget_id,
            grant_id=grant_id,
            approved=approved,
            user_id=self.actor.need_person(),
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"id": grant_id, "position": position}, status=201)


class ApproveSpendingGrant(_Deciding):
    """The approval of a grant."""

    scopes: ClassVar = {"POST": "billing:write"}

    @extend_schema(request=None, responses={201: SpendingWritten})
    def post(self, request: Request, budget_id: UUID, grant_id: UUID) -> Response:
        """Approve it, as somebody else than who asked."""
        return self.decide(budget_id, grant_id, approved=True)


class DeclineSpendingGrant(_Deciding):
    """The refusal of a grant."""

    scopes: ClassVar = {"POST": "billing:write"}

    @extend_schema(request=None, responses={201: SpendingWritten})
    def post(self, request: Request, budget_id: UUID, grant_id: UUID) -> Response:
        """Decline it."""
        return self.decide(budget_id, grant_id, approved=False)


def named(rows: Any, budget_id: UUID) -> SpendingBudgetRow:
    """Return one of the budgets that the actor may see.

    Raises: SpendingBudgetUnknown.
    """
    found: SpendingBudgetRow | None = rows.filter(pk=budget_id).first()
    if found is None:
        raise SpendingBudgetUnknown(budget_id=budget_id)
    return found


def _terms(
    asked: Mapping[str, Any], actor: Actor, budget_id: UUID, now: datetime
) -> SpendingBudgetSet:
    return SpendingBudgetSet(
        tenant_id=actor.tenant_id,
        budget_id=budget_id,
        title=asked["title"],
        scope=asked["scope"],
        subject=asked["subject"],
        amount=Money(asked["amount"], asked.get("currency", "USD")),
        period=asked["period"],
        roll_over=asked["roll_over"],
        unused_ppm=asked.get("unused_percent", 0) * PERCENT,
        thresholds=tuple(
            Threshold(each["at_percent"] * PERCENT, each["action"]) for each in asked["thresholds"]
        ),
        zone=asked.get("zone", "UTC"),
        by=actor.user_id,
        at=now,
    )


def _written(nanos: int) -> str:
    return AmountField().to_representation(nanos)


def _standing(each: queries.Standing) -> dict[str, Any]:
    row, told = each.row, each.forecast
    blocks_at = None if each.blocks_at is None else _written(each.blocks_at)
    return {
        "id": row.budget_id,
        "title": row.title,
        "scope": row.scope,
        "subject": row.subject,
        "amount": _written(row.amount_nanos),
        "currency": row.currency,
        "period": row.period,
        "roll_over": row.roll_over,
        "unused_percent": row.unused_ppm // PERCENT,
        "thresholds": [
            {"at_percent": one["at_ppm"] // PERCENT, "action": one["action"]}
            for one in row.thresholds
        ],
        "zone": row.zone,
        "period_starts_at": MomentField().to_representation(each.period.starts_at),
        "period_ends_at": MomentField().to_representation(each.period.ends_at),
        "carried": _written(each.carried),
        "granted": _written(each.granted),
        "limit": _written(each.limit),
        "spent": _written(each.spent),
        "held": _written(each.held),
        "left": _written(each.left),
        "blocks_at": blocks_at,
        "blocked": each.blocked,
        "forecast": {
            name: _written(getattr(told, name))
            for name in ("low", "expected", "high", "run_rate", "committed")
        },
    }
