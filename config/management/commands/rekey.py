"""`manage.py rekey`: wrap the values of work's secrets with another key of the installation."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from config.security.work_keys import add_key, drop_old_keys
from ledger.bank_accounts import rewrap_details
from ledger.vault import default_vault
from ledger.webhooks import rewrap_webhooks
from marketplace.secrets import rewrap_all


class Command(BaseCommand):
    """Processes that run go on: they read the keys anew when those have changed."""

    help = "Make a new key for secrets of work, wrap their values with it, and drop the old one."

    def handle(self, *args: Any, **options: Any) -> None:
        """Change the key that the data directory keeps, or wrap with the one that is given."""
        is_given = bool(settings.ENV.work_secret_key)
        if not is_given:
            add_key(settings.HOME)
        done, locked = rewrap_all(default_vault())
        signing, kept_shut = rewrap_webhooks(default_vault())
        done, locked = done + signing, locked + kept_shut
        more, more_locked = rewrap_details(default_vault())
        done, locked = done + more, locked + more_locked
        if locked:
            raise CommandError(
                f"{done} values are wrapped anew. {locked} open with no key of this installation:"
                " no key was dropped. Restore the key file, or have those secrets set again."
            )
        if is_given:
            then = "OFFPEAK_OLD_WORK_SECRET_KEY opens nothing any more: unset it."
        else:
            drop_old_keys(settings.HOME)
            then = "The old key opens nothing any more. Back the new one up."
        self.stdout.write(f"{done} values are wrapped anew. {then}")
