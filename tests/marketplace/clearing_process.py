"""An engine in a process of its own, which stops where it is told and waits to be killed.

Run as `python -m tests.marketplace.clearing_process DATABASE MARKET POINT`. POINT: `before` or
`after` the append of what the first pass decided, or `never`: then it clears until its input ends.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence

from django.conf import settings


def main() -> None:
    """Do it."""
    database, market, point = sys.argv[1:]
    settings.DATABASES["default"]["NAME"] = database
    import django

    django.setup()
    from ledger.eventstore.port import Appended, Expect, Meta, NewEvent
    from ledger.eventstore.postgres import PostgresStore
    from marketplace.engine import Engine
    from tests.conftest import NOON

    def reached() -> None:
        print(point, flush=True)
        sys.stdin.read()

    class Stopping(PostgresStore):
        def append(
            self, stream: str, events: Sequence[NewEvent], *, expected: int | Expect, by: Meta
        ) -> Appended:
            if point == "before":
                reached()
            appended = super().append(stream, events, expected=expected, by=by)
            if point == "after":
                reached()
            return appended

    ended = threading.Event()

    def end_with_input() -> None:
        sys.stdin.read()
        ended.set()

    engine = Engine(Stopping(), market)
    if point == "never":
        print(point, flush=True)
        threading.Thread(target=end_with_input, daemon=True).start()
    while not ended.is_set():
        if not engine.run_once(now=NOON):
            ended.wait(0.01)


if __name__ == "__main__":
    main()
