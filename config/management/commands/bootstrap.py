"""`manage.py bootstrap`: the platform's own tenant and its accounts."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid5

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from ledger.commands import money, parties
from ledger.domain.parties import PLATFORM_ID, PLATFORM_SLUG
from ledger.domain.refusal import Refusal
from ledger.eventstore import default_store
from ledger.eventstore.port import Meta

BOOTSTRAP = UUID("b0075742-0000-4000-8000-000000000000")


class Command(BaseCommand):
    """Harmless when repeated."""

    help = "Register the platform and open its accounts."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take the platform's name."""
        parser.add_argument("--title", default="Offpeak", help="name of the platform")

    def handle(self, *args: Any, **options: Any) -> None:
        """Do it."""
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
        except Refusal as refusal:
            raise CommandError(
                f"{refusal.message()} {refusal.advice()} {refusal.details}"
            ) from None
