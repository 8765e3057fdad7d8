"""Paying owners over HTTP: what they earned, their bank account, payouts, files for the bank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.http import HttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from ledger import paying
from ledger.api import payout_shapes as shapes
from ledger.commands import payouts as commands
from ledger.domain.bank_details import read_details
from ledger.domain.ids import AccountId
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.periods import read_period
from ledger.eventstore.port import Position
from ledger.exports.bank_files import name_of
from ledger.exports.payout_statements import lines as statement_csv
from ledger.paying import Estimate
from ledger.queries import payouts as queries
from ledger.rest import AmountField, Endpoint
from ledger.rest.schema import WrittenAt
from ledger.vault import default_vault

MONTH = OpenApiParameter("period", str, description="a month such as 2026-11; none: all")
MONEY = ("ledger.money",)


class Payees(Endpoint):
    """Earnings and how they are paid out."""

    scopes = {"GET": "payouts:read"}
    reads = MONEY

    @extend_schema(responses=shapes.PayeeShown(many=True))
    def get(self, request: Request) -> Response:
        """List one's own; the platform's finance people see those of all owners."""
        return self.page(queries.payees(self.actor), shapes.PayeeShown, ("account_id",))


class PayeeDetail(Endpoint):
    """One owner's earnings."""

    scopes = {"GET": "payouts:read"}
    reads = MONEY

    @extend_schema(responses=shapes.PayeeDetailShown)
    def get(self, request: Request, payee_id: UUID) -> Response:
        """Show them, and what the next settlement would pay."""
        row = queries.payee(self.actor, payee_id)
        coming = _estimate(paying.estimate(row, now=timezone.now()))
        return Response({**shapes.PayeeShown(row).data, "next": coming})


class PayeeSchedule(Endpoint):
    """How often an owner is paid."""

    scopes = {"PUT": "payouts:write"}
    reads = MONEY

    @extend_schema(request=shapes.AskSchedule, responses=WrittenAt)
    def put(self, request: Request, payee_id: UUID) -> Response:
        """Choose it, for one's own earnings."""
        asked, row = self.body(shapes.AskSchedule), paying.need_payee(self.actor, payee_id)
        position = commands.set_payout_schedule(
            self.store(),
            paying.of_row(row),
            schedule=asked["schedule"],
            minimum_nanos=asked["minimum"],
            user_id=self.actor.need_person(),
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"position": position})


class PayeeDetails(Endpoint):
    """To which bank account an owner is paid."""

    scopes = {"POST": "payouts:write"}
    reads = MONEY

    def _asked(self) -> None:
        """Keep nothing of a request: its hash would tell an account number to who can guess."""
        return None

    @extend_schema(request=shapes.AskDetails, responses={201: shapes.DetailsWritten})
    def post(self, request: Request, payee_id: UUID) -> Response:
        """Propose one, for one's own earnings: nothing is sent until it is confirmed."""
        asked, row = self.body(shapes.AskDetails), paying.need_payee(self.actor, payee_id)
        details_id = self.command_id
        position = paying.propose_details(
            self.store(),
            default_vault(),
            row,
            read_details(**asked),
            details_id=details_id,
            user_id=self.actor.need_person(),
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"details_id": details_id, "position": position}, status=201)


class DetailsConfirmed(Endpoint):
    """A bank account that was proposed."""

    scopes = {"POST": "payouts:write"}
    reads = MONEY

    @extend_schema(request=None, responses=WrittenAt)
    def post(self, request: Request, payee_id: UUID, details_id: UUID) -> Response:
        """Confirm it, once it has waited long enough for others to object."""
        row = paying.need_payee(self.actor, payee_id)
        position = commands.confirm_bank_details(
            self.store(),
            AccountId(row.account_id),
            details_id,
            user_id=self.actor.need_person(),
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"position": position})


class DetailsWithdrawn(Endpoint):
    """A bank account that was proposed."""

    scopes = {"POST": "payouts:write"}
    reads = MONEY

    @extend_schema(request=None, responses=WrittenAt)
    def post(self, request: Request, payee_id: UUID, details_id: UUID) -> Response:
        """Withdraw it: the one before stays."""
        row = paying.need_payee(self.actor, payee_id)
        position = commands.withdraw_bank_details(
            self.store(),
            AccountId(row.account_id),
            details_id,
            user_id=self.actor.need_person(),
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"position": position})


class Settle(Endpoint):
    """Paying an owner outside the schedule."""

    scopes = {"POST": "payouts:write"}
    reads = MONEY

    @extend_schema(request=None, responses={201: shapes.PayoutWritten})
    def post(self, request: Request, payee_id: UUID) -> Response:
        """Request the payout of all that is payable now; another person approves it."""
        user_id = paying.need_to_pay(self.actor)
        row = queries.payee(self.actor, payee_id)
        payout_id, position = paying.settle_now(
            self.store(), row, user_id=user_id, by=self.meta(), now=timezone.now()
        )
        return Response({"payout_id": payout_id, "position": position}, status=201)


class Earnings(Endpoint):
    """What was earned."""

    scopes = {"GET": "payouts:read"}
    reads = MONEY

    @extend_schema(parameters=[MONTH], responses=shapes.EarnedShape(many=True))
    def get(self, request: Request) -> Response:
        """List it by month, kind and lease, the newest month first."""
        period = request.query_params.get("period", "")
        if period:
            read_period(period)
        found = [shapes.earned_shown(each) for each in queries.earnings(self.actor, period=period)]
        return self.listed(found, ("period", "kind", "lease_id", "currency"))


class Payouts(Endpoint):
    """Payouts."""

    scopes = {"GET": "payouts:read"}
    reads = MONEY

    @extend_schema(responses=shapes.PayoutShown(many=True))
    def get(self, request: Request) -> Response:
        """List them, the newest first."""
        return self.page(queries.payouts(self.actor), shapes.PayoutShown, queries.NEWEST_FIRST)


class PayoutDetail(Endpoint):
    """One payout."""

    scopes = {"GET": "payouts:read"}
    reads = MONEY

    @extend_schema(responses=shapes.PayoutShown)
    def get(self, request: Request, payout_id: UUID) -> Response:
        """Show it."""
        return Response(shapes.PayoutShown(queries.payout(self.actor, payout_id)).data)


class PayoutStatement(Endpoint):
    """What a payout is made of."""

    scopes = {"GET": "payouts:read"}
    reads = MONEY

    @extend_schema(responses=shapes.StatementOfPayout)
    def get(self, request: Request, payout_id: UUID) -> Response:
        """Show every line: opening and lines, less the payout, make the closing."""
        row = queries.payout(self.actor, payout_id)
        amount = AmountField().to_representation
        return Response(
            {
                "payout": shapes.PayoutShown(row).data,
                "opening": amount(row.opening_nanos),
                "closing": amount(row.closing_nanos),
                "data": [shapes.earned_shown(each) for each in queries.statement_lines(row)],
            }
        )


class PayoutStatementFile(Endpoint):
    """What a payout is made of, as a file."""

    scopes = {"GET": "payouts:read"}
    reads = MONEY

    @extend_schema(responses={(200, "text/csv"): OpenApiTypes.STR})
    def get(self, request: Request, payout_id: UUID) -> HttpResponse:
        """Send it as CSV."""
        row = queries.payout(self.actor, payout_id)
        text = "".join(statement_csv(row, queries.statement_lines(row)))
        name = f"payout-{row.period}-{row.payout_id}.csv"
        return HttpResponse(
            text,
            content_type="text/csv; charset=utf-8",
            headers={"Content-Disposition": f'attachment; filename="{name}"'},
        )


class _Doing(Endpoint):
    """A step of a payout, by the platform's finance people and operators."""

    def done(self, payout_id: UUID, doing: Callable[..., Position], **more: Any) -> Response:
        user_id = paying.need_to_pay(self.actor)
        row = queries.payout(self.actor, payout_id)
        position = doing(
            self.store(),
            AccountId(row.account_id),
            payout_id,
            user_id=user_id,
            by=self.meta(),
            now=timezone.now(),
            **more,
        )
        paying.tell_outcome(
            self.store(), row.account_id, payout_id, by=self.meta(), now=timezone.now()
        )
        return Response({"position": position})


class Approve(_Doing):
    """Approving a payout."""

    scopes = {"POST": "payouts:write"}
    reads = MONEY

    @extend_schema(request=None, responses=WrittenAt)
    def post(self, request: Request, payout_id: UUID) -> Response:
        """Approve what somebody else, or the schedule, asked for; large ones take two people."""
        user_id = paying.need_to_pay(self.actor)
        row = queries.payout(self.actor, payout_id)
        is_own = queries.is_of(user_id, row.tenant_id)
        return self.done(payout_id, commands.approve_payout, is_own=is_own)


class Cancel(_Doing):
    """Cancelling a payout."""

    scopes = {"POST": "payouts:write"}
    reads = MONEY

    @extend_schema(request=shapes.AskReason, responses=WrittenAt)
    def post(self, request: Request, payout_id: UUID) -> Response:
        """Cancel one that was not sent yet: its money is earnings again."""
        reason = self.body(shapes.AskReason)["reason"]
        return self.done(payout_id, commands.cancel_payout, reason=reason)


class Paid(_Doing):
    """A payout that the bank paid."""

    scopes = {"POST": "payouts:write"}
    reads = MONEY

    @extend_schema(request=shapes.AskPaid, responses=WrittenAt)
    def post(self, request: Request, payout_id: UUID) -> Response:
        """Note that the bank paid, by its reference."""
        asked, row = self.body(shapes.AskPaid), queries.payout(self.actor, payout_id)
        return self.done(
            payout_id,
            commands.mark_paid,
            reference=asked["reference"],
            paid_on=asked["paid_on"],
            currency=row.currency,
            platform_id=PLATFORM_ID,
        )


class Returned(_Doing):
    """A payout that came back."""

    scopes = {"POST": "payouts:write"}
    reads = MONEY

    @extend_schema(request=shapes.AskReason, responses=WrittenAt)
    def post(self, request: Request, payout_id: UUID) -> Response:
        """Note that the bank did not pay, or that the money came back: it is earnings again."""
        asked, row = self.body(shapes.AskReason), queries.payout(self.actor, payout_id)
        return self.done(
            payout_id,
            commands.mark_returned,
            reason=asked["reason"],
            currency=row.currency,
            platform_id=PLATFORM_ID,
        )


class BankFiles(Endpoint):
    """Files of payouts for the bank."""

    scopes = {"GET": "payouts:read", "POST": "payouts:write"}
    reads = MONEY

    @extend_schema(responses=shapes.BankFileShown(many=True))
    def get(self, request: Request) -> Response:
        """List them, the newest first; only the platform's finance people see any."""
        return self.page(queries.bank_files(self.actor), shapes.BankFileShown, ("-number",))

    @extend_schema(request=shapes.AskFile, responses={201: shapes.FileWritten})
    def post(self, request: Request) -> Response:
        """Put approved payouts into a file; each is in one file only."""
        asked, user_id = self.body(shapes.AskFile), paying.need_to_pay(self.actor)
        rows = paying.sendable(self.actor, asked["currency"])
        if asked["payouts"]:
            rows = list(
                queries.payouts(self.actor).filter(
                    pk__in=asked["payouts"], currency=asked["currency"]
                )
            )
        position = paying.write_bank_file(
            self.store(),
            default_vault(),
            rows,
            file_id=self.command_id,
            form=asked["format"],
            currency=asked["currency"],
            user_id=user_id,
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"file_id": self.command_id, "position": position}, status=201)


class BankFileContent(Endpoint):
    """A file of payouts as the bank gets it."""

    scopes = {"POST": "payouts:write"}
    reads = MONEY

    @extend_schema(request=None, responses=shapes.FileContent)
    def post(self, request: Request, file_id: UUID) -> Response:
        """Send it as text in UTF-8; asked for again it is the same."""
        paying.need_to_pay(self.actor)
        row = queries.bank_file(self.actor, file_id)
        event, data = paying.file_bytes(self.store(), default_vault(), row)
        return Response(
            {
                "name": name_of(event.message_id, event.format),
                "content": data.decode(),
                "sha256": event.sha256,
            }
        )


def _estimate(found: Estimate) -> dict[str, Any]:
    amount = AmountField().to_representation
    return {
        "on": found.on,
        "schedule": found.schedule,
        "minimum": amount(found.minimum_nanos),
        "owed": amount(found.payable.owed),
        "later": amount(found.payable.later),
        "held_back": amount(found.payable.held_back),
        "set_aside": amount(found.payable.set_aside),
        "payable": amount(found.payable.nanos),
    }
