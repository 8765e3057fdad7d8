"""`python -m tests.benchmarks.export_alone FORM DATABASE`: write a month, tell what it took."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path


def main() -> None:
    """Print rows, bytes, seconds and the most memory the process had, in KiB."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    import django
    from django.conf import settings

    form, database = sys.argv[1:]
    settings.DATABASES["default"]["NAME"] = database
    django.setup()
    from ledger import exports
    from ledger.closing import EVERYTHING
    from ledger.domain.periods import Period
    from ledger.queries import read_up_to

    began, worked = time.perf_counter(), time.process_time()
    said = exports.manifest(EVERYTHING, form, period=Period(2026, 1), position=read_up_to())
    told = {
        "rows": said.rows,
        "bytes": said.bytes,
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - worked,
        "peak_kib": peak_kib(),
    }
    print(json.dumps(told))


def peak_kib() -> int:
    """Return the most memory this program had: `getrusage` counts who started it as well."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


if __name__ == "__main__":
    main()
