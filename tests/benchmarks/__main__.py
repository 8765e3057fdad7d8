"""`python -m tests.benchmarks [NAME…]`: run benchmarks on a database of their own."""

from __future__ import annotations

import importlib
import os
import sys
import time

NAMES = (
    "append",
    "replay",
    "lag",
    "bids",
    "ingest",
    "instant",
    "hosts",
    "growth",
    "admission",
    "shading",
    "batch",
    "rounds",
)


def main() -> None:
    """Run the benchmarks named, or all of them, and print their figures."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    import django

    django.setup()
    from django.conf import settings
    from django.db import connection

    names = sys.argv[1:] or list(NAMES)
    unknown = set(names) - set(NAMES)
    if unknown:
        raise SystemExit(f"no such benchmark: {', '.join(sorted(unknown))}; there are {NAMES}")
    settings.DATABASES["default"].setdefault("TEST", {})["NAME"] = f"bench_offpeak_{os.getpid()}"
    connection.settings_dict["TEST"]["NAME"] = f"bench_offpeak_{os.getpid()}"
    database = connection.settings_dict["NAME"]
    connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
    load = os.getloadavg()[0]
    print(f"{os.cpu_count()} cores, load {load:.1f}, Python {sys.version.split()[0]}")
    try:
        for name in names:
            started = time.monotonic()
            print(f"\n{name}", flush=True)
            for figure in importlib.import_module(f"tests.benchmarks.{name}").run():
                print(figure.line(), flush=True)
            print(f"  ({time.monotonic() - started:.0f} s)")
    finally:
        with connection.cursor() as cursor:  # what a benchmark's threads have left open
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        connection.creation.destroy_test_db(database, verbosity=0)


main()
