"""How long a round may take, by the clock: the engine's rounds and previews of them alike."""

from __future__ import annotations

import time
from collections.abc import Callable

from marketplace.domain.decisions.decide import Guards

SEARCH_SECONDS_MAX = 1.0
"""How long a round may be searched; immediate bids wait meanwhile. A round says how far it came."""
PRICES_SHARE_MAX = 0.5
"""Finding prices may take so much of that time: a bound and the placing by prices follow."""
REST_SECONDS_MAX = 1.0
"""After so long in all, stages around the search try no more bids but the least they always do."""


LOOKING_SECONDS_MAX = 5.0
"""How long it is looked for the bid at which a round breaks off. Each try has a round's time."""


def guards_of_a_round() -> Guards:
    """Return how long one round of the engine may take."""
    looking = guard(LOOKING_SECONDS_MAX)

    def anew() -> Guards:
        return Guards(guard(SEARCH_SECONDS_MAX), stopwatch(REST_SECONDS_MAX), looking, anew)

    return anew()


class Guard:
    """Says that time is up, counted from when it is first asked.

    So the time in which a kernel is compiled, once in a process, does not count in a search.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._since: float | None = None

    def __call__(self) -> bool:
        return self._past(self._seconds)

    def soon(self) -> bool:
        """Say that it is time to come to an end: what follows takes its time too."""
        return self._past(PRICES_SHARE_MAX * self._seconds)

    def part(self, share: float) -> Guard:
        """Return a guard of so much of that time, for a part that is searched by itself."""
        return Guard(share * self._seconds, self._clock)

    def _past(self, seconds: float) -> bool:
        now = self._clock()
        if self._since is None:
            self._since = now
        return now > self._since + seconds


def guard(seconds: float) -> Guard:
    """Return what says that so much time is up."""
    return Guard(seconds)


def stopwatch(seconds: float, clock: Callable[[], float] = time.monotonic) -> Callable[[str], bool]:
    """Return what says that stages have had their time, together; it stands still between them.

    A stage's time counts from when its name is first asked about until it is last.
    """
    stage, since, last, before = "", 0.0, 0.0, 0.0

    def late(name: str) -> bool:
        nonlocal stage, since, last, before
        now = clock()
        if name != stage:
            before += last - since
            stage, since = name, now
        last = now
        return before + now - since > seconds

    return late
