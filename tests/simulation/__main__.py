"""`python -m tests.simulation [RUN…]`: replay, keep the figures, and write the page anew.

Traces are read from the directory that `OFFPEAK_TRACES` names. Without it nothing is replayed, and
the page is made from the figures kept in the repository.
"""

from __future__ import annotations

import json
import math
import re
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from tests.simulation import chronus, engine_runs, openb, openb_runs, page, philly
from tests.simulation.traces import philly as philly_trace
from tests.simulation.traces import traces_at

FIGURES = Path(__file__).parent / "figures.json"
OTHERS: dict[str, Callable[[Path], Any]] = {
    "openb": lambda root: openb_runs.run(openb.read(root)),
    "engine": engine_runs.run,
    "chronus": chronus.compare,
}
LEAF = re.compile(r"\[[^][{}]*\]")
"""A list of numbers: kept on one line."""
NAMES = (*OTHERS, *philly.RUNS)
"""The longest first."""


def main(names: Sequence[str]) -> None:
    """Run what is named, or everything, each in a process; then keep all and write the page."""
    root, found = traces_at(), dict[str, Any]()
    if root is not None:
        with ProcessPoolExecutor() as pool:
            running = [pool.submit(replayed, root, name) for name in names or NAMES]
            for done in as_completed(running):
                name, found[name], seconds = done.result()
                print(f"{name}: {seconds:.0f} s", flush=True)
        keep(found)
    figures = kept()
    missing = set(NAMES) - set(figures)
    if missing:
        print(f"the page waits for {', '.join(sorted(missing))}")
    else:
        page.write(figures)


def replayed(root: Path, name: str) -> tuple[str, Any, float]:
    """Return a run's name, its figures, and how long it took."""
    began = time.monotonic()
    other = OTHERS.get(name)
    found = philly.RUNS[name](philly_trace(root)) if other is None else other(root)
    return name, found, time.monotonic() - began


def kept() -> dict[str, Any]:
    """Return the figures kept."""
    found: dict[str, Any] = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    return found


def keep(found: dict[str, Any]) -> None:
    """Put the figures of some runs in place of those kept, all in the order of `NAMES`."""
    figures: dict[str, Any] = kept() | rounded(found)
    ordered = {each: figures[each] for each in NAMES if each in figures}
    text = json.dumps(ordered, indent=1)
    FIGURES.write_text(LEAF.sub(lambda match: " ".join(match[0].split()), text) + "\n")


def rounded(value: Any) -> Any:
    """Keep four decimals: more would only make noise in the history. None: never."""
    if isinstance(value, float):
        return round(value, 4) if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(each) for each in value]
    return value


if __name__ == "__main__":
    main(sys.argv[1:])
