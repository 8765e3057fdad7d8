"""What a job on a Slurm cluster runs: the keeper of the lease's work, in the job's own limits.

A job may be begun twice: submitted again by an agent that did not hear of the first, or after
the cluster lost its record of it. So the lock is taken and the folder is looked at before
anything: work that began or was given up never begins (again). What the keeper is to do is in a
file that is gone before the work begins, and so are its secrets, which lie in memory.

Slurm ends a job by asking all its processes to end, the keeper too. That is written down, so that
the agent can tell it from an end of its own doing, and the keeper stays until the work is gone.

Run as a script, isolated (`python -I -S slurm_job.py FOLDER`), like the keeper.
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from .keeper import Deadline, keep, write_json
else:
    sys.path.insert(0, str(Path(__file__).parent))
    from keeper import Deadline, keep, write_json

TOO_LATE = "its time was over before the cluster came to it"
NO_SECRETS = "its secrets are not there any more: its host was started anew"
NEVER_BEGAN = 127
SIGNALLED = 128


def run(folder: Path) -> int:
    """Keep the work of a folder until all of it is gone; return how its command ended."""
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    lock = os.open(folder / "keeper.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 0  # another job of this lease is at it
    if (folder / "started.json").exists() or (folder / "exit.json").exists():
        return 0
    deadline, now_ns = Deadline.read(folder / "deadline.json"), _boot_ns()
    due = [] if deadline is None else [each for each in deadline if each is not None]
    if due and min(due) <= now_ns:
        write_json(folder / "exit.json", {"failed": TOO_LATE})
        return NEVER_BEGAN
    order: dict[str, Any] = json.loads((folder / "order.json").read_bytes())
    (folder / "order.json").unlink()
    if (at := order.pop("secrets_at", None)) is not None:
        try:
            order |= json.loads(Path(at).read_bytes())
            Path(at).unlink()
        except OSError:
            write_json(folder / "exit.json", {"failed": NO_SECRETS})
            return NEVER_BEGAN
    signal.signal(signal.SIGTERM, lambda *_: _asked(folder))
    _, ready = os.pipe2(os.O_CLOEXEC)
    keep(folder, order, ready)
    return code_of(json.loads((folder / "exit.json").read_bytes()).get("exit_code"))


def code_of(code: int | None) -> int:
    """Return an exit code as a job can end with it, as a shell tells of signals."""
    if code is None:
        return NEVER_BEGAN
    return code if code >= 0 else SIGNALLED - code


def _asked(folder: Path) -> None:
    """Take the cluster's request to end for the work's deadline: it kills us all soon."""
    now_ns, file = _boot_ns(), folder / "deadline.json"
    if not (folder / "cancelled.json").exists():
        write_json(folder / "cancelled.json", {"boot_ns": now_ns})
    known = Deadline.read(file) or Deadline(None, None)
    if known.stop_ns is None or known.stop_ns > now_ns:
        known._replace(stop_ns=now_ns).write(file)


def _boot_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1])))
