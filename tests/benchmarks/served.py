"""A web process on the benchmark's database, and clients that ask it over kept connections."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings
from django.db import connection

from config import wiring
from tests.ports import free_port

START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 20.0


@contextmanager
def web(running: dict[str, int] | None = None) -> Iterator[int]:
    """Run `manage.py web` without a limit on requests; give its port.

    running: notes its process under `web`.
    """
    port = free_port()
    command = [sys.executable, "-m", "tests.live.process", str(connection.settings_dict["NAME"])]
    server = subprocess.Popen(
        [*command, "web"],
        env={
            **_product(),
            "PORT": str(port),
            "OFFPEAK_THROTTLE_PER_MINUTE": str(10**9),
            "OFFPEAK_REQUEST_BYTES_MAX": str(16 * 2**20),
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    if running is not None:
        running["web"] = server.pid
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
        _ended(server)


def _product() -> dict[str, str]:
    """Return an environment with the product's own settings, on the database server of tests."""
    settings_of = {"DJANGO_SETTINGS_MODULE": "config.settings", "OFFPEAK_HOME": str(settings.HOME)}
    return {**os.environ, **settings_of}


@contextmanager
def loops(noted: dict[str, int] | None = None) -> Iterator[None]:
    """Run every loop in the processes that `manage.py up` spreads them over.

    noted: gets each process under the name of its group.
    """
    known = {loop.name for loop in wiring.loops(settings.ENV)}
    command = [sys.executable, "-m", "tests.live.process", str(connection.settings_dict["NAME"])]
    running = {
        name: subprocess.Popen(
            [
                *(*command, "run", "--nice", str(wiring.GIVE_WAY.get(name, 0))),
                *(loop for loop in group if loop in known),
            ],
            env=_product(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for name, group in wiring.loop_groups(settings.ENV).items()
        if known.intersection(group)
    }
    if noted is not None:
        noted.update({name: process.pid for name, process in running.items()})
    try:
        yield
    finally:
        for process in running.values():
            process.terminate()
        for process in running.values():
            _ended(process)


@contextmanager
def run_loops(
    names: Sequence[str], noted: dict[str, int], more: Mapping[str, str]
) -> Iterator[None]:
    """Run some loops in one process, with some settings; it is noted under `loops`."""
    command = [sys.executable, "-m", "tests.live.process", str(connection.settings_dict["NAME"])]
    process = subprocess.Popen(
        [*command, "run", *names],
        env={**_product(), **more},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    noted["loops"] = process.pid
    try:
        yield
    finally:
        process.terminate()
        _ended(process)


def _ended(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def processor_seconds(processes: Mapping[str, int]) -> dict[str, float]:
    """Return the processor time used so far by each of these, by us, and by the database."""
    found = {name: _seconds_of(pid) for name, pid in processes.items()}
    found["clients"] = time.process_time()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pid FROM pg_stat_activity")
        found["database"] = sum(_seconds_of(int(pid)) for (pid,) in cursor.fetchall())
    return found


def _seconds_of(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ask(
    client: http.client.HTTPConnection,
    method: str,
    path: str,
    body: bytes | None = None,
    token: str = "",
) -> int:
    """Ask once and return the status."""
    return asked_for(client, method, path, body, token)[0]


def asked_for(
    client: http.client.HTTPConnection,
    method: str,
    path: str,
    body: bytes | None = None,
    token: str = "",
) -> tuple[int, bytes]:
    """Ask once and return the status and the answer."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    client.request(method, path, body, headers if token else {})
    answer = client.getresponse()
    return answer.status, answer.read()


def together(
    port: int, works: Sequence[Callable[[http.client.HTTPConnection], bool]], seconds: float
) -> list[float]:
    """Let every client work again and again for `seconds`, or until one of its works says no.

    Returns: how long each piece of work took. Raises: what a client's work raised; no figure is
    made of clients that fell over.
    """
    times: list[float] = []
    failures: list[BaseException] = []

    def work_on(work: Callable[[http.client.HTTPConnection], bool], until: float) -> None:
        client = http.client.HTTPConnection("127.0.0.1", port)
        try:
            while (started := time.perf_counter()) < until and work(client):
                times.append(time.perf_counter() - started)
        except Exception as failure:
            failures.append(failure)
        finally:
            client.close()

    until = time.perf_counter() + seconds
    threads = [threading.Thread(target=work_on, args=(work, until)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    assert times, "no client finished any work in its time"
    return times
