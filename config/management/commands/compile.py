"""`manage.py compile`: compile the market's kernels, so that engines find them compiled."""

from __future__ import annotations

import fcntl
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from config.database.private import private_folder
from config.processes.giving_way import give_way
from config.processes.kernels import LOCK
from config.processes.orphans import end_with_supervisor
from marketplace import kernels


class Command(BaseCommand):
    """Minutes of one core, once for a version; an engine that finds nothing has a child do it."""

    help = "Compile the market's kernels into OFFPEAK_KERNELS (or `kernels` under OFFPEAK_HOME)."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take how much to give way, and whether who started this has the lock."""
        parser.add_argument(
            "--nice", type=int, default=0, help="give way to other processes, 0 to 19 (default 0)"
        )
        parser.add_argument("--lock-held", action="store_true", help="whoever starts this has it")

    def handle(self, *args: Any, **options: Any) -> None:
        """Compile what is not compiled yet."""
        end_with_supervisor()
        give_way(options["nice"])
        at = private_folder(settings.KERNELS)
        if options["lock_held"]:
            self._compile()
            return
        with (at / LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._compile()

    def _compile(self) -> None:
        at = settings.KERNELS
        if not kernels.are_complete(at):
            for name in kernels.PARTS:
                kernels.compile_part(at, name)
                done, of = kernels.progress(at)
                self.stdout.write(f"{name}: {done} of {of} kernels are compiled")
            kernels.finish(at)
        self.stdout.write(f"compiled kernels lie in {kernels.folder(at)}")
