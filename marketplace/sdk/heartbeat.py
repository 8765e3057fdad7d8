"""`offpeak.heartbeat`: work says that it is alive, as the meter of who pays for it.

    from offpeak.heartbeat import heartbeat

    for step in range(STEPS):
        train(model)
        heartbeat()

Call it where the work gets on, as often as you like. Each call says that the work is alive from
now for `covers` seconds, 60 unless said otherwise; before a part that takes longer say so:
`heartbeat(covers=900)`. The host's agent passes it on, also where the work reaches no network.
Where the work has `OFFPEAK_SERVER` and `OFFPEAK_TOKEN` it is sent to the market besides, so that it
does not depend on the host. Nothing is charged by it: where the owners' meter says more, by more
than is tolerated, the charge is contested and somebody looks (chapter "Finance").

Outside of leased work it does nothing. With the standard library alone: this one file works by
itself, in an image without the client.
"""

from __future__ import annotations

import atexit
import json
import os
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

COVERS_SECONDS = 60.0
COVERS_SECONDS_MAX = 3_600.0
WRITTEN_EVERY_MS = 1_000
SENT_EVERY_MS = 30_000
SPANS_MAX = 500
"""So many spans are kept while the market does not answer; older ones are given up."""
TIMEOUT_SECONDS = 10.0
NAME = ".heartbeat"

Send = Callable[[list[tuple[int, int]]], bool]


@dataclass
class Heart:
    """Spans in which the work was alive, in milliseconds since 1970.

    file: what the host's agent reads. send: to the market; tells whether that took them.
    """

    file: Path | None
    send: Send | None = None
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    _spans: list[tuple[int, int]] = field(default_factory=list)
    _said_ms: int = 0
    _sent_ms: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _sending: threading.Thread | None = None

    def beat(self, covers: float = COVERS_SECONDS) -> None:
        """Say that the work is alive from now for so many seconds, an hour at most."""
        now = self.now_ms()
        until = now + int(1000 * max(1.0, min(covers, COVERS_SECONDS_MAX)))
        with self._lock:
            if self._spans and now <= self._spans[-1][1]:
                since, known = self._spans[-1]
                self._spans[-1] = since, max(known, until)
            else:
                self._spans = [*self._spans, (now, until)][-SPANS_MAX:]
                self._said_ms = 0
            if self.file is not None and until >= self._said_ms + WRITTEN_EVERY_MS:
                self._said_ms = until
                _write(self.file, *self._spans[-1])
            if self.send is not None and now >= self._sent_ms + SENT_EVERY_MS:
                self._sent_ms = now
                self._begin()

    def rest(self) -> None:
        """Send what is not sent yet, and wait for that; it is done by itself when the work ends."""
        with self._lock:
            sending, send, spans = self._sending, self.send, list(self._spans)
        if sending is not None:
            sending.join(TIMEOUT_SECONDS)
        if send is not None and spans:
            send(spans)

    def _begin(self) -> None:
        if self._sending is not None and self._sending.is_alive():
            return
        self._sending = threading.Thread(target=self._deliver, name="heartbeat", daemon=True)
        self._sending.start()

    def _deliver(self) -> None:
        with self._lock:
            spans, send = list(self._spans), self.send
        if send is not None and send(spans):
            with self._lock:
                # The last one goes on growing; what comes twice changes nothing.
                self._spans = [each for each in self._spans if each[0] >= spans[-1][0]]


def _write(path: Path, since: int, until: int) -> None:
    # In place and of one length, so that the host never finds it empty or half written.
    line = f"{since:013d} {until:013d}\n".encode()
    with suppress(OSError):
        file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            os.pwrite(file, line, 0)
        finally:
            os.close(file)


def to_market(server: str, token: str, lease_id: str) -> Send:
    """Return what sends spans to a market, under the right of the lease's consumer."""
    url = f"{server.rstrip('/')}/api/v1/leases/{lease_id}/heartbeats"

    def send(spans: list[tuple[int, int]]) -> bool:
        body = {"spans": [{"from_ms": since, "until_ms": until} for since, until in spans]}
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        asked = urllib.request.Request(url, json.dumps(body).encode(), headers, method="POST")
        try:
            with urllib.request.urlopen(asked, timeout=TIMEOUT_SECONDS):
                return True
        except (OSError, ValueError, urllib.error.URLError):
            return False

    return send


def of_this_work() -> Heart | None:
    """Return the heart of the leased work that this process is of; None: it is of none."""
    lease_id, beside = os.environ.get("OFFPEAK_LEASE_ID"), os.environ.get("OFFPEAK_CHECKPOINT")
    if not lease_id:
        return None
    server, token = os.environ.get("OFFPEAK_SERVER", ""), os.environ.get("OFFPEAK_TOKEN", "")
    is_address = server.startswith(("https://", "http://"))
    return Heart(
        file=Path(beside).with_name(NAME) if beside else None,
        send=to_market(server, token, lease_id) if is_address and token else None,
    )


_heart: list[Heart | None] = []


def heartbeat(covers: float = COVERS_SECONDS) -> None:
    """Say that the work is alive from now for so many seconds; elsewhere do nothing."""
    if not _heart:
        _heart.append(of_this_work())
        if (made := _heart[0]) is not None and made.send is not None:
            atexit.register(made.rest)
    if (heart := _heart[0]) is not None:
        heart.beat(covers)
