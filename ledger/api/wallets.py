"""Wallets over HTTP: top-ups by card, saved cards, topping up by itself, refunds."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.access import Actor
from ledger.commands import refunds as refunding
from ledger.commands import wallet as commands
from ledger.domain.ids import AccountId, PaymentId, RefundId
from ledger.domain.money import Money
from ledger.domain.refusal import Forbidden
from ledger.domain.top_ups import NotAWallet
from ledger.eventstore.port import EventStore
from ledger.funding import setup
from ledger.funding.settling import refundable_now
from ledger.funding.setup import need_payments
from ledger.models import (
    AccountRow,
    WalletMethodRow,
    WalletPaymentRow,
    WalletRefundRow,
    WalletRow,
)
from ledger.payments import default_payments
from ledger.queries import account as account_seen
from ledger.queries import wallet as queries
from ledger.rest import AmountField, Body, Endpoint, MomentField, TextField
from ledger.rest.schema import WrittenAt


class RefundsByPlatformOnly(Forbidden):
    """Only finance people and operators of the platform approve refunds."""


class AskTopUp(Body):
    """A top-up. method: a saved card that pays; left out: on a page of the payment service."""

    amount = AmountField()
    currency = TextField(max_length=3)
    method = TextField(max_length=80, required=False)


class SetAutomatic(Body):
    """When less than `below` is available, `amount` is added, at most `most_per_day` on a day."""

    below = AmountField()
    amount = AmountField()
    most_per_day = AmountField()
    method = TextField(max_length=80)


class AskRefund(Body):
    """Unused money to go back to the cards that it came from."""

    amount = AmountField()
    currency = TextField(max_length=3)
    reason = TextField(max_length=200)


class TopUpShown(serializers.ModelSerializer[WalletPaymentRow]):
    """A top-up as answered. url: where to pay it, once the payment service made the page."""

    amount = AmountField(source="nanos")
    asked_at = MomentField()
    ended_at = MomentField(allow_null=True)

    class Meta:
        model = WalletPaymentRow
        fields = (
            "payment_id",
            "account_id",
            "state",
            "way",
            "method",
            "amount",
            "currency",
            "url",
            "reason",
            "asked_at",
            "ended_at",
        )


class MethodShown(serializers.ModelSerializer[WalletMethodRow]):
    """A saved card as answered."""

    class Meta:
        model = WalletMethodRow
        fields = ("method", "label")


class RefundShown(serializers.ModelSerializer[WalletRefundRow]):
    """A refund as answered."""

    amount = AmountField(source="nanos")
    asked_at = MomentField()
    decided_at = MomentField(allow_null=True)

    class Meta:
        model = WalletRefundRow
        fields = (
            "refund_id",
            "account_id",
            "state",
            "amount",
            "currency",
            "reason",
            "asked_by",
            "asked_at",
            "decided_by",
            "decided_at",
        )


class AutomaticShown(serializers.Serializer[Any]):
    """When a wallet tops itself up, by how much, with which card."""

    below = AmountField()
    amount = AmountField()
    most_per_day = AmountField()
    method = serializers.CharField()


class WalletShown(serializers.Serializer[Any]):
    """A wallet as answered.

    short: how much further below zero it is than it may be, since a bank took a payment back.
    refundable: what could go back to cards now. ended_because: why it tops itself up no more.
    takes_cards: whether a payment service is set up; said: what is worth knowing of that.
    """

    account_id = serializers.UUIDField()
    title = serializers.CharField()
    currency = serializers.CharField()
    total = AmountField()
    held = AmountField()
    available = AmountField()
    short = AmountField()
    refundable = AmountField()
    automatic = AutomaticShown(allow_null=True)
    ended_because = serializers.CharField(allow_blank=True)
    takes_cards = serializers.BooleanField()
    said = serializers.CharField(allow_blank=True)


class TopUpWritten(WrittenAt):
    """A top-up, and the position to read it at."""

    payment_id = serializers.UUIDField()


class RefundWritten(WrittenAt):
    """A refund, and the position to read it at."""

    refund_id = serializers.UUIDField()


class Wallet(Endpoint):
    """What is in a wallet, and how it is topped up."""

    scopes = {"GET": "billing:read"}
    reads = ("ledger.money",)

    @extend_schema(responses=WalletShown)
    def get(self, request: Request, account_id: UUID) -> Response:
        """Show it. An account that is billed afterwards is none."""
        row = _account(self.actor, account_id)
        if row.kind != "prepaid":
            raise NotAWallet()
        return Response(_shown(row, queries.wallet(self.actor, AccountId(row.pk)), self.store()))


class TopUps(Endpoint):
    """The top-ups of a wallet."""

    scopes = {"GET": "billing:read", "POST": "billing:write"}
    reads = ("ledger.money",)

    @extend_schema(responses=TopUpShown(many=True))
    def get(self, request: Request, account_id: UUID) -> Response:
        """List them, the newest first."""
        key = _seen(self.actor, account_id)
        return self.page(queries.top_ups(self.actor, key), TopUpShown, ("-asked_at", "payment_id"))

    @extend_schema(request=AskTopUp, responses={201: TopUpWritten})
    def post(self, request: Request, account_id: UUID) -> Response:
        """Ask for a top-up. Read it to learn where to pay; it counts once the payment came in."""
        asked, key = self.body(AskTopUp), _seen(self.actor, account_id)
        need_payments()
        method = asked.get("method", "")
        payment_id = PaymentId(uuid4())
        position = commands.request_top_up(
            self.store(),
            account_id=key,
            payment_id=payment_id,
            money=Money(asked["amount"], asked["currency"]),
            way="saved" if method else "checkout",
            method=method,
            asked_by=self.actor.user_id,
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"payment_id": payment_id, "position": position}, status=201)


class TopUpDetail(Endpoint):
    """One top-up."""

    scopes = {"GET": "billing:read"}
    reads = ("ledger.money",)

    @extend_schema(responses=TopUpShown)
    def get(self, request: Request, account_id: UUID, payment_id: UUID) -> Response:
        """Show how it stands, and where to pay it."""
        _account(self.actor, account_id)
        return Response(TopUpShown(queries.top_up(self.actor, PaymentId(payment_id))).data)


class Methods(Endpoint):
    """The saved cards of a wallet."""

    scopes = {"GET": "billing:read"}
    reads = ("ledger.money",)

    @extend_schema(responses=MethodShown(many=True))
    def get(self, request: Request, account_id: UUID) -> Response:
        """List them."""
        key = _seen(self.actor, account_id)
        return self.page(queries.methods(self.actor, key), MethodShown, ("at", "method"))


class MethodDetail(Endpoint):
    """One saved card."""

    scopes = {"DELETE": "billing:write"}
    reads = ("ledger.money",)

    @extend_schema(request=None, responses=WrittenAt)
    def delete(self, request: Request, account_id: UUID, method: str) -> Response:
        """Let the payment service keep it no longer; it is not used from here on."""
        key = _seen(self.actor, account_id)
        position = commands.remove_method(
            self.store(),
            account_id=key,
            method=method,
            asked_by=self.actor.user_id,
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"position": position})


class AutomaticTopUp(Endpoint):
    """A wallet that tops itself up."""

    scopes = {"PUT": "billing:write", "DELETE": "billing:write"}
    reads = ("ledger.money",)

    @extend_schema(request=SetAutomatic, responses=WrittenAt)
    def put(self, request: Request, account_id: UUID) -> Response:
        """Let it do so, or on other terms."""
        asked, account = self.body(SetAutomatic), _account(self.actor, account_id)
        need_payments()
        position = commands.set_automatic_top_up(
            self.store(),
            account_id=AccountId(account.pk),
            below=Money(asked["below"], account.currency),
            amount=Money(asked["amount"], account.currency),
            most_per_day=Money(asked["most_per_day"], account.currency),
            method=asked["method"],
            set_by=self.actor.user_id,
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"position": position})

    @extend_schema(request=None, responses=WrittenAt)
    def delete(self, request: Request, account_id: UUID) -> Response:
        """Let it do so no more."""
        key = _seen(self.actor, account_id)
        position = commands.end_automatic_top_up(
            self.store(), account_id=key, by=self.meta(), now=timezone.now()
        )
        return Response({"position": position})


class Refunds(Endpoint):
    """The refunds of a wallet."""

    scopes = {"GET": "billing:read", "POST": "billing:write"}
    reads = ("ledger.money",)

    @extend_schema(responses=RefundShown(many=True))
    def get(self, request: Request, account_id: UUID) -> Response:
        """List them, the newest first."""
        key = _seen(self.actor, account_id)
        return self.page(queries.refunds(self.actor, key), RefundShown, ("-asked_at", "refund_id"))

    @extend_schema(request=AskRefund, responses={201: RefundWritten})
    def post(self, request: Request, account_id: UUID) -> Response:
        """Ask to have unused money back; somebody else approves."""
        asked, key = self.body(AskRefund), _seen(self.actor, account_id)
        need_payments()
        refund_id = RefundId(uuid4())
        position = refunding.ask_for_refund(
            self.store(),
            account_id=key,
            refund_id=refund_id,
            money=Money(asked["amount"], asked["currency"]),
            reason=asked["reason"],
            asked_by=self.actor.need_person(),
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"refund_id": refund_id, "position": position}, status=201)


class RefundApproved(Endpoint):
    """Approving a refund."""

    scopes = {"POST": "billing:write"}
    reads = ("ledger.money",)

    @extend_schema(request=None, responses=WrittenAt)
    def post(self, request: Request, account_id: UUID, refund_id: UUID) -> Response:
        """Let it go out. Nobody approves their own."""
        row = _refund(self.actor, account_id, refund_id)
        if not self.actor.has_platform_money:
            raise RefundsByPlatformOnly()
        position = refunding.approve_refund(
            self.store(),
            account_id=AccountId(row.account_id),
            refund_id=RefundId(row.pk),
            approved_by=self.actor.need_person(),
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"position": position})


class RefundDeclined(Endpoint):
    """Declining a refund."""

    scopes = {"POST": "billing:write"}
    reads = ("ledger.money",)

    @extend_schema(request=None, responses=WrittenAt)
    def post(self, request: Request, account_id: UUID, refund_id: UUID) -> Response:
        """Leave it, or take back what one asked for oneself."""
        row = _refund(self.actor, account_id, refund_id)
        user_id = self.actor.need_person()
        if not self.actor.has_platform_money and row.asked_by != user_id:
            raise RefundsByPlatformOnly()
        position = refunding.decline_refund(
            self.store(),
            account_id=AccountId(row.account_id),
            refund_id=RefundId(row.pk),
            declined_by=user_id,
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"position": position})


def _shown(row: AccountRow, wallet: WalletRow | None, store: EventStore) -> dict[str, Any]:
    written = AmountField().to_representation
    automatic = None
    if wallet is not None and wallet.below_nanos is not None:
        automatic = {
            "below": written(wallet.below_nanos),
            "amount": written(wallet.amount_nanos or 0),
            "most_per_day": written(wallet.most_per_day_nanos or 0),
            "method": wallet.method,
        }
    return {
        "account_id": row.pk,
        "title": row.title,
        "currency": row.currency,
        "total": written(row.total_nanos),
        "held": written(row.held_nanos),
        "available": written(row.available_nanos),
        "short": written(row.short_nanos),
        "refundable": written(refundable_now(store, row).nanos),
        "automatic": automatic,
        "ended_because": "" if wallet is None else wallet.ended_because,
        "takes_cards": default_payments() is not None,
        "said": setup.words(),
    }


def _account(actor: Actor, account_id: UUID) -> AccountRow:
    return account_seen(actor, AccountId(account_id))


def _seen(actor: Actor, account_id: UUID) -> AccountId:
    """Return the id of an account that the actor may see. Raises: AccountUnknown."""
    return AccountId(_account(actor, account_id).pk)


def _refund(actor: Actor, account_id: UUID, refund_id: UUID) -> WalletRefundRow:
    _account(actor, account_id)
    return queries.refund(actor, refund_id)
