"""Wallets that top themselves up where little is available."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from django.db.models import F, OuterRef, Subquery

from ledger.commands.wallet import request_automatic_top_up
from ledger.domain.ids import AccountId
from ledger.eventstore.port import EventStore, Meta
from ledger.models import AccountRow, WalletRow
from ledger.payments import default_payments
from ledger.turns import each_alone

BY = Meta(actor="loop:automatic-top-ups")


def run_once(store: EventStore, *, now: datetime) -> int:
    """Ask for a top-up of each wallet whose rule says so; return how many wallets were low."""
    if default_payments() is None:
        return 0
    available = AccountRow.objects.filter(pk=OuterRef("account_id")).values("available_nanos")
    low = (
        WalletRow.objects.filter(below_nanos__isnull=False)
        .annotate(available=Subquery(available))
        .filter(available__lt=F("below_nanos"))
    )

    def top_up(account_id: UUID) -> int:
        before = store.head()
        position = request_automatic_top_up(store, account_id=AccountId(account_id), by=BY, now=now)
        return int(position > before)

    keys = list(low.order_by("account_id").values_list("account_id", flat=True))
    return each_alone(
        keys,
        top_up,
        event="payments.automatic-top-up-failed",
        told=lambda account_id: {"account": str(account_id)},
    )
