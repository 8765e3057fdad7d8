"""`python -m tests.benchmarks [NAME…]`: run benchmarks, each on a database of its own.

Exits with 1 where one of them could not measure; the others run all the same.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import math
import os
import subprocess
import sys
import time
from collections.abc import Sequence

NAMES = (
    "append",
    "accounts",
    "postings",
    "replay",
    "lag",
    "bids",
    "ingest",
    "instant",
    "hosts",
    "growth",
    "admission",
    "quotas",
    "shading",
    "batch",
    "rounds",
    "files",
    "tunnel",
    "agent",
    "logs",
    "run",
    "beside",
    "idle",
    "departures",
    "fleet",
    "exports",
)


def main() -> None:
    """Run the benchmarks named, or all of them, and print their figures."""
    names = sys.argv[1:] or list(NAMES)
    unknown = set(names) - set(NAMES)
    if unknown:
        raise SystemExit(f"no such benchmark: {', '.join(sorted(unknown))}; there are {NAMES}")
    if len(names) == 1:
        measure(names[0])
        return
    if failed := each_alone(names):
        raise SystemExit(f"could not measure: {', '.join(failed)}")


def each_alone(names: Sequence[str]) -> list[str]:
    """Run each in a process of its own, so that none finds what another left; return who failed."""
    command = [sys.executable, "-m", "tests.benchmarks"]
    return [name for name in names if subprocess.run([*command, name], check=False).returncode]


def measure(name: str) -> None:
    """Run one benchmark on a new database and print its figures.

    Raises: SystemExit where a figure is none, or there are no figures.
    """
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    import django

    django.setup()
    from tests.kernels import compile_all, use_compiled

    compile_all()
    use_compiled()
    from django.conf import settings
    from django.db import connection

    settings.DATABASES["default"].setdefault("TEST", {})["NAME"] = f"bench_offpeak_{os.getpid()}"
    connection.settings_dict["TEST"]["NAME"] = f"bench_offpeak_{os.getpid()}"
    database = connection.settings_dict["NAME"]
    connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
    load = os.getloadavg()[0]
    python = sys.version.split()[0]
    print(f"\n{name}: {os.cpu_count()} cores, load {load:.1f}, Python {python}, {kernels()}")
    started, figures = time.monotonic(), 0
    try:
        for figure in importlib.import_module(f"tests.benchmarks.{name}").run():
            print(figure.line(), flush=True)
            figures += 1
            if not math.isfinite(figure.value):
                raise SystemExit(f"{figure.name}: {figure.value} is no measurement")
        print(f"  ({time.monotonic() - started:.0f} s)")
    finally:
        with connection.cursor() as cursor:  # what a benchmark's threads have left open
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        connection.creation.destroy_test_db(database, verbosity=0)
    if not figures:
        raise SystemExit("there was nothing to measure")


def kernels() -> str:
    """Say whether the engine's loops run compiled: figures differ by a lot."""
    from marketplace import kernels

    how = "compiled" if kernels.compiles() else "as Python"
    return f"kernels {how}, numba {importlib.metadata.version('numba')}"


if __name__ == "__main__":
    main()
