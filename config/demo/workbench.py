"""The demo's one machine that runs work for real: its GPUs are made up, its agent and work are not.

What is leased there runs on the computer of whoever looks at the demo, and everybody on that
computer may sign in. So it runs confined, or as an account of its own, or not at all.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from config.demo.cast import WORKBENCH
from config.demo.secrets import Secrets
from config.processes.orphans import end_with_supervisor
from metering.agent import __main__ as program
from metering.agent.runtimes.users import UsersUnfit, make_passable
from metering.agent.work_as import Wish, WorkUnsafe, work_as

ROOT_FOLDER = Path("/var/lib/offpeak-demo")
"""Where root keeps it: accounts of leased work cannot go through the demo's own folder."""
UID_FIRST = 300_000
ACCOUNTS = 16
RANGES = 64
SEEN_ANYWAY = ("/usr", "/opt")


def why_not() -> str:
    """Return why no work runs here for real; empty where it does."""
    try:
        work_as(_wish(_accounts(Path())))
    except (WorkUnsafe, UsersUnfit) as unsafe:
        return str(unsafe)
    return ""


def run(home: Path, address: str) -> None:
    """Be the machine's agent until SIGTERM; its work goes on, and the next start takes it up."""
    end_with_supervisor()
    os.environ[program.TOKEN_VARIABLE] = Secrets(home).get(WORKBENCH.slug, "host")
    sys.exit(program.main(options(home, address)))


def options(home: Path, address: str) -> Sequence[str]:
    """Return the command line of the agent."""
    wish = _wish(_accounts(home))
    reads = [word for each in wish.readable for word in ("--work-reads", str(each))]
    return [
        "run",
        *("--server", address),
        *("--hostname", WORKBENCH.slug),
        *("--simulate", WORKBENCH.models),
        *("--state-dir", str(_folder(home))),
        *(("--work-users", wish.users) if wish.users else ()),
        *reads,
    ]


def _wish(users: str | None) -> Wish:
    return Wish(users=users, pretended=True, readable=_python() if users is None else ())


def _python() -> tuple[Path, ...]:
    """Return where this Python is, if work that is confined would not see it."""
    base = Path(sys.base_prefix).resolve()
    return () if any(map(base.is_relative_to, SEEN_ANYWAY)) else (base,)


def _accounts(home: Path) -> str | None:
    """Return accounts for the work where we are root; two demos have others, as far as they go."""
    if os.geteuid() != 0:
        return None
    first = UID_FIRST + ACCOUNTS * (_number_of(home) % RANGES)
    return f"{first}-{first + ACCOUNTS - 1}"


def _folder(home: Path) -> Path:
    """Make and return where the agent keeps its state and the leases' folders.

    As root it lies elsewhere, and `work` in the demo's folder leads to it: who removes that folder
    finds it. Without that link, what is there is of a demo that is no more.
    """
    link = home / "demo" / "work"
    if os.geteuid() != 0:
        return link
    folder = ROOT_FOLDER / f"{_number_of(home):08x}"
    if not link.is_symlink():
        shutil.rmtree(folder, ignore_errors=True)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(folder)
    make_passable(folder)
    return folder


def _number_of(home: Path) -> int:
    return int.from_bytes(sha256(str(home.resolve()).encode()).digest()[:4])
