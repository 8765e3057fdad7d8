"""`python -m tests.departures [NAME…]`: go on with runs of departures, then write their page.

Each departure is kept as a line of JSON in `departures.jsonl` under OFFPEAK_HOME. A run that was
ended goes on where it was: end it by Ctrl-C (SIGINT) or SIGTERM, and it finishes what is under way,
which takes some minutes; a second one later ends it at once. `page` alone writes the page from what
is kept.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import django

if TYPE_CHECKING:
    from tests.departures.records import Records

AGAIN_SECONDS = 5.0
"""A second signal so soon is the same one: `timeout` sends it to a process and to its group."""


def main(names: Sequence[str]) -> None:
    """Run what is named, or everything that is left; then write figures and page."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    from tests.departures.figures import keep, kept, summed_up
    from tests.departures.page import write
    from tests.departures.records import Records
    from tests.departures.runs import RUNS

    unknown = set(names) - {*RUNS, "page"}
    if unknown:
        raise SystemExit(f"no such run: {', '.join(sorted(unknown))}; there are {', '.join(RUNS)}")
    records = Records(Path(os.environ.get("OFFPEAK_HOME", "var")) / "departures.jsonl")
    if list(names) != ["page"]:
        _run([each for each in names or RUNS if each != "page"], records)
    keep(summed_up(records))
    write(kept())


def _run(names: Sequence[str], records: Records) -> None:
    from tests.departures.running import Stop, go_on, to_stderr
    from tests.departures.runs import RUNS
    from tests.kernels import compile_all, use_compiled

    compile_all()  # once, for every market of the runs
    use_compiled()
    stop = Stop()

    asked_at = 0.0

    def ask(*_: object) -> None:
        nonlocal asked_at
        if stop and time.monotonic() > asked_at + AGAIN_SECONDS:
            raise KeyboardInterrupt
        if not stop:
            asked_at = time.monotonic()
            to_stderr("ending: what is under way is finished first")
            stop.ask()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ask)
    for name in names:
        if not stop:
            go_on(RUNS[name], records, stop=stop, told=to_stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
