"""The market's tape: one line for each thing that everybody may know, oldest to newest.

It names models, numbers and prices, never a tenant, a host or a person.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from bursting.domain.events import BurstRunning, BurstTerminated
from config.figures import duration_text
from config.models import TapeRow
from ledger.domain.event import Event
from ledger.domain.money import Rate
from ledger.eventstore.port import Recorded
from ledger.following import Projection, names_of
from ledger.rows import Rows
from listings.domain.events import OfferPublished, OfferWithdrawn
from marketplace.domain.close_reasons import REASONS
from marketplace.domain.events import (
    BidPlaced,
    LeaseClosed,
    LeaseGranted,
    LeaseScheduled,
    ReclaimRequested,
    RoundCleared,
)

TIMES = "\N{MULTIPLICATION SIGN}"
KINDS = (
    OfferPublished,
    OfferWithdrawn,
    BidPlaced,
    RoundCleared,
    LeaseGranted,
    LeaseScheduled,
    ReclaimRequested,
    LeaseClosed,
    BurstRunning,
    BurstTerminated,
)


@dataclass(frozen=True, slots=True)
class Line:
    """What the tape says of one event. is_trade: GPUs were leased at `price`."""

    at: datetime
    text: str
    gpu_model: str = ""
    price: Rate | None = None
    is_trade: bool = False


def line_of(event: Event) -> Line | None:
    """Return the line for an event, or None where there is nothing for everybody to know."""
    match event:
        case OfferPublished():
            model = _commonest(gpu.model for gpu in event.gpus)
            kind = "Cloud capacity listed" if event.source == "burst" else "New offer"
            text = f"{kind}: {len(event.gpus)} {TIMES} {model}"
            return Line(event.at, text, model, event.floor)
        case OfferWithdrawn():
            return Line(event.at, "An offer was withdrawn")
        case BidPlaced():
            wanted = event.request.models[0] if len(event.request.models) == 1 else "GPU"
            length = duration_text(timedelta(seconds=event.duration_seconds))
            text = f"Bid for {event.gpus} {TIMES} {wanted}, {length}"
            return Line(event.at, text, wanted if wanted != "GPU" else "", event.limit)
        case RoundCleared() if event.lane == "round" and event.bids:
            text = f"Round cleared: {event.grants} of {event.bids} bids, {event.gpus} GPUs"
            return Line(event.at, text)
        case LeaseGranted(own=True) | LeaseScheduled(own=True):
            return None  # own use is no trade
        case LeaseGranted(binds=False) | LeaseScheduled(round_id=None):
            return None  # told once its lease is scheduled; or told when it was granted
        case LeaseGranted() | LeaseScheduled():
            gpus = sum(len(share.gpu_uuids) for share in event.shares)
            text = f"Leased {gpus} {TIMES} {event.gpu_model}, {duration_text(event.window.length)}"
            return Line(event.at, text, event.gpu_model, event.price, is_trade=True)
        case ReclaimRequested():
            return Line(event.at, f"An owner takes GPUs back in {_until(event)}")
        case LeaseClosed():
            return Line(event.at, f"A lease ended. {REASONS.get(event.reason, '')}".strip())
        case BurstRunning():
            return Line(event.at, "Cloud GPUs joined the market")
        case BurstTerminated():
            return Line(event.at, "Cloud GPUs were given back")
        case _:
            return None


def _commonest(models: Iterable[str]) -> str:
    return Counter(models).most_common(1)[0][0]


def _until(event: ReclaimRequested) -> str:
    return duration_text(event.stop_at - event.at)


def project_tape(recorded: Recorded, rows: Rows) -> None:
    """Keep TapeRow equal to what has been said."""
    line = line_of(recorded.event)
    if line is not None:
        rows.add(
            TapeRow(
                position=recorded.position,
                at=line.at,
                text=line.text[:200],
                gpu_model=line.gpu_model,
                price_nanos_per_gpu_hour=line.price.nanos_per_gpu_hour if line.price else None,
                currency=line.price.currency if line.price else "",
            )
        )


def latest(count: int = 40) -> list[TapeRow]:
    """Return the newest lines, newest first."""
    return list(TapeRow.objects.order_by("-position")[:count])


PROJECTIONS = (
    Projection(name="site.tape", project=project_tape, tables=(TapeRow,), on=names_of(*KINDS)),
)
