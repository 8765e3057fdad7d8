"""One transfer's patience: when to try again, when to stop, and blobs several at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from typing import TypeVar

from ..backoff import Backoff
from ..clock import Clock

T = TypeVar("T")

AT_ONCE = 4
"""Blobs of one transfer under way at one time: also what of it is in memory."""


class Stopped(Exception):
    """The transfer is not wanted any more, or the agent ends; what came so far is kept."""


class OutOfTime(Exception):
    """It did not come to its end by the moment it had to; the text is the last trouble."""


class Patience:
    """Pauses between tries, up to a moment.

    until_ms: by the agent's clock. stop: ends every pause.
    """

    def __init__(self, clock: Clock, stop: threading.Event, *, until_ms: int) -> None:
        self._clock, self._stop, self._until_ms = clock, stop, until_ms
        self._backoff = Backoff(first_ms=500, most_ms=30_000)
        self._alone = threading.Lock()

    def need(self, trouble: str = "") -> None:
        """Go on only while it is wanted and in time.

        Raises: Stopped, OutOfTime.
        """
        if self._stop.is_set():
            raise Stopped
        if self._clock.now_ms() >= self._until_ms:
            raise OutOfTime(trouble or "it took too long")

    def wait(self, trouble: str) -> None:
        """Pause after a failure, longer after each that follows another.

        Raises: Stopped, OutOfTime.
        """
        with self._alone:
            self.need(trouble)
            self._backoff.failed(0)
            pause_ms = min(self._backoff.next_ms, self._until_ms - self._clock.now_ms())
            if self._stop.wait(max(1, pause_ms) / 1000):
                raise Stopped
            self.need(trouble)

    def went_well(self) -> None:
        """Begin the pauses anew."""
        self._backoff.succeeded()


def each(work: Callable[[T], object], items: Iterable[T]) -> None:
    """Do something with every item, a few at a time; the first failure ends it and is raised.

    In threads of its own that do not keep the process: one that hangs in the network must not hold
    up the end of the agent.
    """
    queue: SimpleQueue[T] = SimpleQueue()
    for item in items:
        queue.put(item)
    failed: list[BaseException] = []

    def run() -> None:
        while not failed:
            try:
                item = queue.get_nowait()
            except Empty:
                return
            try:
                work(item)
            except BaseException as failure:
                failed.append(failure)

    threads = [threading.Thread(target=run, name="blobs", daemon=True) for _ in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
