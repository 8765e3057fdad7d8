"""`manage.py migrate`: make and change tables, as their owner."""

from __future__ import annotations

from typing import Any

from django.core.management.commands import migrate

from config.database.owning import as_owner, keep_serving


class Command(migrate.Command):
    """Django's, with a connection of the owner; who serves is let to what it made."""

    def handle(self, *args: Any, **options: Any) -> None:
        """Do it."""
        with as_owner():
            super().handle(*args, **options)
            keep_serving()
