"""`offpeak-agent pause | drain | release | resume | status`: the owner's hand as a command.

The agent is asked; where none answers, the word is written where the next one reads it, and
`release` ends the work itself.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..clock import SystemClock
from ..wire import Taking
from . import freeing
from .control import NoAnswer, NotHeeded, ask
from .shown import last_account, lines
from .switch import read_word, write_word

WORDS: dict[str, Taking] = {
    "pause": "paused",
    "drain": "draining",
    "release": "released",
    "resume": "all",
}
DONE: dict[Taking, str] = {
    "paused": "paused: no new work is taken, what runs goes on",
    "draining": "draining: no new work is taken, what runs ends with its notice",
    "released": "released: no work runs, and none is taken",
    "all": "resumed: work is taken",
}
STATED_SECONDS_MAX = 3_600.0
POLL_SECONDS = 0.02


def speak(verb: str, state_dir: Path, *, now: bool = False) -> int:
    """Do what the owner said, and print what came of it; return the exit status.

    now: of `release`: no grace. 0 done, 1 not, or not wholly.
    """
    taking, began = WORDS[verb], time.monotonic()
    if not state_dir.is_dir():
        return _fail(f"{state_dir} is no state directory of an agent: name it by --state-dir")
    try:
        status = ask(state_dir, taking, stated_grace=not now)
    except NotHeeded as why:
        _fail(str(why))
        if taking != "released":
            return 1
        status = {"leases": []}
    except NoAnswer as why:
        return _without_agent(taking, state_dir, str(why), now=now)
    if taking == "released":
        return _wait_until_free(state_dir, status, began, now=now)
    print(DONE[taking])
    return 0


def show(state_dir: Path, *, as_json: bool) -> int:
    """Print how the host stands; 1 where no agent answers."""
    try:
        status = ask(state_dir, "status")
        status["agent"]["answers"] = True
    except (NoAnswer, NotHeeded):
        status = last_account(state_dir)
        status["agent"]["answers"] = False
    print(json.dumps(status) if as_json else "\n".join(lines(status)))
    return 0 if status["agent"]["answers"] else 1


def _wait_until_free(state_dir: Path, status: dict[str, Any], began: float, *, now: bool) -> int:
    graces = [lease["grace_ms"] / 1000 for lease in status["leases"]]
    wait = freeing.FREE_SECONDS_MAX
    if not now:
        wait += min(STATED_SECONDS_MAX, max(graces, default=0.0))
    while freeing.living(state_dir):
        if time.monotonic() - began > wait:
            return _free(state_dir, began, "the agent did not end all work", seconds=0)
        time.sleep(POLL_SECONDS)
    print(f"{DONE['released']}; free after {time.monotonic() - began:.2f} s")
    return 0


def _without_agent(taking: Taking, state_dir: Path, why: str, *, now: bool) -> int:
    began = time.monotonic()
    # An agent that is just being started must find the word: it comes before all else.
    word = read_word(state_dir).then(taking, now_ms=_now_ms(state_dir), stated_grace=not now)
    try:
        write_word(state_dir, word)
    except OSError as error:
        _fail(f"the word for the next agent cannot be written: {error}")
        if taking != "released":
            return 1
    if taking == "released":
        seconds = 0.0 if now else _stated_seconds(state_dir)
        return _free(state_dir, began, why, seconds=seconds)
    print(f"{DONE[taking]}; {why}, the next one obeys it")
    return 0


def _free(state_dir: Path, began: float, why: str, *, seconds: float) -> int:
    lock = freeing.hold(state_dir)
    try:
        left = freeing.free(state_dir, stated_seconds=seconds)
    finally:
        if lock is not None:
            os.close(lock)
    if left:
        return _fail(f"{why}; still there: {', '.join(left)}")
    spent = time.monotonic() - began
    print(f"{DONE['released']}; free after {spent:.2f} s ({why})")
    return 0


def _stated_seconds(state_dir: Path) -> float:
    """Return the longest grace of what ran when the agent last gave an account."""
    with suppress(KeyError, TypeError, ValueError):
        leases = last_account(state_dir).get("leases", [])
        graces = [float(lease["grace_ms"]) / 1000 for lease in leases]
        return min(STATED_SECONDS_MAX, max(graces, default=0.0))
    return 0.0


def _now_ms(state_dir: Path) -> int:
    """Return the time by the clock that the agent of this directory keeps."""
    leases = state_dir / "leases"
    runs = leases.is_dir() and any(leases.iterdir())
    make: Callable[[], SystemClock] = SystemClock
    with suppress(OSError):
        return SystemClock.kept_in(state_dir / "clock.json", work_runs=runs).now_ms()
    return make().now_ms()


def _fail(text: str) -> int:
    print(f"offpeak-agent: {text}", file=sys.stderr)
    return 1
