"""Run a stretch of the log again, as the rules are and under others, beside what was recorded."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ledger.domain.refusal import Invalid
from ledger.eventstore.port import START, EventStore, Position, Recorded
from marketplace.domain.book import READS
from marketplace.domain.events import DECISIONS
from marketplace.domain.governance import HALF_LIFE_SECONDS_MAX
from marketplace.lab.beginning import snapshot_before
from marketplace.lab.figures import Figures, figures_of
from marketplace.lab.parties import Swing, parties_of, swings
from marketplace.lab.running import Run, Stretch, Variant
from marketplace.lab.tally import Tally
from marketplace.snapshots.port import Snapshot

PAGE = 1_000
EVENTS_MAX = 100_000
"""Facts and decisions that are read for one answer: from the snapshot before the stretch on."""
FACTS_MAX = 10_000
"""Facts and decisions of the stretch that are run again."""
SECONDS_MAX = 20.0
STEP_SECONDS_MAX = 2.0
HOURS_MAX = 168
FEE_PPM_MAX = 500_000
ROUND_SECONDS_MAX = 86_400

CANNOT_CHANGE = (
    "Bids come, change and are withdrawn when they were: nobody bids otherwise because the rules "
    "are others.",
    "Who left a lease early leaves after the same time of use, and who asked for more asks for as "
    "much.",
    "Offers come, change price and go when they did; an owner who took GPUs back takes them from "
    "whoever holds them then.",
    "Cloud capacity comes when it came, if the bid it was fetched for still waits by then.",
    "Money and quotas refused bids before they were placed; such bids are in neither run.",
)
"""What a run keeps of the past, whatever the rules."""


class StretchOutOfRange(Invalid):
    """The lab runs the last 1 to 168 hours again."""


class StretchTooLong(Invalid):
    """There is more in the log than the lab goes through for one answer.

    Ask for fewer hours.
    """


class StretchEmpty(Invalid):
    """Nothing happened on the market in that time.

    Ask for more hours.
    """


class FeeOutOfRange(Invalid):
    """The platform's fee is between nothing and half of the price."""


class HalfLifeOutOfRange(Invalid):
    """Use is forgotten by half in one minute to 366 days."""


class RoundsOutOfRange(Invalid):
    """Rounds are between one second and a day apart."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of the lab. fee_ppm: of each charge, under the variant; rules are the rest."""

    hours: int
    variant: Variant
    fee_ppm: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was, what comes of running it again as the rules are, and under the variant.

    `again` differs from `recorded` by what a run cannot know, such as when exactly the engine
    looked and a round was due; `variant` is to be compared with `again`. facts: how many were
    run again. parties: each of those in it under `again` and under `variant`.
    """

    since: datetime
    until: datetime
    facts: int
    recorded: Figures
    again: Figures
    variant: Figures
    parties: tuple[Swing, ...] = ()


def compare(
    store: EventStore,
    *,
    market: str,
    currency: str,
    question: Question,
    present: Variant,
    fee_ppm: int,
    now: datetime,
) -> Comparison:
    """Answer a question; nothing is written.

    Args:
        present, fee_ppm: as the installation runs.

    Raises: StretchOutOfRange, StretchTooLong, StretchEmpty, FeeOutOfRange, RoundsOutOfRange,
        HalfLifeOutOfRange, LabTooSlow.
    """
    _check(question)
    since = now - timedelta(hours=question.hours)
    stretch = _stretch(store, market, since, now)
    enough = _out_of_time(SECONDS_MAX)

    begins = None if stretch.start is None else stretch.start.state

    def told(log: Sequence[Recorded]) -> Tally:
        return Tally.of(log, market, stretch.after, begins)

    def measured(tally: Tally, fee: int) -> Figures:
        return figures_of(tally, currency=currency, since=since, until=now, fee_ppm=fee)

    again = told(Run(stretch, present).again(enough=enough))
    other = told(Run(stretch, question.variant).again(enough=enough))
    return Comparison(
        since=since,
        until=now,
        facts=len(stretch.recorded),
        recorded=measured(told([*stretch.history, *stretch.recorded]), fee_ppm),
        again=measured(again, fee_ppm),
        variant=measured(other, question.fee_ppm),
        parties=swings(
            parties_of(again, currency=currency, fee_ppm=fee_ppm),
            parties_of(other, currency=currency, fee_ppm=question.fee_ppm),
        ),
    )


def _check(question: Question) -> None:
    if not 1 <= question.hours <= HOURS_MAX:
        raise StretchOutOfRange(hours_max=HOURS_MAX)
    if not 0 <= question.fee_ppm <= FEE_PPM_MAX:
        raise FeeOutOfRange(fee_ppm_max=FEE_PPM_MAX)
    if not 1 <= question.variant.round_seconds <= ROUND_SECONDS_MAX:
        raise RoundsOutOfRange(round_seconds_max=ROUND_SECONDS_MAX)
    half_life = question.variant.half_life_seconds
    if half_life is not None and not 60 <= half_life <= HALF_LIFE_SECONDS_MAX:
        raise HalfLifeOutOfRange(half_life_seconds_max=HALF_LIFE_SECONDS_MAX)


def _stretch(store: EventStore, market: str, since: datetime, until: datetime) -> Stretch:
    """Read the log; the stretch begins with the first record of something not before `since`."""
    start = snapshot_before(store, market, since)
    read = None if start is None else _read(store, market, since, start)
    if read is None:
        start, read = None, _read(store, market, since, None)
    assert read is not None
    history, recorded = read
    if not recorded:
        raise StretchEmpty()
    behind = None if start is None else _behind(store, start.next_position)
    return Stretch(market, history, recorded, since, until, start, behind)


def _read(
    store: EventStore, market: str, since: datetime, start: Snapshot | None
) -> tuple[list[Recorded], list[Recorded]] | None:
    """Return what came before the stretch, from the snapshot on, and in it.

    None where an engine decided later that had read less than the snapshot.
    """
    history: list[Recorded] = []
    recorded: list[Recorded] = []
    position = START if start is None else start.next_position
    stream, version = f"market-{market}", 0 if start is None else start.version
    while True:
        page = store.read_all(after=position, limit=PAGE, only=READS)
        for each in page.events:
            if each.stream == stream and each.version <= version:
                continue  # in the snapshot: appended before it was taken, read after
            event: Any = each.event
            decided = each.stream == stream and isinstance(event, DECISIONS)
            if start is not None and decided and event.through < start.state.read_to:
                return None
            (recorded if recorded or event.at >= since else history).append(each)
        if len(history) + len(recorded) > EVENTS_MAX or len(recorded) > FACTS_MAX:
            raise StretchTooLong(events_max=EVENTS_MAX, facts_max=FACTS_MAX)
        position = page.next_position
        if page.caught_up:
            return history, recorded


def _behind(store: EventStore, position: Position) -> Callable[[str], Sequence[Recorded]]:
    """Return what reads what a stream held at a position."""

    def read(stream: str) -> Sequence[Recorded]:
        return [each for each in store.read_stream(stream) if each.position <= position]

    return read


def _out_of_time(seconds: float) -> Callable[[], bool]:
    """Return what says that time is up.

    A step counts for STEP_SECONDS_MAX at most: the engine searches no longer than that, so what
    is beyond is the compiling of a kernel, once in a process.
    """
    spent, last = 0.0, time.monotonic()

    def enough() -> bool:
        nonlocal spent, last
        now = time.monotonic()
        spent, last = spent + min(now - last, STEP_SECONDS_MAX), now
        return spent > seconds

    return enough
