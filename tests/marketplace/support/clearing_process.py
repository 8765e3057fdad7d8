"""An engine in a process of its own, which stops where it is told and waits to be killed."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection

from django.db import connection

from ledger.eventstore.port import Appended, Expect, Meta, NewEvent
from ledger.eventstore.postgres import PostgresStore
from marketplace.engine import Engine
from tests.conftest import NOON


def clear(told: Connection, database: str, market: str, point: str) -> None:
    """Clear a market of that database.

    point: `before` or `after` the append of what the first pass decided, or `never`: then it
    clears until the other end of `told` is closed.
    """
    connection.settings_dict["NAME"] = database

    def wait_for_the_end() -> None:
        with suppress(EOFError):
            told.recv()

    def reached() -> None:
        told.send(point)
        wait_for_the_end()

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

    def end_with_the_other() -> None:
        wait_for_the_end()
        ended.set()

    engine = Engine(Stopping(), market)
    if point == "never":
        told.send(point)
        threading.Thread(target=end_with_the_other, daemon=True).start()
    while not ended.is_set():
        if not engine.run_once(now=NOON):
            ended.wait(0.01)
