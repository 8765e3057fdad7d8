"""The process that an installation's own are forked from, as `manage.py up` forks its own.

Each would take seconds to import the product for itself. As a program, `python -m
tests.journeys.parent` reads what to fork from its input, a line of JSON for each, until that ends.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import django
from django.core.management import execute_from_command_line

ROOT = Path(__file__).resolve().parents[2]
FOUND = "found"
"""In place of a command of `manage.py`: set up the organisations."""


class Forked:
    """A fork of a parent, used as if we had started it."""

    def __init__(self, parent: Parent, pid: int) -> None:
        self._parent = parent
        self.pid = pid
        self._held = os.pidfd_open(pid)
        self._code: int | None = None

    def poll(self) -> int | None:
        """Return its code if it has ended, else None."""
        return self._code_within(0.0)

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it has not ended."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._held, number)

    def kill(self) -> None:
        """End it with SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def wait(self, seconds: float) -> int:
        """Wait until it has ended; return its code.

        Raises: subprocess.TimeoutExpired.
        """
        if (code := self._code_within(seconds)) is None:
            raise subprocess.TimeoutExpired(str(self.pid), seconds)
        return code

    def _code_within(self, seconds: float) -> int | None:
        if self._code is None:
            self._code = self._parent.code(self.pid, within=seconds)
        return self._code


class Parent:
    """It has the settings of one installation; its forks live no longer than it does."""

    def __init__(self, environment: Mapping[str, str], log: Path) -> None:
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.journeys.parent"],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=out,
                text=True,
                env=dict(environment),
                start_new_session=True,
            )

    def fork(self, words: Sequence[str], out: Path, err: Path, *, checked: bool) -> Forked:
        """Let a fork do what `manage.py` does with these words, and write at the ends of files.

        checked: it looks at the settings first, as by hand; a child of `manage.py up` does not.
        """
        asked = {"words": list(words), "out": str(out), "err": str(err), "checked": checked}
        return Forked(self, self._ask(asked))

    def code(self, pid: int, *, within: float) -> int | None:
        """Return what a fork has ended with, or ends with within so many seconds, else None."""
        code: int | None = self._ask({"ended": pid, "within": within})
        return code

    def end(self) -> None:
        """End it, and whatever it has forked."""
        self._process.communicate(timeout=30)

    def _ask(self, asked: Mapping[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


def main() -> None:
    """Import what `manage.py up` does, and fork whatever is asked for."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
    django.setup()
    from django.conf import settings

    from config.processes.children import fork, settle_before_forks
    from config.processes.sharing import import_for_all

    import_for_all(settings.ENV)
    settle_before_forks()
    sys.argv = [str(ROOT / "manage.py")]
    forks: dict[int, BaseProcess] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        if "ended" in asked:
            ended = forks[asked["ended"]]
            ended.join(asked["within"])
            print(json.dumps(ended.exitcode), flush=True)
            continue
        words = asked["words"]
        work = partial(_begin, words, asked["err"], checked=asked["checked"])
        with Path(asked["out"]).open("ab") as out:
            child = fork(f"offpeak: {words[0]}", work, output=out.fileno())
        assert child.pid is not None
        forks[child.pid] = child
        print(child.pid, flush=True)
    os._exit(0)  # the ordinary way waits for forks, which end when they see that we have


def _begin(words: list[str], err: str, *, checked: bool) -> None:
    from config.processes.sharing import manage
    from tests.journeys import founding

    with Path(err).open("ab") as file:
        os.dup2(file.fileno(), 2)
    if words == [FOUND]:
        founding.main()
    elif checked:
        execute_from_command_line([sys.argv[0], *words])
    else:
        manage(*words)


if __name__ == "__main__":
    main()
