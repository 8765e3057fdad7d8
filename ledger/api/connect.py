"""Owners who are paid over Stripe, over HTTP: their account there, which way, what comes back."""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ledger import paying
from ledger.access.visits import site_address
from ledger.commands import connect as commands
from ledger.connect import accounts
from ledger.domain.ids import AccountId
from ledger.domain.money import Money
from ledger.models import BankPayoutRow, PayeeRow, TransferReversalRow
from ledger.queries import connect as over_stripe
from ledger.queries import payouts as queries
from ledger.rest import AmountField, Body, Endpoint, MomentField, TextField
from ledger.rest.schema import WrittenAt

MONEY = ("ledger.money",)


class AskStripe(Body):
    """In which country the owner is, in two letters; without: that of the platform."""

    country = TextField(max_length=2, required=False, default="", allow_blank=True)


class AskChannel(Body):
    """How payouts go out."""

    channel = serializers.ChoiceField(choices=("bank-file", "stripe"))


class AskReversal(Body):
    """What of a transfer is to come back, and why. number: which request of the payout it is."""

    number = serializers.IntegerField(min_value=1, max_value=1_000)
    amount = AmountField()
    reason = TextField(max_length=200)


class StripeShown(serializers.ModelSerializer[PayeeRow]):
    """An owner's account at Stripe. state: empty (none), asked, details-missing, ready, restricted.

    offered: payouts go over Stripe here. channel: empty: by bank file. usable_from: when the one
    that was chosen counts. missing, words: what Stripe wants to know, and what it says.
    """

    offered = serializers.SerializerMethodField()
    account = serializers.CharField(source="stripe_account")
    country = serializers.CharField(source="stripe_country")
    state = serializers.CharField(source="stripe_state")
    missing = serializers.ListField(child=serializers.CharField(), source="stripe_missing")
    words = serializers.CharField(source="stripe_words")
    usable_from = MomentField(source="channel_from", allow_null=True)

    class Meta:
        model = PayeeRow
        fields: ClassVar[tuple[str, ...]] = (
            "account_id",
            "offered",
            "channel",
            "usable_from",
            "account",
            "country",
            "state",
            "missing",
            "words",
        )

    def get_offered(self, row: PayeeRow) -> bool:
        """Tell if anybody is paid over Stripe here."""
        return accounts.is_offered()


class StripeLinkShape(serializers.Serializer[Any]):
    """A page at Stripe. It can be used once, within minutes; it is not kept here."""

    url = serializers.CharField()


class ReversalShown(serializers.ModelSerializer[TransferReversalRow]):
    """What of a transfer is to come back: asked, back or failed. number: 0: made at Stripe."""

    amount = AmountField(source="nanos")
    changed_at = MomentField()

    class Meta:
        model = TransferReversalRow
        fields: ClassVar[tuple[str, ...]] = (
            "payout_id",
            "number",
            "amount",
            "currency",
            "state",
            "reason",
            "reference",
            "changed_at",
        )


class BankPayoutShown(serializers.ModelSerializer[BankPayoutRow]):
    """A payout from Stripe to the owner's bank: on-its-way, arrived or failed."""

    amount = AmountField(source="nanos")
    at = MomentField()

    class Meta:
        model = BankPayoutRow
        fields: ClassVar[tuple[str, ...]] = (
            "reference",
            "amount",
            "currency",
            "state",
            "arrives_on",
            "words",
            "at",
        )


class StripeAccount(Endpoint):
    """An owner's account at Stripe."""

    scopes = {"GET": "payouts:read", "POST": "payouts:write"}
    reads = MONEY

    @extend_schema(responses=StripeShown)
    def get(self, request: Request, payee_id: UUID) -> Response:
        """Show it, and how payouts go out."""
        return Response(StripeShown(queries.payee(self.actor, payee_id)).data)

    @extend_schema(request=AskStripe, responses={201: WrittenAt})
    def post(self, request: Request, payee_id: UUID) -> Response:
        """Ask for one, for one's own earnings; there is one only."""
        asked, row = self.body(AskStripe), paying.need_payee(self.actor, payee_id)
        position = accounts.begin(
            self.store(),
            row,
            country=asked["country"],
            user_id=self.actor.need_person(),
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"position": position}, status=201)


class StripeOnboarding(Endpoint):
    """Going on with an account at Stripe."""

    scopes = {"POST": "payouts:write"}
    reads = MONEY

    @extend_schema(request=None, responses=StripeLinkShape)
    def post(self, request: Request, payee_id: UUID) -> Response:
        """Have a page made on which Stripe asks what it wants to know."""
        row = paying.need_payee(self.actor, payee_id)
        url = accounts.onboarding(row, self.store(), site=site_address(request))
        return Response({"url": url})


class StripeLook(Endpoint):
    """How an account at Stripe stands."""

    scopes = {"POST": "payouts:write"}
    reads = MONEY

    @extend_schema(request=None, responses=WrittenAt)
    def post(self, request: Request, payee_id: UUID) -> Response:
        """Ask Stripe, where word of it did not come yet."""
        row = paying.need_payee(self.actor, payee_id)
        position = accounts.look(row, self.store(), by=self.meta(), now=timezone.now())
        return Response({"position": position})


class PayeeChannel(Endpoint):
    """How payouts go out."""

    scopes = {"PUT": "payouts:write"}
    reads = MONEY

    @extend_schema(request=AskChannel, responses=WrittenAt)
    def put(self, request: Request, payee_id: UUID) -> Response:
        """Choose it, for one's own earnings."""
        asked, row = self.body(AskChannel), paying.need_payee(self.actor, payee_id)
        position = accounts.choose(
            self.store(),
            row,
            asked["channel"],
            user_id=self.actor.need_person(),
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"position": position})


class BankPayouts(Endpoint):
    """Payouts from Stripe to an owner's bank."""

    scopes = {"GET": "payouts:read"}
    reads = MONEY

    @extend_schema(responses=BankPayoutShown(many=True))
    def get(self, request: Request, payee_id: UUID) -> Response:
        """List them, the newest first."""
        row = queries.payee(self.actor, payee_id)
        return self.page(over_stripe.bank_payouts(row), BankPayoutShown, ("-at", "reference"))


class Reversals(Endpoint):
    """What of a payout over Stripe came back, or is to."""

    scopes = {"GET": "payouts:read", "POST": "payouts:write"}
    reads = MONEY

    @extend_schema(responses=ReversalShown(many=True))
    def get(self, request: Request, payout_id: UUID) -> Response:
        """List it."""
        row = queries.payout(self.actor, payout_id)
        return self.page(over_stripe.reversals(row), ReversalShown, ("key",))

    @extend_schema(request=AskReversal, responses={201: WrittenAt})
    def post(self, request: Request, payout_id: UUID) -> Response:
        """Take a part of a transfer back: it is the owner's earnings again once it came."""
        asked, user_id = self.body(AskReversal), paying.need_to_pay(self.actor)
        row = queries.payout(self.actor, payout_id)
        accounts.need_connect()
        position = commands.ask_transfer_back(
            self.store(),
            AccountId(row.account_id),
            payout_id,
            number=asked["number"],
            money=Money(asked["amount"], row.currency),
            unit=paying.unit_of(row.currency),
            reason=asked["reason"],
            user_id=user_id,
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"position": position}, status=201)
