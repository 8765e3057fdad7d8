"""A web process on the benchmark's database, and clients that ask it over kept connections."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from django.conf import settings
from django.db import connection

from config import wiring

START_SECONDS_MAX = 60.0


@contextmanager
def web() -> Iterator[int]:
    """Run `manage.py web` without a limit on requests; give its port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    command = [sys.executable, "-m", "tests.live.process", str(connection.settings_dict["NAME"])]
    server = subprocess.Popen(
        [*command, "web"],
        env={
            **os.environ,
            "PORT": str(port),
            "OFFPEAK_THROTTLE_PER_MINUTE": str(10**9),
            "OFFPEAK_REQUEST_BYTES_MAX": str(16 * 2**20),
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                ask(http.client.HTTPConnection("127.0.0.1", port), "GET", "/healthz")
                break
            except OSError:
                assert time.monotonic() < deadline, "the web process did not come up"
                time.sleep(0.1)
        yield port
    finally:
        server.terminate()
        server.wait()


@contextmanager
def loops() -> Iterator[None]:
    """Run every loop in the processes that `manage.py up` spreads them over."""
    known = {loop.name for loop in wiring.loops(settings.ENV)}
    command = [sys.executable, "-m", "tests.live.process", str(connection.settings_dict["NAME"])]
    running = [
        subprocess.Popen(
            [*command, "run", *(name for name in group if name in known)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for group in wiring.LOOP_GROUPS.values()
        if known.intersection(group)
    ]
    try:
        yield
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait()


def ask(
    client: http.client.HTTPConnection,
    method: str,
    path: str,
    body: bytes | None = None,
    token: str = "",
) -> int:
    """Ask once and return the status."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    client.request(method, path, body, headers if token else {})
    answer = client.getresponse()
    answer.read()
    return answer.status


def together(
    port: int, works: Sequence[Callable[[http.client.HTTPConnection], bool]], seconds: float
) -> list[float]:
    """Let every client work again and again for `seconds`, or until one of its works says no.

    Returns: how long each piece of work took.
    """
    times: list[float] = []

    def work_on(work: Callable[[http.client.HTTPConnection], bool], until: float) -> None:
        client = http.client.HTTPConnection("127.0.0.1", port)
        while (started := time.perf_counter()) < until and work(client):
            times.append(time.perf_counter() - started)
        client.close()

    until = time.perf_counter() + seconds
    threads = [threading.Thread(target=work_on, args=(work, until)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return times
