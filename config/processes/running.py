"""How every loop is doing, kept where all processes can read it: for /readyz, /metrics and Ops."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from config.database.limits import program
from ledger.domain.redaction import redact
from ledger.prepared import ask_for_all

NOTED_EVERY_SECONDS = 5.0
ERROR_CHARACTERS_MAX = 500
ROUNDS_CHARACTERS_MAX = 200

# Nobody waits for the disk: what a server that breaks down forgets is told again.
_NOTE = """
INSERT INTO site_looprun AS l
    (name, process, held_since, passed_at, took_ms, every_ms, did, failures, error, kernels, rounds)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (name) DO UPDATE SET
    process = EXCLUDED.process, held_since = EXCLUDED.held_since,
    passed_at = coalesce(EXCLUDED.passed_at, l.passed_at), took_ms = EXCLUDED.took_ms,
    every_ms = EXCLUDED.every_ms, did = EXCLUDED.did, failures = EXCLUDED.failures,
    error = EXCLUDED.error, kernels = EXCLUDED.kernels,
    rounds = EXCLUDED.rounds
RETURNING set_config('synchronous_commit', 'off', true)
"""


def this_process() -> str:
    """Return what to call this process, for who looks for it."""
    return f"{program()}, process {os.getpid()} on {socket.gethostname()}"[:200]


@dataclass(slots=True)
class Notes:
    """What the holder of a loop notes of it: at once what is new, the rest now and then."""

    name: str
    every_seconds: float
    kernels: Callable[[], str] | None = None
    rounds: Callable[[], str] | None = None
    held_since: datetime = field(default_factory=lambda: datetime.now(UTC))
    _passed_at: datetime | None = None
    _took: float = 0.0
    _did: int = 0
    _went_well: bool = False
    _noted: float = -NOTED_EVERY_SECONDS
    holds: bool = False
    """Its row is ours to write."""

    def hold(self) -> None:
        """Begin to hold the loop."""
        self.holds, self.held_since, self._did = True, datetime.now(UTC), 0

    def count(self, failures: int) -> int:
        """Return how many passes failed in a row, with the one that just did."""
        went_well, self._went_well = self._went_well, False
        return 1 if went_well else failures + 1

    def passed(self, did: int, took_seconds: float) -> None:
        """Note a pass that went well."""
        self._passed_at, self._took = datetime.now(UTC), took_seconds
        self._did += did
        self._went_well = True
        if time.monotonic() - self._noted >= NOTED_EVERY_SECONDS:
            self._write(0, "")

    def failed(self, failures: int, error: str) -> None:
        """Note that passes fail, and why."""
        self._write(failures, redact(error)[:ERROR_CHARACTERS_MAX])
        self.holds = False
        self._noted = -NOTED_EVERY_SECONDS  # the next that goes well is news

    def _write(self, failures: int, error: str) -> None:
        row = [
            self.name,
            this_process(),
            self.held_since,
            self._passed_at,
            round(self._took * 1000),
            round(self.every_seconds * 1000),
            self._did,
            failures,
            error,
            self.kernels() if self.kernels else "",
            redact(self.rounds())[:ROUNDS_CHARACTERS_MAX] if self.rounds else "",
        ]
        ask_for_all(_NOTE, row)
        self._noted = time.monotonic()
