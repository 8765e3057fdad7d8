"""What the API answers of one lease beside its terms: what cuts it short, attempts, outputs."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from ledger.rest import AmountField, MomentField


class CutShape(serializers.Serializer[Any]):
    """What ends a lease before its time, and who: the `owner`, the `market` for another bid, or
    a `budget` that was reached.

    Of work on a rented machine also the `cloud`, which takes it back, or a `move` of the work home.

    pausing: its work is paused, as its bid allows, and goes on when there is room.
    compensation: what its consumer gets for it; for an owner, what that owner pays.
    """

    by = serializers.CharField()
    pausing = serializers.BooleanField()
    stop_at = MomentField()
    compensation = AmountField(source="money.nanos")
    currency = serializers.CharField(source="money.currency")


class MaintenanceTold(serializers.Serializer[Any]):
    """Maintenance of a host that a lease would run into: it ends by `starts_at`, or when the least
    notice that was agreed is over. announced_at: from when the notice counts.
    """

    host_id = serializers.UUIDField()
    maintenance_id = serializers.UUIDField()
    starts_at = MomentField()
    reason = serializers.CharField()
    announced_at = MomentField()


class WorkAttemptShape(serializers.Serializer[Any]):
    """What one host did of the work. exit_code: null where it was stopped, or is not known.

    commit: of the repository that it began with; empty: of none. left_out: what of that, or of the
    file, did not come, and why.
    """

    number = serializers.IntegerField()
    host_id = serializers.UUIDField()
    started_at = MomentField(allow_null=True)
    ended_at = MomentField(allow_null=True)
    exit_code = serializers.IntegerField(allow_null=True)
    reason = serializers.CharField()
    commit = serializers.CharField()
    left_out = serializers.ListField(child=serializers.CharField())


class OutputShape(serializers.Serializer[Any]):
    """Files that the work left on one host, kept as a folder. attempt: of the bids that follow one
    another, the number of the one whose lease this is. exit_code: null where it was stopped.
    """

    folder_id = serializers.UUIDField()
    host_id = serializers.UUIDField(allow_null=True)
    attempt = serializers.IntegerField()
    exit_code = serializers.IntegerField(allow_null=True)
    files = serializers.IntegerField()
    size_bytes = serializers.IntegerField()
    kept_at = MomentField()


class OutputFailedShape(serializers.Serializer[Any]):
    """What of it could not be kept. final: it is not tried again. volume: of which volume it is
    the next version; empty: it is outputs.
    """

    host_id = serializers.UUIDField()
    volume = serializers.CharField()
    reason = serializers.CharField()
    final = serializers.BooleanField()
    at = MomentField()
