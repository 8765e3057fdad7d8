"""What became of a lease's work, judged by what its keeper left in its folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..clock import Clock, kernel_boot_id
from ..wire import HOST_RESTARTED
from .family import stat_of
from .port import Work
from .records import is_locked, read
from .source_first import MARK
from .sources import COMING

KEEPER_KILLED = "the process that kept it was killed"


def judged(work: Work, folder: Path, root: Mapping[str, Any], clock: Clock) -> Work:
    """Return work that began, as it stands. root: the record of its start.

    Lost for KEEPER_KILLED, some of it may still live: nobody knows when it ends, so it ends now.
    """
    if root["kernel_boot_id"] != kernel_boot_id():
        # The readings of the boot clock mean nothing any more; the meter knows how far it got.
        return replace(work, state="ended", lost=True, detail=HOST_RESTARTED)
    if (started_ms := clock.at_boot_ns(root["boot_ns"])) != work.started_ms:
        commit, left_out = root.get("commit", ""), tuple(root.get("left_out", ()))
        work = replace(work, started_ms=started_ms, coming="", commit=commit, left_out=left_out)
    kept = is_locked(folder / "keeper.lock")
    stat = stat_of(root["pid"])
    alive = stat is not None and stat.ticks == root["ticks"] and stat.state not in "ZX"
    if kept and alive:  # the keeper writes of its end when it has none any more
        return work if work.state == "running" else replace(work, state="running")
    if end := read(folder / "exit.json"):
        ended_ms = clock.at_boot_ns(end["boot_ns"])
        if failed := end.get("failed"):  # what was around it ended before it began
            return replace(work, state="ended", ended_ms=ended_ms, lost=True, detail=str(failed))
        stopped, code = bool(end.get("stopped")), end["exit_code"]
        return replace(work, state="ended", ended_ms=ended_ms, exit_code=code, stopped=stopped)
    if kept:
        return replace(work, state="ending")
    return replace(work, state="ended", ended_ms=clock.now_ms(), lost=True, detail=KEEPER_KILLED)


def unbegun(work: Work, folder: Path) -> Work:
    """Return work of whose start there is no record: still starting, or never to begin."""
    if is_locked(folder / "keeper.lock"):
        coming = COMING if (folder / MARK).exists() else ""
        return work if work.coming == coming else replace(work, coming=coming)
    end = read(folder / "exit.json")
    detail = str(end.get("failed", "the process that kept it died at its start"))
    return replace(work, state="ended", lost=True, detail=detail)
