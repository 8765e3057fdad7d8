"""`manage.py grant ROLE`: let a role of the operator's own PostgreSQL serve, and do no more."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from config.database.owning import as_owner, begin_serving


class Command(BaseCommand):
    """Harmless when repeated; later migrations keep what it grants."""

    help = "Let a database role serve: it adds to the record, and changes and owns no table."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take the name of the role."""
        parser.add_argument("role", metavar="ROLE", help="whom the product's DATABASE_URL names")

    def handle(self, *args: Any, **options: Any) -> None:
        """Do it, as the owner of the tables."""
        with as_owner():
            begin_serving(options["role"])
        self.stdout.write(f"{options['role']} may serve.")
