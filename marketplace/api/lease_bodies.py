"""What is sent about leases."""

from __future__ import annotations

from ledger.rest import AmountField, Body, CountField, MomentField, TextField


class AskExtension(Body):
    """Until when to go on."""

    ends_at = MomentField()


class AskReclaim(Body):
    """How much notice to give, in seconds; left out: the least that was agreed."""

    notice_seconds = CountField(required=False)


class AskResale(Body):
    """What is left from `since` on (left out: from now on) is for sale, at `floor` or more."""

    floor = AmountField()
    currency = TextField(required=False)
    since = MomentField(required=False)
    lease_min_seconds = CountField(required=False)


class ReportCheckpoint(Body):
    """Up to when the work is safe; left out: up to now."""

    safe_at = MomentField(required=False)
