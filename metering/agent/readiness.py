"""Whether a host can start work at all, told as soon as it cannot, and again when it can.

A host whose runtime starts nothing (its cluster's administrators drained the node, bubblewrap was
uninstalled) is well in all else: it is heard and its GPUs answer. Without a word of it the market
would place one lease after another there, and each would fail.
"""

from __future__ import annotations

from typing import Literal

from .runtimes.port import Runtime, Startable

LOOK_MS = 10_000
Told = tuple[Literal["cannot-start", "can-start"], str]


class Readiness:
    """What of it was told; asks at most every `LOOK_MS`."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._why = ""
        self._looked_ms: int | None = None

    def news(self, now_ms: int) -> Told | None:
        """Return what there is to tell now; None: nothing new."""
        early = self._looked_ms is not None and now_ms - self._looked_ms < LOOK_MS
        if early or not isinstance(self._runtime, Startable):
            return None
        self._looked_ms = now_ms
        why = self._runtime.unable()
        if why == self._why:
            return None
        self._why = why
        return ("cannot-start", why) if why else ("can-start", "")
