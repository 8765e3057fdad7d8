"""Plans by which exports are brought to finance by themselves, over HTTP."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ledger import closing, exports
from ledger.commands.export_plans import end_export_plan, plan_exports
from ledger.domain.export_plans import FOLDER_LENGTH_MAX
from ledger.models import ExportPlanRow
from ledger.queries.exports import export_plans
from ledger.rest import Body, Endpoint, MomentField, TextField
from ledger.rest.schema import WrittenAt

READS = ("ledger.exports",)


class PlanExports(Body):
    """What is brought by itself. formats: as of `exports`. folder: in the operator's place.

    every: `day`: the month so far, once that day is over in UTC; `month`: once it is closed.
    """

    every = serializers.ChoiceField(choices=["day", "month"])
    formats = serializers.ListField(
        child=TextField(max_length=40), min_length=1, max_length=len(exports.FORMATS)
    )
    folder = TextField(max_length=FOLDER_LENGTH_MAX)


class ExportPlanShape(serializers.ModelSerializer[ExportPlanRow]):
    """A plan. due: the day or closing that it was last due for; empty: none yet.

    brought_at: when that was there; failed_at, words: when it was not, and why.
    """

    made_at = MomentField(source="at")
    brought_at = MomentField(allow_null=True)
    failed_at = MomentField(allow_null=True)

    class Meta:
        model = ExportPlanRow
        fields = (
            "plan_id",
            "every",
            "formats",
            "folder",
            "due",
            "words",
            "made_at",
            "brought_at",
            "failed_at",
        )


class ExportPlanMade(WrittenAt):
    """The plan that was made, and the position to read it at."""

    plan_id = serializers.UUIDField()


class ExportPlans(Endpoint):
    """Plans by which exports are brought to finance by themselves."""

    scopes = {"GET": "billing:read", "POST": "billing:write"}
    reads = READS

    @extend_schema(responses=ExportPlanShape(many=True))
    def get(self, request: Request) -> Response:
        """List those that go on, the oldest first; the platform's finance people see them."""
        sees = self.actor.sees_all or self.actor.has_platform_money
        rows: Any = ExportPlanShape(export_plans() if sees else [], many=True).data
        return self.listed(rows, ("plan_id",))

    @extend_schema(request=PlanExports, responses={201: ExportPlanMade})
    def post(self, request: Request) -> Response:
        """Have exports brought to a folder from now on."""
        asked = self.body(PlanExports)
        closing.need_to_close(self.actor)
        for name in asked["formats"]:
            exports.format_named(name)
        position = plan_exports(
            self.store(),
            plan_id=self.command_id,
            every=asked["every"],
            formats=asked["formats"],
            folder=asked["folder"],
            user_id=self.actor.need_person(),
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"plan_id": self.command_id, "position": position}, status=201)


class ExportPlanDetail(Endpoint):
    """One plan."""

    scopes = {"DELETE": "billing:write"}
    reads = READS

    @extend_schema(responses=WrittenAt)
    def delete(self, request: Request, plan_id: UUID) -> Response:
        """Bring nothing by it any more."""
        closing.need_to_close(self.actor)
        position = end_export_plan(
            self.store(),
            plan_id,
            user_id=self.actor.need_person(),
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"position": position})
