"""`manage.py run NAME…`: run loops of the installation in this process."""

from __future__ import annotations

import signal
import threading
from argparse import ArgumentParser
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from config.database import limits
from config.processes.clock import clock, end_when_turned_back
from config.processes.giving_way import give_way
from config.processes.loops import run_loop
from config.processes.orphans import end_with_supervisor
from config.processes.starting import refuse_unfit
from config.security.signing_keys import tell_key_meanwhile
from config.wiring import loop_groups, loops
from ledger.collecting import seldom


class Command(BaseCommand):
    """One thread a loop; each waits until no other process holds it."""

    help = "Run loops: " + "clearing, projections, policies and the rest (see --list)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take the names of loops, or of the groups that `manage.py up` makes processes of."""
        parser.add_argument("names", nargs="*", metavar="NAME")
        parser.add_argument("--list", action="store_true", help="name every loop and end")
        parser.add_argument(
            "--nice", type=int, default=0, help="give way to other processes, 0 to 19 (default 0)"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Run until SIGTERM or Ctrl-C."""
        known = {loop.name: loop for loop in loops(settings.ENV)}
        if options["list"]:
            self.stdout.write("\n".join(sorted(known)))
            return
        names = asked(options["names"], known, loop_groups(settings.ENV))
        unknown = sorted(set(names) - set(known))
        if unknown:
            raise CommandError(f"no such loop: {', '.join(unknown)} (manage.py run --list)")
        end_with_supervisor()
        seconds = settings.ENV.database_statement_seconds * limits.LOOP_TIMES
        limits.keep(limits.Limits(seconds))
        give_way(options["nice"])
        seldom()
        tell_key_meanwhile()
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        refuse_unfit(stop=stop)
        threads = [
            threading.Thread(target=run_loop, args=(known[name],), kwargs={"stop": stop}, name=name)
            for name in names
        ]
        for thread in threads:
            thread.start()
        end_when_turned_back(stop)
        for thread in threads:
            thread.join()
        if clock.turned_back:
            raise CommandError("the clock was put back: what was kept in memory is of a later time")


def asked(
    names: Sequence[str], known: Collection[str], groups: Mapping[str, Sequence[str]]
) -> list[str]:
    """Return the loops that are meant: all of them where none is named.

    A name that a group shares with one of its loops means the group. Loops of a group that this
    installation has no use for, such as bursting, are left out.
    """
    if not names:
        return sorted(known)
    meant = [each for name in names for each in groups.get(name, (name,))]
    unused = {each for group in groups.values() for each in group}.difference(known)
    return [each for each in dict.fromkeys(meant) if each not in unused]
