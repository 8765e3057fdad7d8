"""What the API of payouts is asked, and answers."""

from __future__ import annotations

from typing import Any, ClassVar

from rest_framework import serializers

from ledger.domain.bank_details import NAME_LENGTH_MAX
from ledger.models import BankFileRow, PayeeRow, PayoutRow
from ledger.queries.payouts import EarnedBy
from ledger.rest import AmountField, Body, MomentField, TextField
from ledger.rest.schema import WrittenAt


class AskSchedule(Body):
    """How often, and from how much on; minimum null: as the platform says."""

    schedule = serializers.ChoiceField(choices=("weekly", "monthly", "manual"))
    minimum = AmountField(allow_null=True, required=False, default=None)


class AskDetails(Body):
    """A bank account: an IBAN, or an account number with its routing number."""

    name = TextField(max_length=NAME_LENGTH_MAX)
    iban = TextField(max_length=42, required=False, default="", allow_blank=True)
    bic = TextField(max_length=11, required=False, default="", allow_blank=True)
    account = TextField(max_length=20, required=False, default="", allow_blank=True)
    routing = TextField(max_length=12, required=False, default="", allow_blank=True)


class AskReason(Body):
    """Why, in words for whoever reads it later."""

    reason = TextField(max_length=200)


class AskPaid(Body):
    """What the bank's statement says."""

    reference = TextField(max_length=200)
    paid_on = serializers.DateField()


class AskFile(Body):
    """Which payouts go into a file for the bank; none named: all that can."""

    format = serializers.ChoiceField(choices=("pain.001", "csv"))
    currency = TextField(max_length=3)
    payouts = serializers.ListField(
        child=serializers.UUIDField(), max_length=500, required=False, default=list
    )


class AskBankNotice(Body):
    """What the bank sent: the text of a camt.054, as it is."""

    content = serializers.CharField(max_length=2_000_000, trim_whitespace=False)


class HeardShape(serializers.Serializer[Any]):
    """One line of it. kind: paid, returned (put on the books now), known, pending, amount, state,
    not-ours; words say more. payout_id: null: it names none of ours."""

    end_to_end_id = serializers.CharField(source="line.end_to_end_id", allow_blank=True)
    reference = serializers.CharField(source="line.reference")
    amount = AmountField(source="line.money.nanos")
    currency = serializers.CharField(source="line.money.currency")
    came = serializers.BooleanField(source="line.came")
    on = serializers.DateField(source="line.on")
    payout_id = serializers.UUIDField(allow_null=True)
    kind = serializers.CharField()
    words = serializers.CharField()


class BankNoticeHeard(WrittenAt):
    """What came of a bank's file, line by line."""

    data = HeardShape(many=True)  # type: ignore[assignment]  # a field of that name


class PayeeShown(serializers.ModelSerializer[PayeeRow]):
    """An owner's earnings and how they are paid out. owed: earned less paid.

    schedule, minimum: what the owner chose; empty and null: as the platform says. details: the
    bank account by country and last four characters. proposed: one that waits to be confirmed.
    """

    earned = AmountField(source="earned_nanos")
    paid = AmountField(source="paid_nanos")
    minimum = AmountField(source="minimum_nanos", allow_null=True)
    details = serializers.CharField(source="details_masked")
    proposed = serializers.CharField(source="proposed_masked")
    usable_from = MomentField(allow_null=True)

    class Meta:
        model = PayeeRow
        fields: ClassVar[tuple[str, ...]] = (
            "account_id",
            "tenant_id",
            "currency",
            "earned",
            "paid",
            "schedule",
            "minimum",
            "details",
            "proposed",
            "proposed_id",
            "usable_from",
        )


class EstimateShape(serializers.Serializer[Any]):
    """What the next settlement would pay, of what is known now. on: the day; null: by hand.

    payable = owed - later - held_back - set_aside, in whole cents.
    """

    on = serializers.CharField(allow_null=True)
    schedule = serializers.CharField()
    minimum = AmountField()
    owed = AmountField()
    later = AmountField()
    held_back = AmountField()
    set_aside = AmountField()
    payable = AmountField()


class PayeeDetailShown(PayeeShown):
    """An owner's earnings with what comes next."""

    next = EstimateShape()

    class Meta(PayeeShown.Meta):
        fields: ClassVar[tuple[str, ...]] = (*PayeeShown.Meta.fields, "next")


class PayoutShown(serializers.ModelSerializer[PayoutRow]):
    """A payout. cut_off: the first day that is not in it. reason: why it ended unpaid.

    channel: how it went out; empty: it did not yet. reversed: what came back of it over Stripe.
    waits_because, again_at: why a transfer waits, and when Stripe is asked for it again.
    """

    amount = AmountField(source="nanos")
    opening = AmountField(source="opening_nanos")
    closing = AmountField(source="closing_nanos")
    held_back = AmountField(source="held_back_nanos")
    requested_at = MomentField()
    sent_at = MomentField(allow_null=True)
    reversed = AmountField(source="reversed_nanos")
    again_at = MomentField(allow_null=True)
    changed_at = MomentField()

    class Meta:
        model = PayoutRow
        fields: ClassVar[tuple[str, ...]] = (
            "payout_id",
            "account_id",
            "tenant_id",
            "period",
            "revision",
            "state",
            "amount",
            "currency",
            "cut_off",
            "opening",
            "closing",
            "held_back",
            "approvals_needed",
            "approved_by",
            "requested_by",
            "requested_at",
            "file_id",
            "sent_at",
            "reference",
            "paid_on",
            "reason",
            "channel",
            "reversed",
            "waits_because",
            "again_at",
            "changed_at",
        )


class EarnedShape(serializers.Serializer[Any]):
    """What a lease, or a kind of entry, did to earnings in a month.

    gross: what consumers paid. fee: what of it the platform took. amount: what is left.
    """

    period = serializers.CharField()
    kind = serializers.CharField()
    lease_id = serializers.UUIDField(allow_null=True)
    sku = serializers.CharField(allow_blank=True)
    currency = serializers.CharField()
    gpu_milliseconds = serializers.IntegerField()
    gross = AmountField()
    fee = AmountField()
    amount = AmountField()


class StatementOfPayout(serializers.Serializer[Any]):
    """Opening and lines, less the payout, make the closing, to the nano-unit."""

    payout = PayoutShown()
    opening = AmountField()
    closing = AmountField()
    data = EarnedShape(many=True)  # type: ignore[assignment]  # a field of that name


class BankFileShown(serializers.ModelSerializer[BankFileRow]):
    """A file of payouts for the bank."""

    total = AmountField(source="total_nanos")
    at = MomentField()

    class Meta:
        model = BankFileRow
        fields: ClassVar[tuple[str, ...]] = (
            "file_id",
            "number",
            "message_id",
            "format",
            "currency",
            "payouts",
            "total",
            "execute_on",
            "sha256",
            "by_user",
            "at",
        )


class DetailsWritten(WrittenAt):
    """A bank account that waits to be confirmed, and the position to read it at."""

    details_id = serializers.UUIDField()


class PayoutWritten(WrittenAt):
    """A payout, and the position to read it at."""

    payout_id = serializers.UUIDField()


class FileContent(serializers.Serializer[Any]):
    """A bank file. content: its text, in UTF-8, whose sha256 is on record."""

    name = serializers.CharField()
    content = serializers.CharField()
    sha256 = serializers.CharField()


class FileWritten(WrittenAt):
    """A bank file, and the position to read it at."""

    file_id = serializers.UUIDField()


def earned_shown(each: EarnedBy) -> dict[str, Any]:
    """Write what was earned as the API answers it."""
    amount = AmountField().to_representation
    return {
        "period": each.period,
        "kind": each.kind,
        "lease_id": each.lease_id and str(each.lease_id),
        "sku": each.sku,
        "currency": each.currency,
        "gpu_milliseconds": each.gpu_millis,
        "gross": amount(each.gross_nanos),
        "fee": amount(each.fee_nanos),
        "amount": amount(each.nanos),
    }
