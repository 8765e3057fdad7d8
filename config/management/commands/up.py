"""`manage.py up`: the whole installation as one tree of processes, in the foreground."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, connections

from config.address import address_on_this_machine
from config.database.embedded import stop as stop_database
from config.database.private import private_folder
from config.demo import workbench
from config.demo.secrets import Secrets
from config.logs import setup as logs
from config.management.commands.demo import CONSUMER
from config.models import LoopRun
from config.processes.orphans import end_with_supervisor
from config.processes.sharing import import_for_all, manage
from config.processes.starting import refuse_unfit
from config.processes.supervisor import Supervisor
from config.wiring import GIVE_WAY, loop_groups, loops
from ledger.eventstore import default_store
from ledger.eventstore.port import StoreError
from ledger.following import lag

READY_SECONDS_MAX = 120
PREPARE_SECONDS_MAX = 600
READY_LOOK_SECONDS = 0.2


class Command(BaseCommand):
    """Migrate, fill a demo market where asked to, serve, and end together on Ctrl-C."""

    help = "Run web and all loops in the foreground. With OFFPEAK_DEMO=1: a living demo market."

    def handle(self, *args: Any, **options: Any) -> None:
        """Serve until SIGTERM or Ctrl-C.

        This process asks the database for nothing before all its children have ended: they are
        forks of it, and a connection can be nobody's but its maker's.
        """
        env, home = settings.ENV, settings.HOME
        self._began = datetime.now(UTC)
        private_folder(home)
        self._only_one(home / "up.lock")
        self._refuse_taken_port()
        supervisor = Supervisor(home / "logs", logs.redaction_of(env, settings.SECRET_KEY).line)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: supervisor.stop.set())
        self._add_children(supervisor)
        import_for_all(env)
        if code := supervisor.run():
            sys.exit(code)
        if not env.database_url:
            stop_database(home, unless_used=True)
        self.stdout.write("stopped")

    def _add_children(self, supervisor: Supervisor) -> None:
        env = settings.ENV
        prepared = supervisor.step(
            "prepare", self._prepare, must=True, stop_seconds=PREPARE_SECONDS_MAX
        )
        supervisor.add("web", partial(manage, "web"), after=prepared)
        # The site first: on two cores seven processes that begin at once keep it waiting.
        served = supervisor.step("served", self._await_site, after=prepared)
        known = {loop.name for loop in loops(env)}
        for name, group in loop_groups(env).items():
            if wanted := [each for each in group if each in known]:
                work = partial(manage, "run", "--nice", str(GIVE_WAY.get(name, 0)), *wanted)
                supervisor.add(name, work, after=served)
        if env.demo:
            supervisor.add("demo", partial(manage, "demo", "--live"), after=served)
            if not workbench.why_not():
                address = address_on_this_machine(env.host, env.port)
                at_work = partial(workbench.run, settings.HOME, address)
                supervisor.add("workbench", at_work, after=served)
        supervisor.step("ready", self._announce, after=served)

    def _prepare(self) -> None:
        """Make the tables and who is there from the beginning; what was begun is finished, unless
        the supervisor is killed."""
        end_with_supervisor(by=signal.SIGKILL)
        stop = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: stop.set())
        try:
            refuse_unfit(stop=stop)
            if stop.is_set():
                return
            call_command("migrate", verbosity=0)
            if settings.ENV.demo:
                call_command("demo", "--seed", stdout=self.stdout)
            else:
                call_command("bootstrap", verbosity=0)
        except CommandError as refused:
            self.stderr.write(f"CommandError: {refused}")
            sys.exit(refused.returncode)

    def _await_site(self) -> None:
        """Return once the site answers."""
        end_with_supervisor()
        address = address_on_this_machine(settings.ENV.host, settings.ENV.port)
        self._wait(lambda: "" if _answers(address, "/healthz") else "web")

    def _announce(self) -> None:
        """Say so once everything works.

        A loop may have gone through its first pass, and not be due for an hour, before this child
        looks: so what counts is what was done since all of us began.
        """
        end_with_supervisor()
        address = address_on_this_machine(settings.ENV.host, settings.ENV.port)
        self._wait(lambda: _missing(self._began, address))
        connections.close_all()
        if settings.ENV.demo:
            call_command("demo", "--greet", stdout=self.stdout)
        base_url = settings.ENV.base_url
        print(
            f"ready {base_url}/ served on {address}/" if base_url else f"ready {address}/",
            flush=True,
        )

    def _wait(self, missing: Callable[[], str]) -> None:
        """Wait until nothing is missing; say once what is, if that takes too long."""
        told, deadline = False, time.monotonic() + READY_SECONDS_MAX
        while absent := missing():
            if not told and time.monotonic() > deadline:
                logs_in = settings.HOME / "logs"
                print(
                    f"not ready after {READY_SECONDS_MAX} s: {absent} (see {logs_in})", flush=True
                )
                told = True
            time.sleep(READY_LOOK_SECONDS)

    def _only_one(self, path: Path) -> None:
        """Hold the lock of this data directory as long as this process lives.

        By its bare descriptor, which children close: theirs would hold it beyond our end.
        """
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise CommandError(
                f"A market is already up under {settings.HOME}. `make down` ends it; "
                "OFFPEAK_HOME=other PORT=8001 make up starts another beside it."
            ) from None
        os.ftruncate(lock, 0)
        os.write(lock, str(os.getpid()).encode())

    def _refuse_taken_port(self) -> None:
        env = settings.ENV
        family = socket.AF_INET6 if ":" in env.host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((env.host, env.port))
            except OSError:
                raise CommandError(
                    f"Port {env.port} of {env.host} is taken. PORT=8001 make up uses another."
                ) from None


def _missing(began: datetime, address: str) -> str:
    """Name what does not work yet; empty once all of it does.

    Every loop has gone through a pass, whoever follows has read what was written before, and the
    site takes the token that is printed.
    """
    env = settings.ENV
    try:
        passed = LoopRun.objects.filter(passed_at__gte=began, failures=0)
        missing = {loop.name for loop in loops(env)} - set(passed.values_list("name", flat=True))
        behind = [each.name for each in lag(default_store(), now=began) if each.seconds > 0]
    except (DatabaseError, StoreError) as lost:
        connections.close_all()
        return str(lost).strip()
    if missing:
        return f"waiting for {', '.join(sorted(missing))}"
    if behind:
        return f"{', '.join(behind)} has not read all events"
    token = Secrets(settings.HOME).get(CONSUMER, "user") if env.demo else ""
    return "" if _answers(address, "/api/v1/me", token) else "the site does not answer"


def _answers(address: str, path: str, token: str = "") -> bool:
    """Tell if the site answers; without a token, that it asks for one counts."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        request = urllib.request.Request(address + path, headers=headers)
        with urllib.request.urlopen(request, timeout=2):
            return True
    except urllib.error.HTTPError as refused:
        with refused:
            return not token and refused.code == HTTPStatus.UNAUTHORIZED
    except (urllib.error.URLError, OSError):
        return False
