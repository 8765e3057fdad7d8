"""What the API of money answers that is worked out and not kept in rows."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers

from ledger.rest import AmountField, MomentField
from ledger.rest.cursors import CURSOR_LENGTH_MAX, LIMIT_DEFAULT, LIMIT_MAX

PAGE = [
    OpenApiParameter(
        "limit",
        {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT},
    ),
    OpenApiParameter(
        "cursor",
        {"type": "string", "maxLength": CURSOR_LENGTH_MAX},
        description="`next` of the page before",
    ),
]
"""What a page of a statement is asked with."""


class StatementLineShape(serializers.Serializer[Any]):
    """One posting, and what the account held after it."""

    entry_id = serializers.UUIDField()
    kind = serializers.CharField()
    amount = AmountField()
    balance = AmountField()
    lease_id = serializers.UUIDField(allow_null=True)
    cost_centre = serializers.CharField(allow_blank=True, allow_null=True)
    reference = serializers.CharField(allow_blank=True)
    at = MomentField()
    position = serializers.IntegerField()


class StatementShape(serializers.Serializer[Any]):
    """A month of an account. totals: by kind of entry. lines: of the whole month."""

    account_id = serializers.UUIDField()
    period = serializers.CharField()
    currency = serializers.CharField()
    opening = AmountField()
    closing = AmountField()
    totals = serializers.DictField(child=AmountField())
    lines = serializers.IntegerField()
    data = StatementLineShape(many=True)  # type: ignore[assignment]  # a field of that name
    next = serializers.CharField(allow_null=True)


class AccountTotalShape(serializers.Serializer[Any]):
    """An account's total, summed from the journal."""

    account_id = serializers.UUIDField()
    kind = serializers.CharField()
    title = serializers.CharField()
    currency = serializers.CharField()
    total = AmountField()


class TrialBalanceShape(serializers.Serializer[Any]):
    """Every account that you may see; others: the sum of the rest, by currency."""

    data = AccountTotalShape(many=True)  # type: ignore[assignment]  # a field of that name
    others = serializers.DictField(child=AmountField())


class SpendShape(serializers.Serializer[Any]):
    """What a cost centre was charged in a month. gpu_millis: GPU-milliseconds."""

    tenant_id = serializers.UUIDField()
    cost_centre = serializers.CharField(allow_blank=True)
    charged = AmountField()
    currency = serializers.CharField()
    gpu_millis = serializers.IntegerField()
    leases = serializers.IntegerField()


class DifferenceShape(serializers.Serializer[Any]):
    """How an export differs from what it was as of an earlier event.

    position, sha256: of the earlier one. rows, sums: what there is more, by currency. entries: ids
    of journal entries that came, the first of them; entries_count: how many that were.
    """

    position = serializers.IntegerField()
    sha256 = serializers.CharField()
    rows = serializers.IntegerField()
    sums = serializers.DictField(child=AmountField())
    entries = serializers.ListField(child=serializers.UUIDField())
    entries_count = serializers.IntegerField()


class ManifestShape(serializers.Serializer[Any]):
    """What an export holds. sums: by currency. sha256: of its bytes. scope: `everything`, or the
    tenant whose accounts alone are in it. head_hash: of the event at `position`, which covers all
    before it; empty where the event store chains none. differs_from: what came since the event
    that `since` names; null where it names none.
    """

    format = serializers.CharField()
    version = serializers.CharField()
    period = serializers.CharField()
    position = serializers.IntegerField()
    rows = serializers.IntegerField()
    sums = serializers.DictField(child=AmountField())
    bytes = serializers.IntegerField()
    sha256 = serializers.CharField()
    scope = serializers.CharField()
    head_hash = serializers.CharField(allow_blank=True)
    differs_from = DifferenceShape(allow_null=True)
