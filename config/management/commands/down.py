"""`manage.py down`: end a market that `up` left running under this data directory."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import threading
import time
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from config.database.embedded import stop as stop_database

DOWN_SECONDS_MAX = 30


class Command(BaseCommand):
    """Ask the supervisor to end, wait for it, then stop the embedded database.

    It serves nothing: what is wrong with the site keeps nobody from ending it.
    """

    help = "End what `manage.py up` left running under OFFPEAK_HOME."
    requires_system_checks = ()

    def handle(self, *args: Any, **options: Any) -> None:
        """End it, or say that nothing runs."""
        asked = self._end_supervisor()
        ended = not settings.ENV.database_url and stop_database(settings.HOME)
        self.stdout.write("stopped" if asked or ended else "nothing is running")

    def _end_supervisor(self) -> bool:
        """Ask the supervisor to end and wait until it has; tell whether there was one."""
        held = settings.HOME / "up.lock"
        if not held.exists():
            return False
        asked = False
        with held.open("r+") as lock:
            deadline = time.monotonic() + DOWN_SECONDS_MAX
            pause = threading.Event()
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return asked
                except OSError:
                    lock.seek(0)
                    process = lock.read().strip()
                    if not asked and process:  # empty: it has only just taken the lock
                        with contextlib.suppress(ProcessLookupError):  # it ends by itself
                            os.kill(int(process), signal.SIGTERM)
                        asked = True
                if time.monotonic() > deadline:
                    raise CommandError(f"it did not end within {DOWN_SECONDS_MAX} s")
                pause.wait(0.1)
