"""How long a process waits for the database before it tells somebody that it cannot be had."""

from __future__ import annotations

import sys
from dataclasses import dataclass

LOCK_SECONDS = 10
IDLE_IN_TRANSACTION_SECONDS = 60
"""A process that was paused inside a transaction lets go of the log's lock after so long."""
LOOP_TIMES = 4
"""Loops work in pages, and nobody waits for an answer: they may take so many times as long."""
ANSWER_SECONDS = 3
"""Beyond the limit of a statement a server that runs would have said that it is over."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What this process keeps to. statement_seconds: 0 for as long as it takes."""

    statement_seconds: int = 0

    @property
    def answer_seconds(self) -> float | None:
        """Return after how long without an answer the server is taken to hang."""
        return self.statement_seconds + ANSWER_SECONDS if self.statement_seconds else None

    def settings(self) -> dict[str, str]:
        """Return PostgreSQL's settings for it."""
        if not self.statement_seconds:
            return {}
        return {
            "statement_timeout": f"{self.statement_seconds}s",
            "lock_timeout": f"{min(LOCK_SECONDS, self.statement_seconds)}s",
            "idle_in_transaction_session_timeout": f"{IDLE_IN_TRANSACTION_SECONDS}s",
        }


UNLIMITED = Limits()
_kept = UNLIMITED


def kept() -> Limits:
    """Return what this process keeps to; a command that migrates or rebuilds, to nothing."""
    return _kept


def keep(limits: Limits) -> None:
    """Keep to these from the next connection on."""
    global _kept
    _kept = limits


def program() -> str:
    """Return what this process calls itself in the server's list of connections."""
    words = [word for word in sys.argv[1:] if not word.startswith("-") and not word.isdigit()]
    return " ".join(["offpeak", *words])[:63]
