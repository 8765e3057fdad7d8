"""`manage.py demo`: fill an installation with a made-up week, keep it alive, greet who looks."""

from __future__ import annotations

import signal
import threading
import time
from argparse import ArgumentParser
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from config.address import address_on_this_machine
from config.demo import workbench
from config.demo.cast import PLAYERS
from config.demo.fleet import Fleet
from config.demo.live import Live
from config.demo.secrets import Secrets
from config.demo.seeding import seed
from config.env import Env
from config.processes.orphans import end_with_supervisor
from config.wiring import policies, projections
from ledger.eventstore import default_store
from ledger.following import Policy

CONSUMER = "grace@demo.example"


def policies_of_the_week(env: Env) -> tuple[Policy, ...]:
    """Return what reacts while the week is played: by today's clock all of its grants are late."""
    return policies(env, clock=None)


class Command(BaseCommand):
    """For demo installations only (OFFPEAK_DEMO=1)."""

    help = "Seed the demo market, run its activity, or print how to look at it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take what to do."""
        what = parser.add_mutually_exclusive_group(required=True)
        what.add_argument("--seed", action="store_true", help="replay a week, once")
        what.add_argument("--live", action="store_true", help="agents, bids, reclaims, bursts")
        what.add_argument("--greet", action="store_true", help="print log-ins and a token")

    def handle(self, *args: Any, **options: Any) -> None:
        """Do it."""
        if not settings.ENV.demo:
            raise CommandError("this is no demo installation: OFFPEAK_DEMO=1 makes one")
        if options["seed"]:
            self._seed()
        elif options["live"]:
            self._live()
        else:
            self._greet()

    def _seed(self) -> None:
        env, started = settings.ENV, time.monotonic()
        events = seed(
            default_store(),
            env=env,
            home=settings.HOME,
            policies=policies_of_the_week(env),
            projections=projections(),
            now=datetime.now(UTC),
        )
        if events:
            seconds = time.monotonic() - started
            self.stdout.write(f"replayed a week of the market: {events} events in {seconds:.0f} s")

    def _live(self) -> None:
        end_with_supervisor()
        env, stop = settings.ENV, threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        fleet = Fleet(settings.HOME, address_on_this_machine(env.host, env.port), stop=stop)
        fleet.start()
        live = Live(
            default_store(),
            fleet,
            market=env.market,
            markets=settings.MARKETS,
            currency=env.currency,
            now=datetime.now(UTC),
        )
        try:
            live.run(stop)
        finally:
            stop.set()
            fleet.join()

    def _greet(self) -> None:
        address = address_on_this_machine(settings.ENV.host, settings.ENV.port)
        token = Secrets(settings.HOME).get(CONSUMER, "user")
        cli = ".venv/bin/offpeak"
        why_not = workbench.why_not()
        at_work = (
            f"(no host runs work for real: {why_not})"
            if why_not
            else f"{cli} run --needs gpu=A10 --for 10m --max 1.00 -- echo hello"
        )
        people = "\n".join(
            f"    {player.title:<16} {', '.join(player.roles):<36} {organisation.title}"
            for organisation, player in PLAYERS
        )
        self.stdout.write(
            f"""
Offpeak's demo market: {address}/   (made-up data, simulated GPUs, real everything else)

  Sign in with one click at {address}/accounts/login/ as
{people}

  A token of Grace's, and commands to try in another terminal:
    export OFFPEAK_SERVER={address} OFFPEAK_TOKEN={token}
    {cli} market
    {cli} bids create "gpu=A100" --gpus 1 --for 10m --max 2.00 --soonest --wait
    {cli} leases list
    {at_work}
"""
        )
