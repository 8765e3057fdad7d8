"""`python -m tests.simulation [RUN…]`: replay, keep the figures, and write the page anew.

Traces are read from the directory that `OFFPEAK_TRACES` names. Without it nothing is replayed, and
the page is made from the figures kept in the repository.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from tests.simulation import chronus, page, philly
from tests.simulation.traces import philly as philly_trace
from tests.simulation.traces import traces_at

CHRONUS = "chronus"
FIGURES = Path(__file__).parent / "figures.json"


def main(names: list[str]) -> None:
    """Run what is named, or everything; then write the page from all figures kept."""
    figures: dict[str, Any] = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    root = traces_at()
    if root is not None:
        trace = philly_trace(root)
        for name in names or [*philly.RUNS, CHRONUS]:
            began = time.monotonic()
            figures[name] = chronus.compare(root) if name == CHRONUS else philly.RUNS[name](trace)
            print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
            FIGURES.write_text(json.dumps(rounded(figures), indent=1) + "\n")
    missing = {*philly.RUNS, CHRONUS} - set(figures)
    if missing:
        print(f"the page waits for {', '.join(sorted(missing))}")
    else:
        page.write(json.loads(FIGURES.read_text()))


def rounded(value: Any) -> Any:
    """Keep four significant decimals: more would only make noise in the history."""
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(each) for each in value]
    return value


if __name__ == "__main__":
    main(sys.argv[1:])
