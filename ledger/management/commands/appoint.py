"""`manage.py appoint EMAIL`: make somebody an operator of the platform, the first one above all."""

from __future__ import annotations

import getpass
import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from ledger import commands
from ledger.domain.ids import UserId
from ledger.domain.parties import PLATFORM_ID, PLATFORM_SLUG, Tenant
from ledger.domain.refusal import Refusal
from ledger.eventstore import default_store
from ledger.eventstore.port import Meta, load
from ledger.signin import person_of, set_password

BY = Meta(actor="loop:appoint", tenant_id=PLATFORM_ID)


class Command(BaseCommand):
    """Registers the platform's own organisation if it is not there, and admits an operator."""

    help = "Make somebody an operator of the platform; asks for a password."

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the person's address."""
        parser.add_argument("email")
        parser.add_argument("--title", default="Platform", help="name of the organisation")

    def handle(self, *args: Any, **options: Any) -> None:
        """Appoint."""
        password = _password()
        store, now = default_store(), timezone.now()
        try:
            person = person_of(options["email"])
            set_password(person, password)
            if load(store, Tenant, PLATFORM_ID) is None:
                commands.register_tenant(
                    store,
                    slug=PLATFORM_SLUG,
                    title=options["title"],
                    currency=settings.ENV.currency,
                    by=BY,
                    now=now,
                )
            commands.admit_member(
                store,
                tenant_id=PLATFORM_ID,
                user_id=UserId(person.id),
                roles=["operator"],
                subscriber_id=None,
                by=BY,
                now=now,
            )
        except Refusal as refusal:
            raise CommandError(f"{refusal.message()} {refusal.advice()}") from refusal
        self.stdout.write(f"{person.email} is an operator of the platform.")


def _password() -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    typed = getpass.getpass("Password: ")
    if getpass.getpass("The same again: ") != typed:
        raise CommandError("The two passwords are not the same. Nothing was changed.")
    return typed
