"""`manage.py bootstrap`: the platform's own tenant and its accounts."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid5

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from ledger.commands import money, parties
from ledger.domain.parties import PLATFORM_ID, PLATFORM_SLUG, Tenant
from ledger.domain.refusal import Refusal
from ledger.eventstore import default_store
from ledger.eventstore.port import Meta, load

TITLE = "Offpeak"
BOOTSTRAP = UUID("b0075742-0000-4000-8000-000000000000")


class Command(BaseCommand):
    """Harmless when repeated."""

    help = "Register the platform and open its accounts."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take the platform's name."""
        parser.add_argument(
            "--title",
            help=f"name of the platform; without, the one it has, or {TITLE} at first",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Do it."""
        store, now, env = default_store(), datetime.now(UTC), settings.ENV
        by = Meta(actor="loop:bootstrap", command_id=uuid5(BOOTSTRAP, "platform"))
        found = load(store, Tenant, PLATFORM_ID)
        title = options["title"] or (found.registered.title if found else TITLE)
        if found and found.registered.currency != env.currency:
            raise CommandError(
                f"This market's money is {found.registered.currency}, and OFFPEAK_CURRENCY says"
                f" {env.currency}: set it to {found.registered.currency}."
            )
        if found and found.registered.title != title:
            raise CommandError(f"The platform's name is {found.registered.title!r} already.")
        try:
            parties.register_tenant(
                store,
                slug=PLATFORM_SLUG,
                title=title,
                currency=env.currency,
                by=by,
                now=now,
            )
            money.open_tenant_accounts(
                store,
                tenant_id=PLATFORM_ID,
                title=title,
                currency=env.currency,
                is_platform=True,
                by=by,
                now=now,
            )
        except Refusal as refusal:
            raise CommandError(
                f"{refusal.message()} {refusal.advice()} {refusal.details}"
            ) from None
