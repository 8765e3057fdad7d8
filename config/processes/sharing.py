"""What all processes of `manage.py up` are made of: imported once, before they are forked."""

from __future__ import annotations

import sys
from importlib import import_module

from django.core.management import ManagementUtility

from config.env import Env
from config.processes.fitness import known_migrations


def manage(*words: str) -> None:
    """Go on as `manage.py WORDS`, without the checks of settings that our parent has made."""
    sys.argv[1:] = words
    manage_py = sys.argv[0]
    command = ManagementUtility().fetch_command(words[0])
    command.run_from_argv([manage_py, words[0], "--skip-checks", *words[1:]])


def import_for_all(env: Env) -> None:
    """Import what more than one process needs; what one alone needs is left to that one."""
    for command in ("run", "web"):
        import_module(f"config.management.commands.{command}")
    known_migrations()  # which imports each of them, and every process asks for them at its start
    if env.eventstore_url == "postgres":
        import_module("ledger.eventstore.postgres")
