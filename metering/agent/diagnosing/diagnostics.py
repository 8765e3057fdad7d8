"""When which card is probed, and what is told of it.

A card is probed after each lease, after a start that failed on it, when it answers again, once
after the agent's start, and once a day while it rests; never while work or a stranger is on it. One
that failed takes no lease here and is probed again after a minute, then after two, four, up to an
hour, until it passes. A lease that is to start on a card waits for its probe, which is over within
its bound: what is not by then hangs, and has failed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..gpus.port import GpuFault, Gpus
from ..shares import card_of
from ..wire import Gpu
from .bus import Best
from .levels import EXTENTS, Level
from .port import Prober, Verdict

if TYPE_CHECKING:
    from ..clock import Clock

MINUTE_MS = 60_000
AGAIN_MS_MAX = 60 * MINUTE_MS
DAILY_MS = 24 * 60 * MINUTE_MS
AT_ONCE_MAX = 4
"""So many cards are probed at one time, unless leases wait for more."""
OTHERS_MS = 30_000
"""A card with somebody else's processes on it is looked at again after this."""
LINKS = "links.json"
BUS_ONLY = "its bus and its memory's counters are as they should be"


def again_after_ms(failures: int) -> int:
    """Return how long after so many failures in a row a card is probed again."""
    return min(MINUTE_MS << min(max(failures, 1) - 1, 16), AGAIN_MS_MAX)


@dataclass(slots=True)
class Place:
    """What is known of one card. due_ms: from when it is to be probed; since_ms: since when it is.

    failed: why, until it passes; by_bus: its bus was worse, and no more. told_ms: when it was told
    last that it passed.
    """

    due_ms: int
    since_ms: int | None = None
    failures: int = 0
    failed: str = ""
    by_bus: bool = False
    told_ms: int | None = None


Told = tuple[str, Literal["diagnostic-passed", "diagnostic-failed"], str]
"""A card, `diagnostic-passed` or `diagnostic-failed`, and what was found."""


class Diagnostics:
    """Probes the cards of a host; one agent's, under whose lock it is used."""

    def __init__(
        self, gpus: Gpus, prober: Prober | None, clock: Clock, level: Level, state_dir: Path
    ) -> None:
        """Begin. prober: None, or the level `off`: no card is ever probed."""
        self._gpus, self._clock = gpus, clock
        self._prober = None if level == "off" else prober
        self._within_ms = 0 if level == "off" else EXTENTS[level].seconds * 1_000
        self._best = Best(state_dir / LINKS)
        self._places: dict[str, Place] = {}
        self._cards: frozenset[str] = frozenset()
        self._untold: list[Told] = []

    @property
    def probing(self) -> set[str]:
        """Return the cards that are probed at this moment."""
        return {card for card, place in self._places.items() if place.since_ms is not None}

    def owns(self, pid: int) -> bool:
        """Tell if a process is that of a probe."""
        return self._prober is not None and self._prober.owns(pid)

    def want(self, gpu_uuids: Iterable[str]) -> None:
        """Have the cards of these GPUs probed as soon as they are free."""
        for card in map(card_of, gpu_uuids):
            if (place := self._places.get(card)) is not None and not place.failed:
                place.due_ms = 0

    def turn(self, gpus: Collection[Gpu], taken: Collection[str]) -> list[Told]:
        """Take in what probes found, and begin those that are due; return what there is to tell.

        gpus: all of the host. taken: cards that leases have, or are to have by now.
        """
        if self._prober is None:
            return []
        now_ms = self._clock.now_ms()
        # A card in MIG mode is no card to CUDA, and its instances come and go with leases.
        self._cards = frozenset(gpu.uuid for gpu in gpus if not gpu.mig_enabled)
        for card in self._cards:
            self._places.setdefault(card, Place(due_ms=now_ms))
        self._look(now_ms)
        for card in sorted(self._cards):
            place = self._places[card]
            resting = place.since_ms is None and card not in taken and place.due_ms <= now_ms
            if resting and len(self.probing) < AT_ONCE_MAX:
                self._begin(card, place, now_ms)
        found, self._untold = self._untold, []
        return found

    def waits(self, cards: Iterable[str]) -> str:
        """Say which cards are probed first, before work is started on them; empty: none."""
        if self._prober is None:
            return ""
        now_ms = self._clock.now_ms()
        for card in self._cards.intersection(cards):
            place = self._places[card]
            if place.since_ms is None and place.due_ms <= now_ms and not place.failed:
                self._begin(card, place, now_ms)
        self._look(now_ms)
        return ", ".join(sorted(self.probing.intersection(cards)))

    def failing(self, cards: Iterable[str]) -> str:
        """Say which of these cards failed and have not passed since; empty: none."""
        wrong = [(card, self._places[card].failed) for card in cards if card in self._places]
        return "; ".join(f"{card} failed its diagnostic: {why}" for card, why in wrong if why)

    def stop(self) -> None:
        """End all probes at once: the owner wants the cards, or the agent ends."""
        now_ms = self._clock.now_ms()
        for card in self.probing:
            self._end(card, self._places[card], due_ms=now_ms + OTHERS_MS)

    def _begin(self, card: str, place: Place, now_ms: int) -> None:
        assert self._prober is not None
        try:
            if self._gpus.read(card, since_us=self._clock.wall_us()).residents:
                place.due_ms = now_ms + OTHERS_MS
                return
            self._prober.begin(card)
        except (GpuFault, OSError):
            place.due_ms = now_ms + OTHERS_MS  # what is wrong with it others tell
            return
        place.since_ms = now_ms

    def _look(self, now_ms: int) -> None:
        assert self._prober is not None
        for card in self.probing:
            place = self._places[card]
            assert place.since_ms is not None
            verdict = self._prober.look(card)
            if verdict is None:
                if now_ms - place.since_ms < self._within_ms:
                    continue
                self._end(card, place, due_ms=0)
                verdict = Verdict(False, f"it hangs: no result within {self._within_ms // 1_000} s")
            place.since_ms = None
            self._judge(card, place, verdict, now_ms)

    def _end(self, card: str, place: Place, *, due_ms: int) -> None:
        assert self._prober is not None
        self._prober.end(card)
        place.since_ms, place.due_ms = None, due_ms

    def _judge(self, card: str, place: Place, verdict: Verdict, now_ms: int) -> None:
        worse = self._worse(card, awake=verdict.fine is True)
        if verdict.fine is False or worse:
            place.by_bus = verdict.fine is not False
            place.failures += 1
            place.failed = worse if place.by_bus else verdict.said
            pause_ms = again_after_ms(place.failures)
            place.due_ms = now_ms + pause_ms
            again = f"probed again in {pause_ms // MINUTE_MS} min"
            self._untold.append((card, "diagnostic-failed", f"{place.failed}; {again}"))
            return
        if verdict.fine is None and place.failed and not place.by_bus:
            place.due_ms = now_ms + again_after_ms(place.failures)  # nothing says that it is well
            return
        said = verdict.said if verdict.fine else f"{BUS_ONLY}; not computed: {verdict.said}"
        is_news = bool(place.failed) or place.told_ms is None or now_ms - place.told_ms >= DAILY_MS
        place.failures, place.failed, place.due_ms = 0, "", now_ms + DAILY_MS
        if is_news:
            place.told_ms = now_ms
            self._untold.append((card, "diagnostic-passed", said))

    def _worse(self, card: str, *, awake: bool) -> str:
        try:
            link = self._gpus.link(card)
        except GpuFault:
            return ""
        return "" if link is None else self._best.worse(card, link, awake=awake)
