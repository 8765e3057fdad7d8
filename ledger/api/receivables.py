"""Invoices that others pay, over HTTP: what is owed, transfers that came in, what is given up."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ledger import invoicing
from ledger.access import Actor
from ledger.commands import receivables as commands
from ledger.domain.holds import TEXT_LENGTH_MAX
from ledger.domain.ids import UserId
from ledger.domain.money import Money
from ledger.models import ReceivableRow
from ledger.queries import receivables as found
from ledger.rest import AmountField, Body, Endpoint, MomentField, TextField
from ledger.rest.schema import WrittenAt

READS = ("ledger.invoices", "ledger.money")
STATES = ["open", "overdue", "paid", "credited", "written-off"]
STATE = OpenApiParameter("state", enum=STATES, description="Only those in a state.")


class EnterPayment(Body):
    """A transfer that pays an invoice. amount: left out for all that is owed of it."""

    reference = TextField(max_length=TEXT_LENGTH_MAX)
    amount = AmountField(required=False)


class AskWriteOff(Body):
    """Why what is owed is given up."""

    reason = TextField(max_length=TEXT_LENGTH_MAX)


class WriteOffShown(serializers.Serializer[Any]):
    """A write-off that waits for a second person."""

    amount = AmountField()
    reason = serializers.CharField()
    asked_by = serializers.UUIDField()


class ReceivableShape(serializers.Serializer[Any]):
    """An invoice and what is owed of it.

    state: open, overdue, paid, credited or written-off. blocks_new_bids: its account takes none
    until it is paid; blocks_at: from when on. url: where it is paid at the payment service.
    refused, failed, ended: why that did not take it, why a try to pay failed, why it is collected
    no longer.
    """

    invoice_id = serializers.UUIDField()
    number = serializers.CharField()
    account_id = serializers.UUIDField()
    tenant_id = serializers.UUIDField()
    currency = serializers.CharField()
    state = serializers.CharField()
    total = AmountField()
    credited = AmountField()
    paid = AmountField()
    written_off = AmountField()
    left = AmountField()
    due_at = MomentField()
    paid_at = MomentField(allow_null=True)
    paid_by = serializers.CharField(allow_blank=True)
    blocks_at = MomentField(allow_null=True)
    blocks_new_bids = serializers.BooleanField()
    url = serializers.CharField(allow_blank=True)
    refused = serializers.CharField(allow_blank=True)
    failed = serializers.CharField(allow_blank=True)
    ended = serializers.CharField(allow_blank=True)
    write_off = WriteOffShown(allow_null=True)


class WriteOffWritten(WrittenAt):
    """A write-off that was asked for, and the position to read it at."""

    write_off_id = serializers.UUIDField()


class Receivables(Endpoint):
    """Invoices that are to be paid, or were."""

    scopes = {"GET": "billing:read"}
    reads = READS

    @extend_schema(parameters=[STATE], responses=ReceivableShape(many=True))
    def get(self, request: Request) -> Response:
        """List them, those due first in front. `overdue`: open, and past its day."""
        rows = found.receivables(self.actor, state=request.query_params.get("state", ""))
        return self.page(rows, receivable_shown, found.FIRST_DUE)


class InvoicePayments(Endpoint):
    """Transfers that paid an invoice."""

    scopes = {"POST": "billing:write"}
    reads = READS

    @extend_schema(request=EnterPayment, responses={201: WrittenAt})
    def post(self, request: Request, number: str) -> Response:
        """Enter one: it is on the account, once for its reference. The platform's finance does."""
        row = found.receivable(self.actor, number)
        asked, user_id = self.body(EnterPayment), _platform_person(self.actor)
        amount = asked.get("amount")
        position = commands.enter_payment(
            self.store(),
            row.pk,
            money=None if amount is None else Money(amount, row.currency),
            reference=asked["reference"],
            user_id=user_id,
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"position": position}, status=201)


class WriteOff(Endpoint):
    """Giving up what is owed of an invoice."""

    scopes = {"POST": "billing:write"}
    reads = READS

    @extend_schema(request=AskWriteOff, responses={201: WriteOffWritten})
    def post(self, request: Request, number: str) -> Response:
        """Ask for it; somebody else approves."""
        row = found.receivable(self.actor, number)
        asked, user_id = self.body(AskWriteOff), _platform_person(self.actor)
        position = commands.ask_write_off(
            self.store(),
            row.pk,
            write_off_id=self.command_id,
            reason=asked["reason"],
            user_id=user_id,
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"write_off_id": self.command_id, "position": position}, status=201)


class WriteOffApproved(Endpoint):
    """Approving a write-off."""

    scopes = {"POST": "billing:write"}
    reads = READS

    @extend_schema(request=None, responses=WrittenAt)
    def post(self, request: Request, number: str) -> Response:
        """Give up what somebody else asked to. Nobody approves their own."""
        row, user_id = found.receivable(self.actor, number), _platform_person(self.actor)
        position = commands.approve_write_off(
            self.store(), row.pk, user_id=user_id, by=self.meta(), now=timezone.now()
        )
        return Response({"position": position})


class WriteOffDeclined(Endpoint):
    """Declining a write-off."""

    scopes = {"POST": "billing:write"}
    reads = READS

    @extend_schema(request=None, responses=WrittenAt)
    def post(self, request: Request, number: str) -> Response:
        """Give nothing up, or take back what one asked for oneself."""
        row, user_id = found.receivable(self.actor, number), _platform_person(self.actor)
        position = commands.decline_write_off(
            self.store(), row.pk, user_id=user_id, by=self.meta(), now=timezone.now()
        )
        return Response({"position": position})


def receivable_shown(row: ReceivableRow) -> dict[str, Any]:
    """Return an invoice that is to be paid as answered."""
    moment, written = MomentField().to_representation, AmountField().to_representation
    write_off = None
    if row.write_off_id is not None:
        write_off = {
            "amount": written(row.write_off_nanos),
            "reason": row.write_off_reason,
            "asked_by": row.write_off_by,
        }
    return {
        "invoice_id": row.pk,
        "number": row.number,
        "account_id": row.account_id,
        "tenant_id": row.tenant_id,
        "currency": row.currency,
        "state": found.state_of(row),
        "total": written(row.total_nanos),
        "credited": written(row.credited_nanos),
        "paid": written(row.paid_nanos),
        "written_off": written(row.written_off_nanos),
        "left": written(row.left_nanos),
        "due_at": moment(row.due_at),
        "paid_at": row.paid_at and moment(row.paid_at),
        "paid_by": row.paid_by,
        "blocks_at": row.blocks_at and moment(row.blocks_at),
        "blocks_new_bids": row.blocked,
        "url": row.url if row.state == "open" else "",
        "refused": row.refused,
        "failed": row.failed,
        "ended": row.ended,
        "write_off": write_off,
    }


def _platform_person(actor: Actor) -> UserId:
    """Return who decides. Raises: InvoicesByPlatformOnly, PersonNeeded."""
    if not actor.has_platform_money:
        raise invoicing.InvoicesByPlatformOnly()
    return actor.need_person()
