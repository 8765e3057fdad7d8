"""Keepers that kill themselves with the N-th call that they make after they came to a place.

A keeper is a script that its runtime starts; here it is one that has the real one keep the work and
counts what that calls. The interpreter counts, so no step is left out that somebody adds: each
function of Python or of C is one.
"""

from __future__ import annotations

from pathlib import Path

from metering.agent.runtimes import keeper

SCRIPT = """\
import os, signal, sys
sys.path.insert(0, {folder!r})
import keeper
place, left, own = {place!r}, {at}, os.getpid()

def count(frame, event, arg):
    global place, left
    if event not in ("call", "c_call") or os.getpid() != own:
        return
    if place and frame.f_code.co_name == place:
        place = ""
    if not place:
        left -= 1
    if left == 0:
        os.kill(own, signal.SIGKILL)

sys.setprofile(count)
keeper.main()
"""


def doomed_at(place: str, at: int, folder: Path) -> Path:
    """Return the script of a keeper that dies with the `at`-th call since it entered a function."""
    script = folder / f"keeper-{place}-{at}.py"
    runtimes = str(Path(keeper.__file__).parent)
    script.write_text(SCRIPT.format(folder=runtimes, place=place, at=at))
    return script
