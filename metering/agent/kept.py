"""Connections to the server that are kept from one request to the next.

An agent asks every second and ships logs ten times as often: a connection for each costs the server
and the host more than the request. One that the server has closed meanwhile is seen before it is
used, and a request that met the closing itself is sent once more where that does no harm.
"""

from __future__ import annotations

import http.client
import select
import ssl
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

IDLE_SECONDS_MAX = 4.0
"""Servers close one that says nothing, ours after five seconds."""
KEPT_MAX = 4
"""The agent, its shipper and its carrier ask at the same time."""


class Answer(NamedTuple):
    """What came back. body: at most as much as was asked for, and one byte more."""

    status: int
    body: bytes


class KeptConnections:
    """Connections to the server at `base_url`, for any thread; each carries one request at a time.

    context: of an https server.
    """

    def __init__(
        self,
        base_url: str,
        *,
        seconds: float,
        context: ssl.SSLContext | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        parts = urlsplit(base_url)
        self._host, self._port = parts.hostname or "", parts.port
        self._path = parts.path.rstrip("/")
        self._is_https = parts.scheme == "https"
        self._context, self._seconds, self._now = context, seconds, now
        self._lock = threading.Lock()
        self._idle: list[tuple[http.client.HTTPConnection, float]] = []
        weakref.finalize(self, _close, self._idle)  # whoever lets go of us lets go of them

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        *,
        most: int,
        again: bool,
    ) -> Answer:
        """Ask once. most: bytes of an answer.

        again: whether it does no harm where the server gets it twice.
        Raises: OSError, http.client.HTTPException.
        """
        connection = self._take()
        if connection is not None:
            try:
                return self._on(connection, method, path, body, headers, most)
            except (ConnectionError, http.client.BadStatusLine):
                # Closed by the other end while this was on its way, most often.
                if not again:
                    raise
        return self._on(self._new(), method, path, body, headers, most)

    def _on(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        most: int,
    ) -> Answer:
        keeps = False
        try:
            connection.request(method, self._path + path, body, dict(headers))
            with connection.getresponse() as response:
                answer = Answer(response.status, response.read(most + 1))
                keeps = response.isclosed() and not response.will_close
            return answer
        finally:
            if keeps:
                self._give_back(connection)
            else:
                connection.close()

    def _new(self) -> http.client.HTTPConnection:
        if self._is_https:
            return http.client.HTTPSConnection(
                self._host, self._port, timeout=self._seconds, context=self._context
            )
        return http.client.HTTPConnection(self._host, self._port, timeout=self._seconds)

    def _take(self) -> http.client.HTTPConnection | None:
        """Return the one used last, if it still leads to somebody."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection, since = self._idle.pop()
            if self._now() - since < IDLE_SECONDS_MAX and not _has_news(connection):
                return connection
            connection.close()

    def _give_back(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            self._idle.append((connection, self._now()))
            dropped = [each for each, _ in self._idle[:-KEPT_MAX]]
            del self._idle[:-KEPT_MAX]
        for each in dropped:
            each.close()


def _has_news(connection: http.client.HTTPConnection) -> bool:
    """Tell if something came that nobody asked for: most often that the other end has closed."""
    if connection.sock is None:
        return True
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN | select.POLLHUP | select.POLLERR)
    return bool(poll.poll(0))


def _close(idle: list[tuple[http.client.HTTPConnection, float]]) -> None:
    for connection, _ in idle:
        connection.close()
