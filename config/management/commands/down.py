"""`manage.py down`: end a market that `up` left running under this data directory."""

from __future__ import annotations

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
    """Ask the supervisor to end, wait for it, then stop the embedded database."""

    help = "End what `manage.py up` left running under OFFPEAK_HOME."

    def handle(self, *args: Any, **options: Any) -> None:
        """End it, or say that nothing runs."""
        held = settings.HOME / "up.lock"
        if not held.exists():
            self.stdout.write("nothing is running")
            return
        with held.open("r+") as lock:
            deadline = time.monotonic() + DOWN_SECONDS_MAX
            asked = False
            pause = threading.Event()
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError:
                    if not asked:
                        os.kill(int(lock.read()), signal.SIGTERM)
                        asked = True
                if time.monotonic() > deadline:
                    raise CommandError(f"it did not end within {DOWN_SECONDS_MAX} s")
                pause.wait(0.1)
            if not settings.ENV.database_url:
                stop_database(settings.HOME)
        self.stdout.write("stopped" if asked else "nothing is running")
