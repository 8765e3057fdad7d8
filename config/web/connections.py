"""The connections of a web process: none is waited for without an end.

uvicorn waits for ever for the headers of a request, and for a client that does not read its
answer. A process has so many file descriptors and no more, so whoever opens connections and says
nothing would in the end keep everybody else out. Here each has a deadline, and where there are
too many, the one that has waited longest without asking anything makes room.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

HEADER_SECONDS = 20.0
"""How long a connection may be without a request: for its headers, and after an answer for the
client to take the last of it. uvicorn closes one that says nothing after an answer sooner."""
FILES_LEFT = 200
"""File descriptors that are not for clients: the database, logs, sockets of ours."""
FILES_WANTED = 8_192

ABORT = "offpeak.abort"
"""Where a request's scope tells how to end its connection at once."""


class Connection(H11Protocol):
    """A client's connection as uvicorn has it, with a deadline while no request is worked on."""

    waiting: ClassVar[dict[Connection, None]] = {}
    """Those without a request, the longest-waiting first."""
    most: ClassVar[int] = 800

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait; where there are too many, somebody who asks nothing goes."""
        super().connection_made(transport)
        self.app_state = {**self.app_state, ABORT: transport.abort}
        self._wait()
        if len(self.connections) > self.most:
            next(iter(self.waiting)).give_up()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._wait_no_more()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what came; only a whole head of a request ends the waiting."""
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._wait_no_more()
        self._look()

    def give_up(self) -> None:
        """End the connection, whatever is still to be sent."""
        self._wait_no_more()
        self.transport.abort()

    def _look(self) -> None:
        cycle: RequestResponseCycle | None = self.cycle
        asks = cycle is not None and not cycle.response_complete
        is_socket = self.transport.get_protocol() is not self  # which has pings of its own
        if asks or is_socket:
            self._wait_no_more()
        elif self._deadline is None:
            self._wait()

    def _wait(self) -> None:
        self.waiting[self] = None
        self._deadline = self.loop.call_later(HEADER_SECONDS, self.give_up)

    def _wait_no_more(self) -> None:
        self.waiting.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def allow_many_connections() -> None:
    """Let this process have as many file descriptors as it may, and take clients accordingly."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(hard, FILES_WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    Connection.most = max(wanted // 2, wanted - FILES_LEFT)


def abort_of(scope: Mapping[str, Any]) -> Callable[[], None]:
    """Return what ends a request's connection; under another server than ours nothing does."""
    abort: Callable[[], None] = scope.get("state", {}).get(ABORT, lambda: None)
    return abort
