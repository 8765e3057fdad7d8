"""Accounting periods over HTTP: which months are closed, closing one, opening one again."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ledger import closing
from ledger.access import Actor
from ledger.commands import closing as commands
from ledger.domain.ids import UserId
from ledger.domain.periods import Period, read_period
from ledger.queries.closing import MonthSeen, month, months
from ledger.rest import Body, Endpoint, MomentField, TextField
from ledger.rest.schema import WrittenAt


class AskReopening(Body):
    """Why a closed month should be opened again, for whoever approves it."""

    reason = TextField(max_length=200)


class CheckShape(serializers.Serializer[Any]):
    """One line of the checklist. words: what was found, or is left to do. left: open points."""

    name = serializers.CharField()
    title = serializers.CharField()
    passed = serializers.BooleanField()
    words = serializers.CharField()
    left = serializers.IntegerField()


class FrozenExportShape(serializers.Serializer[Any]):
    """An export of a closed month, by its manifest: `exports` with that position gives it."""

    format = serializers.CharField()
    version = serializers.CharField()
    position = serializers.IntegerField()
    rows = serializers.IntegerField()
    bytes = serializers.IntegerField()
    sha256 = serializers.CharField()


class ReopeningShape(serializers.Serializer[Any]):
    """What was asked: to open the month again. Somebody other than `asked_by` approves it."""

    reason = serializers.CharField()
    asked_by = serializers.UUIDField()
    at = MomentField()


class PeriodShape(serializers.Serializer[Any]):
    """A month in UTC. state: open; soft-closed: over, late use still counts in it; closed."""

    period = serializers.CharField()
    state = serializers.CharField()
    soft_closed_at = MomentField(allow_null=True)
    closed_at = MomentField(allow_null=True)


class PeriodDetailShape(PeriodShape):
    """A month; what follows is empty for all but the platform's finance people and operators.

    checks: of a month that is not closed. exports: of a closed one, once they are written.
    """

    checks = CheckShape(many=True)
    exports = FrozenExportShape(many=True)
    reopening = ReopeningShape(allow_null=True)


class Periods(Endpoint):
    """The months of the book of record."""

    scopes = {"GET": "billing:read"}
    reads = ("ledger.money",)

    @extend_schema(responses=PeriodShape(many=True))
    def get(self, request: Request) -> Response:
        """List them from the first entry on, the newest first."""
        return self.listed([_shown(each) for each in months(now=timezone.now())], ("period",))


class PeriodDetail(Endpoint):
    """One month."""

    scopes = {"GET": "billing:read"}
    reads = ("ledger.money",)

    @extend_schema(responses=PeriodDetailShape)
    def get(self, request: Request, period: str) -> Response:
        """Show how far it is closed, and what has to be in order before."""
        asked = read_period(period)
        seen, may_close = month(asked), self.actor.has_platform_money
        looked = may_close and seen.state != "closed"
        checks = closing.checklist(asked, now=timezone.now()) if looked else []
        row = seen.row if may_close else None
        reopening = None
        if row is not None and row.reopening_at is not None:
            reopening = {
                "reason": row.reopening_reason,
                "asked_by": row.reopening_by,
                "at": MomentField().to_representation(row.reopening_at),
            }
        return Response(
            {
                **_shown(seen),
                "checks": [CheckShape(each).data for each in checks],
                "exports": [] if row is None else row.exports,
                "reopening": reopening,
            }
        )


class SoftClose(Endpoint):
    """Beginning to close a month."""

    scopes = {"POST": "billing:write"}
    reads = ("ledger.money",)

    @extend_schema(request=None, responses=WrittenAt)
    def post(self, request: Request, period: str) -> Response:
        """Say that a month that is over is about to be closed; late use still counts in it."""
        asked, user_id = _asked(self.actor, period)
        position = commands.soft_close_period(
            self.store(), asked, user_id=user_id, by=self.meta(), now=timezone.now()
        )
        return Response({"position": position})


class Close(Endpoint):
    """Closing a month."""

    scopes = {"POST": "billing:write"}
    reads = ("ledger.money",)

    @extend_schema(request=None, responses=WrittenAt)
    def post(self, request: Request, period: str) -> Response:
        """Close a soft-closed month whose checks are all met: nothing counts in it any more."""
        asked, user_id = _asked(self.actor, period)
        now = timezone.now()
        position = commands.close_period(
            self.store(),
            asked,
            checks=closing.checklist(asked, now=now),
            user_id=user_id,
            by=self.meta(),
            now=now,
        )
        return Response({"position": position})


class Reopening(Endpoint):
    """Asking to open a closed month again."""

    scopes = {"POST": "billing:write"}
    reads = ("ledger.money",)

    @extend_schema(request=AskReopening, responses=WrittenAt)
    def post(self, request: Request, period: str) -> Response:
        """Ask for it, with a reason; somebody else approves."""
        said = self.body(AskReopening)
        asked, user_id = _asked(self.actor, period)
        position = commands.ask_to_reopen_period(
            self.store(),
            asked,
            reason=said["reason"],
            user_id=user_id,
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"position": position})


class ReopeningApproved(Endpoint):
    """Opening a closed month again."""

    scopes = {"POST": "billing:write"}
    reads = ("ledger.money",)

    @extend_schema(request=None, responses=WrittenAt)
    def post(self, request: Request, period: str) -> Response:
        """Approve what somebody else asked for."""
        asked, user_id = _asked(self.actor, period)
        position = commands.approve_reopening(
            self.store(), asked, user_id=user_id, by=self.meta(), now=timezone.now()
        )
        return Response({"position": position})


class ReopeningDeclined(Endpoint):
    """Leaving a closed month closed."""

    scopes = {"POST": "billing:write"}
    reads = ("ledger.money",)

    @extend_schema(request=None, responses=WrittenAt)
    def post(self, request: Request, period: str) -> Response:
        """Decline what somebody asked for, or take back what one asked oneself."""
        asked, user_id = _asked(self.actor, period)
        position = commands.decline_reopening(
            self.store(), asked, user_id=user_id, by=self.meta(), now=timezone.now()
        )
        return Response({"position": position})


def _asked(actor: Actor, period: str) -> tuple[Period, UserId]:
    asked = read_period(period)
    closing.need_to_close(actor)
    return asked, actor.need_person()


def _shown(seen: MonthSeen) -> dict[str, Any]:
    row, moment = seen.row, MomentField()
    soft, closed = (row.soft_closed_at, row.closed_at) if row else (None, None)
    return {
        "period": str(seen.period),
        "state": seen.state,
        "soft_closed_at": soft and moment.to_representation(soft),
        "closed_at": closed and moment.to_representation(closed),
    }
