"""Requests that come within the same few milliseconds, handled together by one thread.

What costs most in a small request is what is done once whether it is for one or for twenty: a
question to the database, a commit, a turn at the lock of the log.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import structlog
from django.db import close_old_connections, connection

from ledger.outages import outage_of

AskedT = TypeVar("AskedT")
AnswerT = TypeVar("AnswerT")

GATHER_SECONDS = 0.012
"""From one turn to the next, unless all who asked lately are here already; the first after a
silence does not wait."""
LATELY_SECONDS = 0.25
TOGETHER_MAX = 64
IDLE_SECONDS = 1.0
"""After such a silence the connection is looked at before it is used again."""
END_SECONDS = 60.0
"""After such a silence the thread ends, and with it its connection."""

log = structlog.get_logger()


@dataclass(eq=False, slots=True)
class _Waiting(Generic[AskedT, AnswerT]):
    asked: AskedT
    answer: asyncio.Future[AnswerT]
    loop: asyncio.AbstractEventLoop


@dataclass(eq=False)
class Gathering(Generic[AskedT, AnswerT]):
    """Hands what is asked at the same time to `handle`, which answers in the same order.

    handle: runs in a thread of its own, one turn after the other. What it raises, all who asked
        in that turn get.
    """

    handle: Callable[[Sequence[AskedT]], Sequence[AnswerT]]
    name: str
    _waiting: list[_Waiting[AskedT, AnswerT]] = field(default_factory=list)
    _asked_at: dict[Hashable, float] = field(default_factory=dict)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _thread: threading.Thread | None = None

    async def ask(self, asked: AskedT, *, by: Hashable) -> AnswerT:
        """Return the answer to `asked`, in one of the next turns.

        by: whoever asks nothing else before this is answered, such as a client's connection.
        """
        loop = asyncio.get_running_loop()
        waiting = _Waiting[AskedT, AnswerT](asked, loop.create_future(), loop)
        with self._changed:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._turns, name=self.name, daemon=True)
                self._thread.start()
            self._waiting.append(waiting)
            self._asked_at[by] = time.monotonic()
            if len(self._waiting) == 1 or self._all_are_here():
                self._changed.notify()
        return await waiting.answer

    def _turns(self) -> None:
        last = 0.0
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: self._waiting, END_SECONDS):
                    self._thread = None
                    break
            started = time.monotonic()
            if started - last > IDLE_SECONDS:
                close_old_connections()
            with self._changed:
                self._forget_askers(started - LATELY_SECONDS)
                if last + GATHER_SECONDS > started:
                    self._changed.wait_for(self._all_are_here, last + GATHER_SECONDS - started)
                last = time.monotonic()
                some, self._waiting = self._waiting[:TOGETHER_MAX], self._waiting[TOGETHER_MAX:]
            self._answer(some)
        connection.close()

    def _all_are_here(self) -> bool:
        """Tell if nobody else is to be expected: to wait for them would be to wait in vain."""
        return len(self._waiting) >= min(len(self._asked_at), TOGETHER_MAX)

    def _forget_askers(self, before: float) -> None:
        for by in [by for by, asked_at in self._asked_at.items() if asked_at < before]:
            del self._asked_at[by]

    def _answer(self, some: Sequence[_Waiting[AskedT, AnswerT]]) -> None:
        try:
            answers: Sequence[AnswerT | Exception] = self.handle([each.asked for each in some])
        except Exception as failure:  # told to each that asked; whoever asks next is answered
            fault = None if outage_of(failure) else failure
            log.warning("gathering.failed", name=self.name, error=repr(failure), exc_info=fault)
            answers = [failure] * len(some)
            connection.close()  # if that is what is wrong, the next turn has another
        for loop in {each.loop for each in some}:
            told = [pair for pair in zip(some, answers, strict=True) if pair[0].loop is loop]
            with suppress(RuntimeError):  # that loop has ended, and who asked with it
                loop.call_soon_threadsafe(_tell, told)


def _tell(told: Sequence[tuple[_Waiting[AskedT, AnswerT], AnswerT | Exception]]) -> None:
    for waiting, answer in told:
        if waiting.answer.done():
            continue  # who asked has gone away
        if isinstance(answer, Exception):
            waiting.answer.set_exception(answer)
        else:
            waiting.answer.set_result(answer)
