"""`manage.py doctor`: look at the installation and the invariants; say how to mend what is off."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from config.examination import examine
from config.processes import fitness


class Command(BaseCommand):
    """One line a check; exit status 1 if any fails."""

    help = "Check the installation and the market's invariants on live data."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take --quick, which leaves out what takes long, or --whole, which reads all files."""
        how = parser.add_mutually_exclusive_group()
        how.add_argument(
            "--quick", action="store_true", help="skip what reads every event, and the storage"
        )
        how.add_argument(
            "--whole", action="store_true", help="read all files in storage, not only a sample"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Print every finding."""
        self.stdout.write(f"Offpeak {fitness.version()}")
        failed = 0
        for finding in examine(whole=not options["quick"], every_file=options["whole"]):
            mark = "ok  " if finding.ok else "FAIL"
            detail = f": {finding.detail}" if finding.detail else ""
            self.stdout.write(f"{mark} {finding.name}{detail}")
            failed += not finding.ok
        if failed:
            raise CommandError(f"{failed} of the checks failed")
