"""Reading the log into the rows of bursting."""

from __future__ import annotations

from bursting.models import BurstInstanceRow, BurstWaitRow, HomeMoveRow, StrayRow, WaitingBidRow
from bursting.projections import PROJECTIONS
from ledger.eventstore.port import START
from ledger.rows import Rows
from tests.bursting.market import Market


def read(market: Market) -> None:
    """Write the rows anew from all that the market's store holds."""
    BurstInstanceRow.objects.all().delete()
    WaitingBidRow.objects.all().delete()
    BurstWaitRow.objects.all().delete()
    StrayRow.objects.all().delete()
    HomeMoveRow.objects.all().delete()
    rows = Rows()
    for recorded in market.store.read_all(after=START, limit=10_000).events:
        for projection in PROJECTIONS:
            if recorded.type in projection.on:
                projection.project(recorded, rows)
    rows.flush()
