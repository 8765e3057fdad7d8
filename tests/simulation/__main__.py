"""`python -m tests.simulation [RUN…]`: replay, keep the figures, and write the page anew.

Traces are read from the directory that `OFFPEAK_TRACES` names. Without it nothing is replayed, and
the page is made from the figures kept in the repository.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from types import ModuleType
from typing import Any

import django

from tests.simulation import chronus, openb, openb_runs, page, philly
from tests.simulation.traces import philly as philly_trace
from tests.simulation.traces import traces_at

FIGURES = Path(__file__).parent / "figures.json"
OTHERS: dict[str, Callable[[Path], Any]] = {
    "openb": lambda root: openb_runs.run(openb.read(root)),
    "product": lambda root: _product().run(root),
    "product-filler": lambda root: _product().run_with_filler(root),
    "chronus": chronus.compare,
}
LEAF = re.compile(r"\[[^][{}]*\]")
"""A list of numbers: kept on one line."""
NAMES = (*OTHERS, *philly.RUNS)
"""The longest first."""
MAY_WAIT = {"product-filler"}
"""What takes so long that the page is made without it."""


def main(names: Sequence[str]) -> None:
    """Run what is named, or everything, each in a process; keep what is done, write the page."""
    root = traces_at()
    if root is not None:
        with ProcessPoolExecutor() as pool:
            running = [pool.submit(replayed, root, name) for name in names or NAMES]
            for done in as_completed(running):
                name, found, seconds = done.result()
                keep({name: found})
                print(f"{name}: {seconds:.0f} s", flush=True)
    figures = kept()
    missing = set(NAMES) - set(figures) - MAY_WAIT
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


def _product() -> ModuleType:
    """Return the replays through the product, which need its settings."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    django.setup()
    return importlib.import_module("tests.simulation.product.runs")


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
