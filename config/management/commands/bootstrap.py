"""`manage.py bootstrap`: the platform's own tenant, its accounts, and a first operator."""

from __future__ import annotations

import secrets
from argparse import ArgumentParser
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid5

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from ledger.commands import money, parties
from ledger.domain.ids import UserId
from ledger.domain.parties import PLATFORM_ID, PLATFORM_SLUG
from ledger.domain.refusal import Refusal
from ledger.eventstore import default_store
from ledger.eventstore.port import Meta
from ledger.models import Person

BOOTSTRAP = UUID("b0075742-0000-4000-8000-000000000000")


class Command(BaseCommand):
    """Harmless when repeated."""

    help = "Register the platform, open its accounts, and with --operator admit a first operator."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take the first operator's address and the platform's name."""
        parser.add_argument("--operator", metavar="EMAIL", help="admit this person as operator")
        parser.add_argument("--title", default="Offpeak", help="name of the platform")

    def handle(self, *args: Any, **options: Any) -> None:
        """Do it, and print a first password where a person was made."""
        store, now, env = default_store(), datetime.now(UTC), settings.ENV
        by = Meta(actor="loop:bootstrap", command_id=uuid5(BOOTSTRAP, "platform"))
        try:
            parties.register_tenant(
                store,
                slug=PLATFORM_SLUG,
                title=options["title"],
                currency=env.currency,
                by=by,
                now=now,
            )
            money.open_tenant_accounts(
                store,
                tenant_id=PLATFORM_ID,
                title=options["title"],
                currency=env.currency,
                is_platform=True,
                by=by,
                now=now,
            )
            if options["operator"]:
                self._admit(options["operator"], now)
        except Refusal as refusal:
            raise CommandError(
                f"{refusal.message()} {refusal.advice()} {refusal.details}"
            ) from None

    def _admit(self, email: str, now: datetime) -> None:
        person = Person.objects.filter(email=email.strip().lower()).first()
        if person is None:
            password = secrets.token_urlsafe(12)
            person = Person.objects.create_user(email, password)
            self.stdout.write(f"{person.email} may sign in with the password {password}")
        parties.admit_member(
            default_store(),
            tenant_id=PLATFORM_ID,
            user_id=UserId(person.pk),
            roles=("operator", "finance"),
            subscriber_id=None,
            by=Meta(actor="loop:bootstrap", command_id=uuid5(BOOTSTRAP, f"operator:{email}")),
            now=now,
        )
        self.stdout.write(f"{person.email} is an operator of the platform")
