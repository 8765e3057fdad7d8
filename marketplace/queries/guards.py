"""How long a round may take, by the clock: the engine's rounds and previews of them alike."""

from __future__ import annotations

import time
from collections.abc import Callable

SEARCH_SECONDS_MAX = 1.0
"""How long a round may be searched; immediate bids wait meanwhile. A round says how far it came."""
ROUND_SECONDS_MAX = 1.5
"""After so long the stages around the search try no more bids, but for the least they always do."""


def guard(seconds: float) -> Callable[[], bool]:
    """Return what says that time is up, counted from when it is first asked.

    So the time in which a kernel is compiled, once in a process, does not count in a search.
    """
    until: float | None = None

    def enough() -> bool:
        nonlocal until
        now = time.monotonic()
        if until is None:
            until = now + seconds
        return now > until

    return enough
