"""`manage.py parked`: what policies could not react to, and another try of it."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from ledger import parking


class Command(BaseCommand):
    """Lists what is parked, the oldest first; with --retry it is tried at once."""

    help = "List the events that policies could not react to, or let them be tried again at once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take --retry, once for each number of the list; without a number, for all."""
        parser.add_argument("--retry", type=int, nargs="*", metavar="NUMBER")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print a line for each, or note that they are due."""
        if options["retry"] is not None:
            self._retry(options["retry"])
            return
        rows = list(parking.parked())
        for row in rows:
            state = f"{row.attempts} attempts, {row.error}" if row.attempts else "waits"
            self.stdout.write(
                f"{row.pk}  {row.policy}  {row.type}@{row.position}  {row.subject}: {state}"
            )
        if not rows:
            self.stdout.write("Nothing is parked.")

    def _retry(self, numbers: list[int]) -> None:
        asked = numbers or list(parking.parked().values_list("pk", flat=True))
        now = datetime.now(UTC)
        tried = [number for number in asked if parking.try_again(number, now=now)]
        if numbers and len(tried) < len(numbers):
            missing = ", ".join(str(number) for number in numbers if number not in tried)
            raise CommandError(f"Nothing of that number waits for a try: {missing}.")
        self.stdout.write(f"{len(tried)} are tried again within seconds.")
