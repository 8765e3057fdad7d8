"""What the page says, kept in the repository: a row for each departure, and what was wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.departures.records import Record, Records
from tests.departures.runs import RUNS
from tests.departures.work import Kind

FIGURES = Path(__file__).parent / "figures.json"
LEAF = re.compile(r"\[[^][{}]*\]")
"""A list without lists: kept on one line."""


@dataclass(frozen=True, slots=True)
class Row:
    """One departure as the page counts it. Seconds, to a tenth; milliseconds; whole percents.

    after, after_word: until it ran elsewhere, from when it was taken away and from its host's last
    word. spare: how long before its promise the owner had the card; None: nothing was promised.
    """

    kind: Kind
    in_time: bool
    after: float | None
    after_word: float | None
    spare: float | None
    lost: float
    done: float
    twice_ms: int
    unbilled_ms: int
    charged_right: bool
    elsewhere: bool
    room: int
    trouble: bool

    def __post_init__(self) -> None:
        """Lost work is of work that was done."""
        assert self.lost <= self.done + 0.05


@dataclass(frozen=True, slots=True)
class Measured:
    """A run as it was measured.

    markets, leases, wrong: those that were looked at once all was over, and what did not hold;
    audited: of how many departures that was.
    """

    rows: tuple[Row, ...] = ()
    audited: int = 0
    markets: int = 0
    leases: int = 0
    wrong: tuple[str, ...] = ()


def summed_up(records: Records) -> dict[str, Measured]:
    """Return each run of which there is a record."""
    audits = records.audits()
    found = {}
    for name in RUNS:
        of_run = [each for each in audits if each.run == name]
        if rows := tuple(_row(each) for each in records.departures(name)):
            found[name] = Measured(
                rows=rows,
                audited=sum(each.departures for each in of_run),
                markets=len(of_run),
                leases=sum(each.leases for each in of_run),
                wrong=tuple(said for each in of_run for said in each.wrong),
            )
    return found


def _row(each: Record) -> Row:
    spare = None
    if each.free_by is not None and each.free_at is not None:
        spare = each.free_by - each.free_at
    return Row(
        kind=each.kind,
        in_time=each.is_in_time,
        after=_tenths(each.resumed_after),
        after_word=_tenths(each.since_last_word),
        spare=None if spare is None else round(spare, 2),
        lost=round(each.lost, 1),
        done=round(each.done, 1),
        twice_ms=each.twice_ms,
        unbilled_ms=each.unbilled_ms,
        charged_right=each.is_charged_right,
        elsewhere=each.is_elsewhere,
        room=round(100 * each.room),
        trouble=bool(each.trouble),
    )


def _tenths(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


def keep(found: dict[str, Measured]) -> None:
    """Put some runs in place of those kept, all in the order of `RUNS`.

    A run that has only begun does not take the place of one with more departures.
    """
    runs = kept()
    for name, measured in found.items():
        if name not in runs or len(measured.rows) >= min(len(runs[name].rows), RUNS[name].count):
            runs[name] = measured
    told: dict[str, Any] = {}
    for name in RUNS:
        if name in runs:
            of_run = runs[name]
            told[name] = {
                "audited": of_run.audited,
                "markets": of_run.markets,
                "leases": of_run.leases,
                "wrong": list(of_run.wrong),
                "rows": [[getattr(row, column) for column in _COLUMNS] for row in of_run.rows],
            }
    text = json.dumps({"columns": list(_COLUMNS), "runs": told}, indent=1)
    FIGURES.write_text(LEAF.sub(lambda match: " ".join(match[0].split()), text) + "\n")


def kept() -> dict[str, Measured]:
    """Return the runs kept."""
    if not FIGURES.exists():
        return {}
    told = json.loads(FIGURES.read_text())
    columns = told["columns"]
    return {
        name: Measured(
            rows=tuple(Row(**dict(zip(columns, row, strict=True))) for row in of_run["rows"]),
            audited=of_run["audited"],
            markets=of_run["markets"],
            leases=of_run["leases"],
            wrong=tuple(of_run["wrong"]),
        )
        for name, of_run in told["runs"].items()
    }


_COLUMNS = tuple(Row.__slots__)


# --- what is counted --------------------------------------------------------------------------


def share(told: Iterable[bool]) -> float:
    """Return the share of those that hold; 0 of none."""
    some = list(told)
    return sum(some) / len(some) if some else 0.0


def at_least(told: Sequence[bool]) -> float:
    """Return the share that a run shows with 95 % certainty: the lower Wilson bound."""
    count, right = len(told), sum(told)
    if not count:
        return 0.0
    z = 1.645  # one-sided
    mean = right / count
    middle = mean + z * z / (2 * count)
    spread: float = z * ((mean * (1 - mean) + z * z / (4 * count)) / count) ** 0.5
    return (middle - spread) / (1 + z * z / count)


def known(values: Iterable[float | None]) -> list[float]:
    """Return those that there are, in order."""
    return sorted(each for each in values if each is not None)
