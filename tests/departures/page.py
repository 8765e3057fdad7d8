"""The page of the manual that reports departures: text around figures, a table and plots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.benchmarks.figures import percentile
from tests.departures.curves import SOON_SECONDS, plots_of
from tests.departures.figures import Measured, Row, at_least, known, share
from tests.departures.runs import LOADS, MAIN, RUNS, SHIPPED, of_load
from tests.departures.work import CHECKPOINT_SECONDS, KINDS, Kind
from tests.simulation.tables import table

DOCS = Path(__file__).parents[2] / "config" / "docs"
TEXT = Path(__file__).parent / "departures.md.txt"
NOTE = Path(__file__).parent / "note.txt"
"""What whoever measured says of the machine and of the day: to be written anew with the figures."""
PAGE = "measured-departures"
NAMES: dict[Kind, str] = {
    "notice": "reclaim, 8 s of notice",
    "gpu-lost": "GPU lost",
    "xid": "XID error",
    "kill-switch": "kill switch",
    "power": "power lost",
    "silence": "silence",
}


def write(figures: Mapping[str, Measured]) -> None:
    """Write the page and its plots from the figures kept."""
    (DOCS / f"{PAGE}.md").write_text(text_of(figures))
    (DOCS / "departures").mkdir(exist_ok=True)
    for name, drawing in plots_of(figures).items():
        (DOCS / "departures" / f"{name}.svg").write_text(drawing)


def text_of(figures: Mapping[str, Measured]) -> str:
    """Fill the figures into the text."""
    main = figures[MAIN]
    filled = TEXT.read_text()
    parts = {
        **_claims(main),
        "note": NOTE.read_text().rstrip(),
        "by_kind": _by_kind(main.rows),
        "load_bills": _load_bills(figures),
        "lost_by_kind": _lost_by_kind(main.rows),
        "by_load": _by_load(figures),
        "shipped": _shipped(figures.get(SHIPPED)),
        "load_plot": (
            "![Work that went on, by load](departures/load.svg)"
            if "load" in plots_of(figures)
            else ""
        ),
    }
    for name, value in parts.items():
        filled = filled.replace("{{" + name + "}}", value)
    assert "{{" not in filled, "the text asks for a figure that is not there"
    return filled


def requeue_share(rows: Sequence[Row]) -> float:
    """Return what was lost, as a share of what preempt-and-requeue loses at the same departures."""
    return sum(row.lost for row in rows) / sum(row.done for row in rows)


def _claims(main: Measured) -> dict[str, str]:
    rows, planned = main.rows, RUNS[MAIN].count
    noticed = [row.in_time for row in rows if row.kind == "notice"]
    in_time = [row.in_time for row in rows]
    promised = [row.spare is not None and row.spare >= 0 for row in rows if _is_promised(row)]
    spare = known(row.spare for row in rows)
    words = known(row.after_word for row in rows)
    told = known(row.after for row in rows if row.kind not in ("power", "silence"))
    done = known(row.done for row in rows)
    return {
        "count": f"{len(rows)}",
        "planned": "" if len(rows) == planned else f" of {planned} that are planned",
        "audited": _audited(main),
        "done_p50": f"{percentile(done, 0.5):.0f}",
        "done_most": f"{done[-1]:.0f}",
        "resumed": _percent(share(in_time)),
        "resumed_least": _percent(at_least(in_time)),
        "noticed": f"{len(noticed)}",
        "noticed_resumed": _percent(share(noticed)),
        "noticed_least": _percent(at_least(noticed)),
        "elsewhere": _percent(share(row.elsewhere for row in rows)),
        "promised": f"{len(promised)}",
        "free": _percent(share(promised)),
        "spare": f"{spare[0]:.1f}" if spare else "-",
        "twice": f"{sum(row.twice_ms for row in rows)}",
        "unbilled": f"{sum(row.unbilled_ms for row in rows)}",
        "charged": _percent(share(row.charged_right for row in rows)),
        "lost": f"{sum(row.lost for row in rows):,.0f}",
        "done": f"{sum(row.done for row in rows):,.0f}",
        "requeue": _percent(requeue_share(rows)),
        "every": f"{CHECKPOINT_SECONDS}",
        "gone": f"{RUNS[MAIN].pace.gone_seconds}",
        "slack": f"{RUNS[MAIN].pace.slack_seconds // 60}",
        "length": f"{RUNS[MAIN].pace.duration_seconds // 60}",
        "word_p50": _seconds(words, 0.5),
        "word_p99": _seconds(words, 0.99),
        "told_p50": _seconds(told, 0.5),
        "told_p99": _seconds(told, 0.99),
        "room": f"{RUNS[of_load(LOADS[0])].room}",
        "soon": f"{SOON_SECONDS}",
    }


def _audited(main: Measured) -> str:
    """Say what was found once all was over, and of how many departures not all could be."""
    if not main.markets:
        return "What is left open once all is over is looked at when the run is done."
    over = f"the market of {main.leases} leases"
    if main.markets > 1:
        over = f"{main.markets} markets of {main.leases} leases, one after the other,"
    some = "" if main.audited == len(main.rows) else f" ({main.audited} of the departures)"
    held = (
        f"Once all was over in {over}{some} no lease or bid was open, nothing was held, no GPU had "
        "been leased twice at once, each bill was still right, the ledger summed to zero, and "
        "`manage.py doctor` was content."
    )
    if main.wrong:
        held = f"Once all was over in {over}{some} this was wrong: {'; '.join(main.wrong)}."
    trouble = sum(row.trouble for row in main.rows)
    if trouble:
        held += f" Of {trouble} departures the bill was not whole within five minutes."
    return held


def _is_promised(row: Row) -> bool:
    return row.kind in ("notice", "kill-switch")


def _by_kind(rows: Sequence[Row]) -> str:
    """Return of each kind how many went on in time, and after how long."""
    lines = []
    for name, some in _kinds(rows):
        after = known(row.after for row in some)
        in_time = _percent(share(row.in_time for row in some))
        lines.append([name, str(len(some)), in_time, _seconds(after, 0.5), _seconds(after, 0.99)])
    return table("departure | count | in time | elsewhere, p50 | p99", lines)


def _lost_by_kind(rows: Sequence[Row]) -> str:
    """Return of each kind what work was lost."""
    lines = []
    for name, some in _kinds(rows):
        lost = known(row.lost for row in some)
        each = [_seconds(lost, at) for at in (0.5, 0.9, 1.0)]
        lines.append([name, f"{sum(row.done for row in some):,.0f}", f"{sum(lost):,.0f}", *each])
    return table("seconds of work | done | lost | lost each, p50 | p90 | most", lines)


def _kinds(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    for kind in KINDS:
        if some := [row for row in rows if row.kind == kind]:
            yield NAMES[kind], some


def _by_load(figures: Mapping[str, Measured]) -> str:
    lines = []
    for load in LOADS:
        if (run := figures.get(of_load(load))) is None:
            continue
        after = known(row.after for row in run.rows)
        lines.append(
            [
                f"{load} %",
                f"{share_of_room(run.rows):.0f} %",
                str(len(run.rows)),
                _percent(share(row.in_time for row in run.rows)),
                _percent(share((row.after or 1e9) <= SOON_SECONDS for row in run.rows)),
                _seconds(after, 0.5) if after else "-",
            ]
        )
    if not lines:
        return "Not measured yet."
    head = (
        "asked for by others | leased when a host left | departures | in time "
        f"| within {SOON_SECONDS} s | elsewhere, p50"
    )
    return table(head, lines)


def _load_bills(figures: Mapping[str, Measured]) -> str:
    """Say what was billed wrongly at the loads, all of them together."""
    rows = [
        row for load in LOADS if of_load(load) in figures for row in figures[of_load(load)].rows
    ]
    twice, unbilled = sum(row.twice_ms for row in rows), sum(row.unbilled_ms for row in rows)
    wrong = sum(bool(row.twice_ms or row.unbilled_ms) for row in rows)
    return (
        f"Of these {len(rows)} departures {wrong} were billed wrongly: {twice} ms too much, "
        f"{unbilled} ms not at all."
    )


def share_of_room(rows: Sequence[Row]) -> float:
    """Return how much of the staying host was leased when hosts left, on average, in percent."""
    return sum(row.room for row in rows) / len(rows)


def _shipped(run: Measured | None) -> str:
    if run is None:
        return "With half an hour of silence it was not measured yet."
    words = known(row.after_word for row in run.rows)
    each = ", ".join(f"{seconds / 60:.1f}" for seconds in words)
    return (
        f"With half an hour, as every installation has it at first, {len(run.rows)} hosts fell "
        f"silent or lost power: their work ran elsewhere {each} minutes after their last word."
    )


def _percent(value: float) -> str:
    """Write a share, without a decimal where it is all or nothing."""
    return f"{100 * value:.0f} %" if value in (0, 1) else f"{100 * value:.1f} %"


def _seconds(values: Sequence[float], at: float) -> str:
    return f"{percentile(values, at):.1f} s" if values else "-"
