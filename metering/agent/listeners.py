"""Whoever reads what a command prints may leave before its end, as `| head` does."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

LEFT = 128 + signal.SIGPIPE
"""How a shell tells of a program that nobody listened to any more."""


def until_they_leave(speak: Callable[[], int]) -> int:
    """Return the exit status of what prints; LEFT where its reader left before its end."""
    try:
        try:
            return speak()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes once more as it ends, and would say that it could not.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        return LEFT
