"""Names of environment variables that nobody reads, and what was probably meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable

OTHERS = frozenset(
    {
        # The command-line client and the agent, started from the same shell or unit.
        "OFFPEAK_SERVER",
        "OFFPEAK_TOKEN",
        "OFFPEAK_AGENT_TOKEN",
        # What work finds set that an agent runs, should it start a server.
        "OFFPEAK_CHECKPOINT",
        "OFFPEAK_GRACE_SECONDS",
        "OFFPEAK_HOST_ID",
        "OFFPEAK_FILLER",
        "OFFPEAK_LEASE_ID",
        "OFFPEAK_NOTICE",
        "OFFPEAK_RESUMES_FROM",
        "OFFPEAK_RESUMES_LEASE",
        # Between our own processes, and for tests and benchmarks.
        "OFFPEAK_SUPERVISOR",
        "OFFPEAK_FOCUS_VALIDATOR",
        "OFFPEAK_FUZZ_EXAMPLES",
        "OFFPEAK_STORM_SECONDS",
        "OFFPEAK_TRACES",
    }
)
"""Names that others than the server read: set here they do no harm."""

PREFIX = "OFFPEAK_"
OURS = re.compile(r"offpeak.*", re.IGNORECASE | re.DOTALL)
"""Names that can be meant for nobody else. `OFFPEAK` alone and `offpeak_home` are among them."""
ALIKE_MIN = 0.88
"""How alike a name must be to one of ours to be taken for it: DATABASE_URI is, LC_NAME is not."""
LETTERS_MIN = 8
"""Shorter names are alike by chance: HOST and PORT, POST and PORT."""
NEAREST_MIN = 0.5


def misspelt(names: Iterable[str], known: Collection[str]) -> str:
    """Say in one sentence which name nobody reads; empty where there is none.

    A name that is only like one of ours is told of where that one is not set: DATABASE_ULR would
    let the server start with a database that nobody meant.
    """
    given = sorted(names)
    all_known = {*known, *OTHERS}
    for name in given:
        if name in all_known:
            continue
        if OURS.fullmatch(name):
            return f"{name} is not a setting{_meant(name, all_known)}"
        if len(name) >= LETTERS_MIN and name.isupper():
            close = difflib.get_close_matches(name, all_known, n=1, cutoff=ALIKE_MIN)
            if close and close[0] not in given:
                return f"{name} is not a setting; did you mean {close[0]}?"
    return ""


def _meant(name: str, known: Collection[str]) -> str:
    """Name the nearest setting, by its own part: what all names begin with says nothing."""
    own = re.sub(r"(?i)^offpeak[_-]*", "", name).upper().replace("-", "_").strip()
    parts = {each.removeprefix(PREFIX): each for each in known}
    close = difflib.get_close_matches(own, parts, n=1, cutoff=NEAREST_MIN)
    return f"; did you mean {parts[close[0]]}?" if close else " of this version: unset it"
