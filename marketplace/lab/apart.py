"""The lab in a process of its own, so that the site goes on meanwhile and a run can be given up."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from ledger.domain.refusal import Refusal
from marketplace import kernels
from marketplace.lab.comparing import Comparison, Job
from marketplace.lab.running import LabTooSlow
from marketplace.lab.worker import receive, send

AT_ONCE_MAX = 2
"""Runs at one time in one process of the site."""
SECONDS_MAX = 300.0
"""However slow the machine is, no run lasts longer."""
ROOT = Path(__file__).resolve().parents[2]

_places = threading.BoundedSemaphore(AT_ONCE_MAX)


class LabBusy(Refusal):
    """The lab is running for others already.

    Try again in a minute.
    """


class LabBroke(Refusal):
    """The lab's process ended before it had an answer. Nothing has changed.

    Try again; if it happens again, ask for fewer hours.
    """


class Apart:
    """One run. `step` until it returns what was found; leaving the block ends its process.

    done: how many of `job.steps` are gone through.

    Raises: LabBusy, LabBroke.
    """

    def __init__(self, job: Job, *, environ: Callable[[], dict[str, str]] = dict) -> None:
        self._behind, self._started = job.stretch.behind, time.monotonic()
        self.done, self.steps = 0, job.steps
        if not _places.acquire(blocking=False):
            raise LabBusy(at_once_max=AT_ONCE_MAX)
        words = [sys.executable, "-m", "marketplace.lab.worker"]
        words += [str(kernels.home)] if kernels.home else []
        try:
            self._process = subprocess.Popen(  # this very program
                words,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT), **environ()},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        except OSError:
            _places.release()
            raise LabBroke() from None
        except BaseException:
            _places.release()
            raise
        self._selector = selectors.DefaultSelector()
        try:
            self._selector.register(self._from, selectors.EVENT_READ)
        except BaseException:
            self.stop()
            raise
        self._given = False
        self._job = replace(job, stretch=replace(job.stretch, behind=None))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def _to(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def _from(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    @property
    def pid(self) -> int:
        """Return the process's id."""
        return self._process.pid

    def step(self, seconds: float) -> Comparison | None:
        """Wait up to `seconds` for news; return the answer once it is there.

        Raises: LabTooSlow, LabBroke.
        """
        try:
            if not self._given:
                self._given = True
                send(self._to, self._job)
            if time.monotonic() - self._started > SECONDS_MAX:
                raise LabTooSlow()
            if not self._selector.select(seconds):
                return None
            return self._hear(*receive(self._from))
        except (EOFError, BrokenPipeError):
            raise LabBroke() from None

    def _hear(self, word: str, said: Any) -> Comparison | None:
        match word:
            case "told":
                self.done = said
            case "behind":
                assert self._behind is not None
                send(self._to, self._behind(said))
            case "refused":
                raise said
            case _:
                assert isinstance(said, Comparison)
                return said
        return None

    def stop(self) -> None:
        """End the process, whatever it is at. Once more changes nothing."""
        if self._process.returncode is not None:
            return
        self._process.kill()
        self._selector.close()
        for pipe in (self._to, self._from):
            try:
                pipe.close()
            except BrokenPipeError:
                continue  # what was not sent yet
        self._process.wait()
        _places.release()


def compare_apart(job: Job) -> Comparison:
    """Do a job in a process of its own, and wait for it.

    Raises: LabBusy, LabTooSlow, LabBroke.
    """
    with Apart(job) as run:
        while True:
            found = run.step(1.0)
            if found is not None:
                return found
