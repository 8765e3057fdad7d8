"""A bell that rings in one process whenever anything is appended to EventStoreDB."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

from esdbclient import EventStoreDBClient
from esdbclient.exceptions import EventStoreDBClientException
from esdbclient.streams import CatchupSubscription

RECONNECT_SECONDS = 0.5


class Bell:
    """One live subscription for all listeners of a process, held only while there are any.

    If the subscription is lost the bell is silent until there is a new one, and then rings once.
    """

    def __init__(self, connect: Callable[[], EventStoreDBClient]) -> None:
        self._connect = connect
        self._changed = threading.Condition()
        self._listeners = 0
        self._ringer: threading.Thread | None = None
        self._subscription: CatchupSubscription | None = None
        self.rings = 0

    @contextmanager
    def listening(self) -> Iterator[Self]:
        """Keep the bell alive."""
        with self._changed:
            self._listeners += 1
            if self._ringer is None:
                self._ringer = threading.Thread(
                    target=self._ring_on_events, name="esdb-bell", daemon=True
                )
                self._ringer.start()
        try:
            yield self
        finally:
            with self._changed:
                self._listeners -= 1
                if self._listeners == 0:
                    self._ringer = None
                    if self._subscription is not None:
                        self._subscription.stop()
                    self._changed.notify_all()

    def wait(self, heard: int, seconds: float) -> None:
        """Wait for a ring after `heard` of them, at most `seconds`."""
        with self._changed:
            self._changed.wait_for(lambda: self.rings != heard, timeout=seconds)

    def _ring_on_events(self) -> None:
        me = threading.current_thread()
        while self._ringer is me:
            try:
                with self._connect() as client:
                    subscription = client.subscribe_to_all(from_end=True)
                    assert isinstance(subscription, CatchupSubscription)
                    if self._began(subscription, me):
                        for _event in subscription:
                            self._ring()
            except EventStoreDBClientException:
                pass
            with self._changed:
                if self._ringer is me:
                    self._changed.wait(RECONNECT_SECONDS)

    def _began(self, subscription: CatchupSubscription, me: threading.Thread) -> bool:
        """Take over a confirmed subscription; what came before it may have been missed."""
        with self._changed:
            if self._ringer is not me:
                subscription.stop()
                return False
            self._subscription = subscription
        self._ring()
        return True

    def _ring(self) -> None:
        with self._changed:
            self.rings += 1
            self._changed.notify_all()
