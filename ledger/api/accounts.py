"""Accounts over HTTP: what they hold, what is set aside, opening them, adding funds by hand."""

from __future__ import annotations

from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ledger import commands, queries
from ledger.access import Actor
from ledger.domain.account_ids import funds_account
from ledger.domain.ids import AccountId, SubscriberId, TenantId
from ledger.domain.money import Money
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.refusal import Forbidden
from ledger.models import AccountRow, HoldRow
from ledger.rest import AmountField, Body, Endpoint, MomentField, TextField
from ledger.rest.schema import WrittenAt


class FundsByPlatformOnly(Forbidden):
    """Only finance people and operators of the platform may open accounts and add funds."""


class OpenAccount(Body):
    """An account that pays for a business unit's use.

    overdraft: how far available may fall below zero; null is without limit, which only a
    chargeback account can be.
    """

    tenant_id = serializers.UUIDField()
    subscriber_id = serializers.UUIDField()
    kind = serializers.ChoiceField(["prepaid", "chargeback"])
    title = TextField(max_length=200)
    currency = TextField(max_length=3)
    overdraft = AmountField(allow_null=True)


class AddFunds(Body):
    """Money that came in outside the system: a transfer, a budget, a gift."""

    amount = AmountField()
    currency = TextField(max_length=3)
    reference = TextField(max_length=200)


class SetBudget(Body):
    """How far available may fall below zero; null is without limit, for chargeback alone."""

    overdraft = AmountField(allow_null=True)


class AccountShown(serializers.ModelSerializer[AccountRow]):
    """An account as answered.

    runs_low: what it can still set aside is less than what it was charged in the last day.
    """

    total = AmountField(source="total_nanos")
    held = AmountField(source="held_nanos")
    available = AmountField(source="available_nanos")
    overdraft = AmountField(source="overdraft_nanos", allow_null=True)
    opened_at = MomentField()
    runs_low = serializers.BooleanField()

    class Meta:
        model = AccountRow
        fields = (
            "account_id",
            "tenant_id",
            "subscriber_id",
            "kind",
            "title",
            "currency",
            "total",
            "held",
            "available",
            "overdraft",
            "opened_at",
            "runs_low",
        )


class HoldShown(serializers.ModelSerializer[HoldRow]):
    """A hold as answered."""

    amount = AmountField(source="money_nanos")
    captured = AmountField(source="captured_nanos")
    placed_at = MomentField()
    released_at = MomentField(allow_null=True)

    class Meta:
        model = HoldRow
        fields = (
            "hold_id",
            "purpose",
            "state",
            "amount",
            "captured",
            "currency",
            "placed_at",
            "released_at",
        )


class AccountWritten(WrittenAt):
    """An account, and the position to read it at."""

    account_id = serializers.UUIDField()


class FundsWritten(WrittenAt):
    """The entry that added funds, and the position to read it at."""

    entry_id = serializers.UUIDField()


class Accounts(Endpoint):
    """The accounts that the actor may see."""

    scopes = {"GET": "billing:read", "POST": "billing:write"}
    reads = ("ledger.money", "ledger.parties")

    @extend_schema(responses=AccountShown(many=True))
    def get(self, request: Request) -> Response:
        """List them by kind and title."""
        order = ("kind", "title", "account_id")
        rows = queries.telling_low(queries.accounts(self.actor), now=timezone.now())
        return self.page(rows, AccountShown, order)

    @extend_schema(request=OpenAccount, responses={201: AccountWritten})
    def post(self, request: Request) -> Response:
        """Open the account that pays for a business unit's use."""
        asked = self.body(OpenAccount)
        _need_platform_money(self.actor)
        unit = queries.subscriber_of(asked["tenant_id"], asked["subscriber_id"])
        account_id = funds_account(SubscriberId(unit.pk), asked["currency"])
        position = commands.open_account(
            self.store(),
            account_id=account_id,
            tenant_id=TenantId(unit.tenant_id),
            subscriber_id=SubscriberId(unit.pk),
            kind=asked["kind"],
            title=asked["title"],
            currency=asked["currency"],
            overdraft_nanos=asked["overdraft"],
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"account_id": account_id, "position": position}, status=201)


class TenantAccounts(Endpoint):
    """The accounts of one organisation."""

    scopes = {"GET": "billing:read"}
    reads = ("ledger.money", "ledger.parties")

    @extend_schema(responses=AccountShown(many=True))
    def get(self, request: Request, tenant_id: UUID) -> Response:
        """List the accounts of an organisation by kind and title."""
        tenant = queries.tenant(self.actor, TenantId(tenant_id))
        rows = queries.accounts(self.actor).filter(tenant_id=tenant.tenant_id)
        told = queries.telling_low(rows, now=timezone.now())
        return self.page(told, AccountShown, ("kind", "title", "account_id"))


class AccountDetail(Endpoint):
    """One account."""

    scopes = {"GET": "billing:read"}
    reads = ("ledger.money",)

    @extend_schema(responses=AccountShown)
    def get(self, request: Request, account_id: UUID) -> Response:
        """Show it."""
        known = queries.account(self.actor, AccountId(account_id))
        rows = queries.accounts(self.actor).filter(pk=known.pk)
        return Response(AccountShown(queries.telling_low(rows, now=timezone.now()).get()).data)


class Holds(Endpoint):
    """What is set aside on an account."""

    scopes = {"GET": "billing:read"}
    reads = ("ledger.money",)

    @extend_schema(responses=HoldShown(many=True))
    def get(self, request: Request, account_id: UUID) -> Response:
        """List its holds, the newest first."""
        account = queries.account(self.actor, AccountId(account_id))
        rows = queries.holds(self.actor, AccountId(account.pk))
        return self.page(rows, HoldShown, ("-placed_at", "hold_id"))


class Funds(Endpoint):
    """Money added by hand."""

    scopes = {"POST": "billing:write"}
    reads = ("ledger.money",)

    @extend_schema(request=AddFunds, responses={201: FundsWritten})
    def post(self, request: Request, account_id: UUID) -> Response:
        """Add a payment to an account, once for its reference, whatever the Idempotency-Key."""
        asked = self.body(AddFunds)
        _need_platform_money(self.actor)
        entry_id, position = commands.credit_payment(
            self.store(),
            account_id=AccountId(account_id),
            money=Money(asked["amount"], asked["currency"]),
            reference=asked["reference"],
            platform_id=PLATFORM_ID,
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"entry_id": entry_id, "position": position}, status=201)


class AccountBudget(Endpoint):
    """How far an account may go below zero."""

    scopes = {"PUT": "billing:write"}
    reads = ("ledger.money",)

    @extend_schema(request=SetBudget, responses=WrittenAt)
    def put(self, request: Request, account_id: UUID) -> Response:
        """Set an account's budget; only the platform raises one, its organisation may lower it."""
        asked = self.body(SetBudget)
        queries.account(self.actor, AccountId(account_id))
        position = commands.set_budget(
            self.store(f"account-{account_id}"),
            account_id=AccountId(account_id),
            overdraft_nanos=asked["overdraft"],
            may_raise=self.actor.has_platform_money,
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"position": position})


def _need_platform_money(actor: Actor) -> None:
    """Refuse whoever could otherwise give themselves money."""
    if not actor.has_platform_money:
        raise FundsByPlatformOnly()
