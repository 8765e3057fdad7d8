"""Run a stretch of the log again, as the rules are and under others, beside what was recorded.

What is read of the log and what is made of it are two steps: the second needs no store, so it can
be taken in a process of its own (`apart`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ledger.domain.refusal import Invalid
from ledger.eventstore.port import START, EventStore, Position, Recorded
from marketplace.domain.book.book import READS
from marketplace.domain.facts.events import DECISIONS
from marketplace.domain.governance.dispatch import HALF_LIFE_SECONDS_MAX, LEAST_RUN_SECONDS_MAX
from marketplace.lab.beginning import place_of, snapshot_before
from marketplace.lab.figures import Figures, figures_of
from marketplace.lab.parties import Swing, parties_of, swings
from marketplace.lab.running import Run, Stretch
from marketplace.lab.tally import Tally
from marketplace.lab.variants import Variant
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


class LeastRunOutOfRange(Invalid):
    """Leases run undisturbed for at most a day."""


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
    run again. parties: each of those in it under `again` and under `variant`. Whether cohorts got
    what was theirs is told of all three by the cohorts and weights of the variant.
    """

    since: datetime
    until: datetime
    facts: int
    recorded: Figures
    again: Figures
    variant: Figures
    parties: tuple[Swing, ...] = ()


@dataclass(frozen=True, slots=True)
class Job:
    """All that an answer needs. present, fee_ppm: as the installation runs."""

    stretch: Stretch
    currency: str
    question: Question
    present: Variant
    fee_ppm: int

    @property
    def steps(self) -> int:
        """Return how many facts and decisions are gone through, in both runs."""
        return 2 * len(self.stretch.recorded)


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
    """Answer a question at once, in this process; nothing is written.

    Raises: as `prepared` and `answered`.
    """
    return answered(
        prepared(
            store,
            market=market,
            currency=currency,
            question=question,
            present=present,
            fee_ppm=fee_ppm,
            now=now,
        )
    )


def prepared(
    store: EventStore,
    *,
    market: str,
    currency: str,
    question: Question,
    present: Variant,
    fee_ppm: int,
    now: datetime,
) -> Job:
    """Check a question and read what it needs of the log.

    Raises: StretchOutOfRange, StretchTooLong, StretchEmpty, FeeOutOfRange, RoundsOutOfRange,
        HalfLifeOutOfRange, LeastRunOutOfRange.
    """
    _check(question)
    since = now - timedelta(hours=question.hours)
    return Job(_stretch(store, market, since, now), currency, question, present, fee_ppm)


def answered(
    job: Job,
    *,
    clock: Callable[[], float] = time.monotonic,
    told: Callable[[int], None] = lambda done: None,
) -> Comparison:
    """Run the stretch again, twice, and measure it.

    Args:
        clock: by which the time that it may take is counted.
        told: told now and then how many of `job.steps` are done.

    Raises: LabTooSlow.
    """
    stretch, enough = job.stretch, _out_of_time(SECONDS_MAX, clock)
    begins = None if stretch.start is None else stretch.start.state

    def tally(log: Sequence[Recorded]) -> Tally:
        return Tally.of(log, stretch.market, stretch.after, begins)

    def measured(taken: Tally, fee: int) -> Figures:
        return figures_of(
            taken,
            currency=job.currency,
            since=stretch.since,
            until=stretch.until,
            fee_ppm=fee,
            policies=other.policies,
        )

    half, other_fee = job.steps // 2, job.question.fee_ppm
    again = tally(Run(stretch, job.present).again(enough=enough, told=told))
    variant = Run(stretch, job.question.variant)
    other = tally(variant.again(enough=enough, told=lambda done: told(half + done)))
    return Comparison(
        since=stretch.since,
        until=stretch.until,
        facts=len(stretch.recorded),
        recorded=measured(tally([*stretch.history, *stretch.recorded]), job.fee_ppm),
        again=measured(again, job.fee_ppm),
        variant=measured(other, other_fee),
        parties=swings(
            parties_of(again, currency=job.currency, fee_ppm=job.fee_ppm),
            parties_of(other, currency=job.currency, fee_ppm=other_fee),
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
    least_run = question.variant.least_run_seconds
    if least_run is not None and not 0 <= least_run <= LEAST_RUN_SECONDS_MAX:
        raise LeastRunOutOfRange(least_run_seconds_max=LEAST_RUN_SECONDS_MAX)


def _stretch(store: EventStore, market: str, since: datetime, until: datetime) -> Stretch:
    """Read the log up to where the stretch begins, and from there on."""
    place = place_of(store, market, since)
    if place is None:
        raise StretchEmpty()
    start = snapshot_before(store, market, place)
    read = None if start is None else _read(store, market, place, start)
    if read is None:
        start, read = None, _read(store, market, place, None)
    assert read is not None
    history, recorded = read
    begins = START if start is None else start.next_position
    after = history[-1].position if history else begins
    behind = None if start is None else _behind(store, begins)
    return Stretch(market, history, recorded, since, until, after, start, behind)


def _read(
    store: EventStore, market: str, place: Position, start: Snapshot | None
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
            (recorded if each.position > place else history).append(each)
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


def _out_of_time(seconds: float, clock: Callable[[], float]) -> Callable[[], bool]:
    """Return what says that time is up.

    A step counts for STEP_SECONDS_MAX at most: the engine searches no longer than that, so what
    is beyond is the compiling of a kernel, once in a process.
    """
    spent, last = 0.0, clock()

    def enough() -> bool:
        nonlocal spent, last
        now = clock()
        spent, last = spent + min(now - last, STEP_SECONDS_MAX), now
        return spent > seconds

    return enough
