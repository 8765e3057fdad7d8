"""An engine that heeds no lock: what a second one is after a split of the network.

Run as `python -m tests.journeys.unguarded_engine`. Clears without a pause until its input is
closed, then prints how often it looked and how many decisions it made.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from datetime import UTC, datetime

import django


def main() -> None:
    """Do it."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
    django.setup()
    from django.conf import settings

    from ledger.eventstore import default_store
    from marketplace.engine import Engine

    stop = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=listen, daemon=True).start()
    env, passes, decisions = settings.ENV, 0, 0
    engine = Engine(default_store(), env.market, round_seconds=env.round_seconds)
    while not stop.is_set():
        decisions += engine.run_once(now=datetime.now(UTC))
        passes += 1
        if passes == 1:
            print("clearing", flush=True)
    print(json.dumps({"passes": passes, "decisions": decisions}))


if __name__ == "__main__":
    main()
