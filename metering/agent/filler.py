"""The owner's own command, in the gaps that the market leaves.

One process group for each idle card, with that card alone in CUDA_VISIBLE_DEVICES. It is no lease:
nothing of it is metered, reported or sold, and it gives way at once. Before work is started on a
card the filler there is killed, whatever it does; where the start is known ahead it is asked first.
Its processes carry a mark in their environment, by which an agent that comes after one that was
killed finds them, and `offpeak-agent release` without any.
"""

from __future__ import annotations

import logging
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from .backoff import Backoff
from .reconcile import Held
from .runtimes.family import Stat, descendants, kill_all, signal_all, stat_of, whose
from .shares import in_the_way
from .wire import Gpu

log = logging.getLogger(__name__)

MARK = "OFFPEAK_FILLER"
AHEAD_MS = 30_000
"""So long before the start of a lease the filler of its cards is asked to end."""
GRACE_MS = 10_000
"""So long after that it is killed; with the start of the lease at the latest."""
YIELD_SECONDS_MAX = 1.0
"""A killed filler is waited for so long; a lease waits for the next look where it is not enough."""
STEADY_MS = 60_000
"""One that ran so long is started anew without a longer pause than after its first end."""
PAUSE_FIRST_MS, PAUSE_MOST_MS = 5_000, 300_000
FIRST_PROCESS = UUID(int=0)


@dataclass(frozen=True, slots=True)
class FillerCommand:
    """What the owner runs. user: as whom; empty: as the agent's own user."""

    command: tuple[str, ...]
    user: str = ""


def read_command(text: str) -> tuple[str, ...]:
    """Return a command line as a shell splits it. Raises: ValueError."""
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise ValueError(f"a command line as a shell reads it, not {text!r}: {error}") from None
    if not words:
        raise ValueError("a command line, not nothing")
    return words


@dataclass(slots=True)
class _Running:
    process: subprocess.Popen[bytes]
    ticks: int
    since_ms: int
    asked_ms: int | None = None


@dataclass(slots=True)
class _Place:
    """One card: what runs there, and when it may be started again."""

    running: _Running | None = None
    starts: int = 0
    backoff: Backoff = field(
        default_factory=lambda: Backoff(first_ms=PAUSE_FIRST_MS, most_ms=PAUSE_MOST_MS)
    )


def idle_cards(gpus: Iterable[Gpu], leases: Iterable[Held], *, now_ms: int) -> list[str]:
    """Return the cards that no lease has, or is about to have; none in MIG mode without parts."""
    taken = [
        uuid
        for held in leases
        if held.work == "running"
        or (held.work == "none" and held.terms.starts_ms <= now_ms + AHEAD_MS)
        for uuid in held.terms.gpu_uuids
    ]
    return [
        gpu.uuid
        for gpu in gpus
        if (gpu.mig_profiles or not gpu.mig_enabled)
        and not any(in_the_way(gpu.uuid, each) for each in taken)
    ]


class Filler:
    """Keeps the command running on cards that are idle. Not for threads."""

    def __init__(self, state_dir: Path, wish: FillerCommand | None) -> None:
        self._state_dir = state_dir
        self._wish = wish
        self._places: dict[str, _Place] = {}
        self.trouble = ""
        kill_fillers_of(state_dir)  # of an agent that was killed

    @property
    def command(self) -> tuple[str, ...]:
        """Return what is run; empty: nothing."""
        return () if self._wish is None else self._wish.command

    @property
    def cards(self) -> list[str]:
        """Return the cards on which it runs."""
        return sorted(card for card, place in self._places.items() if place.running is not None)

    @property
    def starts(self) -> int:
        """Return how often it was started in this run of the agent, on all cards."""
        return sum(place.starts for place in self._places.values())

    def owns(self, pid: int) -> bool:
        """Tell if a process is a filler's, or below one."""
        tops = {
            (each.process.pid, each.ticks): FIRST_PROCESS
            for place in self._places.values()
            if (each := place.running) is not None
        }
        sessions = {pid: FIRST_PROCESS for pid, _ in tops}
        return bool(tops) and whose(pid, tops, sessions) is not None

    def turn(self, idle: Collection[str], now_ms: int) -> None:
        """Start it where it may run, and ask it to end where it soon may not.

        idle: the cards that no lease has or is about to have.
        """
        if self._wish is None:
            return
        for card, place in self._places.items():
            self._look(card, place, now_ms)
            running = place.running
            if running is None or card in idle:
                continue
            if running.asked_ms is None:
                running.asked_ms = now_ms
                signal_all(self._processes(running), signal.SIGTERM)
            elif now_ms - running.asked_ms >= GRACE_MS:
                self.clear([card])
        for card in idle:
            place = self._places.setdefault(card, _Place())
            if place.running is None and place.backoff.is_due(now_ms):
                self._start(card, place, now_ms)

    def clear(self, cards: Iterable[str]) -> bool:
        """Kill it on these cards and wait until it is gone; return whether it is."""
        running = [
            (place, each)
            for card in cards
            if (place := self._places.get(card)) is not None and (each := place.running) is not None
        ]
        until = time.monotonic() + YIELD_SECONDS_MAX
        for place, each in running:
            pid = each.process.pid
            signal_all([*descendants(pid, session=pid), *_alive(pid, each.ticks)], signal.SIGKILL)
            kill_all(pid, session=pid)
            with suppress(subprocess.TimeoutExpired):
                each.process.wait(max(0.01, until - time.monotonic()))
                place.running = None
                place.backoff.succeeded()
        return all(place.running is None for place, _ in running)

    def close(self) -> None:
        """Kill it everywhere: without the agent nobody makes it give way."""
        self.clear(list(self._places))
        if self._wish is not None:
            kill_fillers_of(self._state_dir)

    def _look(self, card: str, place: _Place, now_ms: int) -> None:
        running = place.running
        if running is None or running.process.poll() is None:
            return
        place.running = None
        kill_all(running.process.pid, session=running.process.pid)  # what it left behind
        if running.asked_ms is not None:
            return
        if now_ms - running.since_ms >= STEADY_MS:
            place.backoff.succeeded()
        place.backoff.failed(now_ms)
        log.info("filler on %s: ended with %d", card, running.process.returncode)

    def _start(self, card: str, place: _Place, now_ms: int) -> None:
        assert self._wish is not None
        environment = os.environ | {"CUDA_VISIBLE_DEVICES": card, MARK: str(self._state_dir)}
        user = self._wish.user or None
        try:
            process = subprocess.Popen(
                self._wish.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=environment,
                cwd="/",
                start_new_session=True,
                user=user,
                group=_group_of(user),
                extra_groups=None if user is None else [],
            )
        except (OSError, KeyError, subprocess.SubprocessError) as error:
            place.backoff.failed(now_ms)
            if str(error) != self.trouble:
                log.error("filler: it cannot be started: %s", error)
            self.trouble = str(error)
            return
        self.trouble = ""
        stat = stat_of(process.pid)
        place.running = _Running(process, 0 if stat is None else stat.ticks, now_ms)
        place.starts += 1
        log.info("filler on %s: started", card)

    def _processes(self, running: _Running) -> list[Stat]:
        pid = running.process.pid
        return [*_alive(pid, running.ticks), *descendants(pid, session=pid)]


def fillers_of(state_dir: Path) -> list[Stat]:
    """Return the living processes of the fillers of a state directory, by their mark."""
    mark = f"{MARK}={state_dir}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            environment = Path(f"/proc/{entry}/environ").read_bytes()
        except OSError:
            continue
        if mark in environment.split(b"\0"):
            stat = stat_of(int(entry))
            if stat is not None and stat.state not in "ZX":
                found.append(stat)
    return found


def kill_fillers_of(state_dir: Path) -> None:
    """Kill them, with all that is below them and in their sessions."""
    for stat in fillers_of(state_dir):
        kill_all(stat.pid, session=stat.session)
        signal_all([stat], signal.SIGKILL)


def _alive(pid: int, ticks: int) -> list[Stat]:
    stat = stat_of(pid)
    return [stat] if stat is not None and stat.ticks == ticks else []


def _group_of(user: str | None) -> int | None:
    if user is None:
        return None
    import pwd

    return pwd.getpwnam(user).pw_gid
