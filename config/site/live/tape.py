"""The market's tape: one line for each thing that everybody may know, oldest to newest.

It names models, numbers and prices, never a tenant, a host or a person.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlencode
from uuid import UUID

from bursting.domain.events import BurstRunning, BurstTerminated
from config.models import TapeRow, TapeSubjectRow
from config.site.parts.figures import duration_text
from ledger.domain.event import Event
from ledger.domain.money import Rate
from ledger.eventstore.port import Recorded
from ledger.following import Projection, names_of
from ledger.rows import Rows
from listings.domain.events import OfferPublished, OfferWithdrawn
from marketplace.domain.facts.close_reasons import REASONS
from marketplace.domain.facts.events import (
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
class Subject:
    """What lines are about: an offer or a lease, as everybody may know it (`4 x H100`).

    key: its id, by which later lines find it; no line shows it.
    """

    key: UUID
    gpus: str
    gpu_model: str


@dataclass(frozen=True, slots=True)
class Line:
    """What the tape says of one event. is_trade: GPUs were leased at `price`.

    subject: set by the line that tells of it first. round_id: that decided it.
    """

    at: datetime
    text: str
    gpu_model: str = ""
    price: Rate | None = None
    is_trade: bool = False
    subject: Subject | None = None
    round_id: UUID | None = None

    @property
    def path(self) -> str:
        """Return where to read on."""
        return path_of(self.round_id, self.gpu_model)


Known = Callable[[UUID], Subject | None]
"""Finds what an earlier line was about."""


def _nothing(key: UUID) -> Subject | None:
    return None


def path_of(round_id: UUID | None, gpu_model: str) -> str:
    """Return where to read on about a line: its round, or the market of its model; or nowhere."""
    if round_id is not None:
        return f"/rounds/{round_id}"
    return f"/?{urlencode({'gpu': gpu_model})}" if gpu_model else ""


def line_of(event: Event, known: Known = _nothing) -> Line | None:
    """Return the line for an event, or None where there is nothing for everybody to know."""
    match event:
        case OfferPublished():
            model = _commonest(gpu.model for gpu in event.gpus)
            kind = "Cloud capacity listed" if event.source == "burst" else "New offer"
            subject = _subject(event.offer_id, len(event.gpus), model)
            text = f"{kind}: {subject.gpus}"
            return Line(event.at, text, model, event.floor, subject=subject)
        case OfferWithdrawn():
            return _later(event.at, "Withdrawn", "An offer was withdrawn", known(event.offer_id))
        case BidPlaced():
            wanted = event.request.models[0] if len(event.request.models) == 1 else "GPU"
            length = duration_text(timedelta(seconds=event.duration_seconds))
            text = f"Bid for {event.gpus} {TIMES} {wanted}, {length}"
            return Line(event.at, text, wanted if wanted != "GPU" else "", event.limit)
        case RoundCleared() if event.lane == "round" and event.bids:
            text = f"Round cleared: {event.grants} of {event.bids} bids, {event.gpus} GPUs"
            return Line(event.at, text, round_id=event.round_id)
        case LeaseGranted(own=True) | LeaseScheduled(own=True):
            return None  # own use is no trade
        case LeaseGranted(binds=False) | LeaseScheduled(round_id=None):
            return None  # told once its lease is scheduled; or told when it was granted
        case LeaseGranted() | LeaseScheduled():
            gpus = sum(len(share.gpu_uuids) for share in event.shares)
            subject = _subject(event.lease_id, gpus, event.gpu_model)
            return Line(
                event.at,
                f"Leased {subject.gpus}, {duration_text(event.window.length)}",
                event.gpu_model,
                event.price,
                is_trade=True,
                subject=subject,
                round_id=event.round_id,
            )
        case ReclaimRequested():
            text = f"An owner takes GPUs back in {_until(event)}"
            return _later(event.at, text, text, known(event.lease_id))
        case LeaseClosed():
            why = f" {REASONS.get(event.reason, '')}".rstrip()
            return _later(event.at, f"Ended.{why}", f"A lease ended.{why}", known(event.lease_id))
        case BurstRunning():
            return Line(event.at, "Cloud GPUs joined the market")
        case BurstTerminated():
            return Line(event.at, "Cloud GPUs were given back")
        case _:
            return None


def _subject(key: UUID, gpus: int, model: str) -> Subject:
    return Subject(key, f"{gpus} {TIMES} {model}", model)


def _later(at: datetime, text: str, alone: str, subject: Subject | None) -> Line:
    """Return a line about what an earlier one told of; `alone` where none did."""
    if subject is None:
        return Line(at, alone)
    return Line(at, f"{subject.gpus}: {text[0].lower()}{text[1:]}", subject.gpu_model)


def _commonest(models: Iterable[str]) -> str:
    return Counter(models).most_common(1)[0][0]


def _until(event: ReclaimRequested) -> str:
    return duration_text(event.stop_at - event.at)


def project_tape(recorded: Recorded, rows: Rows) -> None:
    """Keep TapeRow equal to what has been said."""

    def known(key: UUID) -> Subject | None:
        return _read(rows.find(TapeSubjectRow, key))

    line = line_of(recorded.event, known)
    if line is not None:
        if line.subject is not None and known(line.subject.key) is None:
            told = line.subject
            rows.make(
                TapeSubjectRow,
                subject_id=told.key,
                gpus=told.gpus[:80],
                gpu_model=told.gpu_model[:64],
            )
        rows.make(
            TapeRow,
            position=recorded.position,
            at=line.at,
            text=line.text[:200],
            gpu_model=line.gpu_model,
            price_nanos_per_gpu_hour=line.price.nanos_per_gpu_hour if line.price else None,
            currency=line.price.currency if line.price else "",
            round_id=line.round_id,
        )


def known_now(key: UUID) -> Subject | None:
    """Return what the tape has told of, as of now."""
    return _read(TapeSubjectRow.objects.filter(pk=key).first())


def _read(row: TapeSubjectRow | None) -> Subject | None:
    return None if row is None else Subject(row.subject_id, row.gpus, row.gpu_model)


def line_of_row(row: TapeRow) -> Line:
    """Return the line that a row keeps; whether it was a trade is not kept."""
    nanos = row.price_nanos_per_gpu_hour
    price = None if nanos is None else Rate(nanos, row.currency)
    return Line(row.at, row.text, row.gpu_model, price, round_id=row.round_id)


def latest(count: int = 40) -> list[TapeRow]:
    """Return the newest lines, newest first."""
    return list(TapeRow.objects.order_by("-position")[:count])


PROJECTIONS = (
    Projection(
        name="site.tape",
        project=project_tape,
        tables=(TapeRow, TapeSubjectRow),
        is_bulk=True,
        on=names_of(*KINDS),
    ),
)
