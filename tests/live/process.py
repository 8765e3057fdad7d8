"""A process of the installation on the database of the running test: web server or loop."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run `manage.py ARGUMENTS` on the database that the first argument names."""
    from django.conf import settings

    from config.database.roles import OWNER

    settings.DATABASES["default"].update(NAME=sys.argv[1], USER=OWNER)
    import django

    django.setup()
    from config.web import tunnels

    tunnels.LOOK_SECONDS = float(os.environ.get("TUNNELS_LOOK_SECONDS", tunnels.LOOK_SECONDS))
    from django.core.management import call_command

    call_command(*sys.argv[2:])


if __name__ == "__main__":
    main()
