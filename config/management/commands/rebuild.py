"""`manage.py rebuild NAME…`: make read models anew from event 0 and swap them in."""

from __future__ import annotations

import time
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from config.database.owning import as_owner
from config.wiring import projections
from ledger.eventstore import default_store
from ledger.rebuilding import RebuildRunning, rebuild


class Command(BaseCommand):
    """Readers see the old rows until the new ones are complete."""

    help = "Rebuild read models beside the live ones, then swap."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take the names of projections, or `all`."""
        parser.add_argument("names", nargs="+", metavar="NAME")

    def handle(self, *args: Any, **options: Any) -> None:
        """Rebuild one after the other and say how long each took."""
        known = {projection.name: projection for projection in projections()}
        names = sorted(known) if options["names"] == ["all"] else options["names"]
        unknown = sorted(set(names) - set(known))
        if unknown:
            raise CommandError(
                f"no such read model: {', '.join(unknown)}. There are: {', '.join(sorted(known))}"
            )
        for name in names:
            started = time.monotonic()
            try:
                with as_owner():
                    events = rebuild(default_store(), known[name])
            except RebuildRunning as running:
                raise CommandError(f"{name}: {running}") from None
            seconds = time.monotonic() - started
            self.stdout.write(f"{name}: {events} events in {seconds:.2f} s")
