"""What may take long, done beside the tick: that waits a moment for it, and asks again at the next.

So what is quick is done at once, and what is slow holds up nobody but the lease that it is for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from uuid import UUID

T = TypeVar("T")

WAIT_SECONDS = 0.5


@dataclass(slots=True)
class _Errand:
    stop: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None
    came: Any = None
    failed: BaseException | None = None


class Beside(Generic[T]):
    """One errand for each lease, in a thread of its own. Not for threads itself."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._errands: dict[UUID, _Errand] = {}

    def __contains__(self, lease_id: UUID) -> bool:
        return lease_id in self._errands

    def ask(self, lease_id: UUID, work: Callable[[threading.Event], T]) -> T | None:
        """Return, once, what it came to; None: it is under way, ask again.

        The first asking begins it, and waits a moment unless others are under way already. work:
        is given the event that tells it to stop.
        Raises: what it raised.
        """
        errand = self._errands.get(lease_id)
        if errand is None:
            errand = _Errand()
            alone = not any(self._runs(each) for each in self._errands.values())
            self._errands[lease_id] = errand
            thread = threading.Thread(
                target=_do, args=[errand, work], name=self._name[:15], daemon=True
            )
            errand.thread = thread
            thread.start()
            thread.join(WAIT_SECONDS if alone else 0)
        if self._runs(errand):
            return None
        del self._errands[lease_id]
        if errand.failed is not None:
            raise errand.failed
        came: T = errand.came
        return came

    def stop(self, lease_id: UUID) -> None:
        """Tell an errand to stop; it is asked for what it came to as ever."""
        if (errand := self._errands.get(lease_id)) is not None:
            errand.stop.set()

    def runs(self, lease_id: UUID) -> bool:
        """Tell if an errand is under way at this moment."""
        errand = self._errands.get(lease_id)
        return errand is not None and self._runs(errand)

    @staticmethod
    def _runs(errand: _Errand) -> bool:
        return errand.thread is not None and errand.thread.is_alive()


def _do(errand: _Errand, work: Callable[[threading.Event], Any]) -> None:
    try:
        errand.came = work(errand.stop)
    except BaseException as error:  # handed to whoever asks
        errand.failed = error
