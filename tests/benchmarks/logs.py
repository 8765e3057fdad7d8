"""Lines from work to their readers: 100 leases on 10 hosts, 10 lines a second each.

Files as a keeper writes them, agents' shippers as they run on hosts, a web process, and a reader
of each log by server-sent events in another process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID, uuid4

from ledger.domain.ids import LeaseId
from metering.agent.runtimes.output import Output
from metering.agent.shipping import Printing, Shipper
from metering.agent.uplink import HttpUplink
from tests.access.conftest import admit
from tests.benchmarks.figures import Figure, percentile
from tests.benchmarks.served import processor_seconds, web
from tests.metering.host_agent import HostAgent
from tests.metering.leased import lease_on

HOSTS = 10
LEASES = 10
LINES_PER_SECOND = 10
SECONDS = 8.0
BEGINNING_SECONDS = 4.0
"""So long every log has been begun and followed: what a first line costs is not counted."""
ENDING_SECONDS = 4.0
MOST = 64 * 2**20


def run() -> Iterator[Figure]:
    """Measure how late a line is."""
    consumer, owner = admit("log-readers", "consumer"), admit("log-owners", "owner")
    hosts = [HostAgent(owner) for _ in range(HOSTS)]
    leases = {host.token: [LeaseId(uuid4()) for _ in range(LEASES)] for host in hosts}
    for host in hosts:
        for lease_id in leases[host.token]:
            lease_on(host, consumer, lease_id)
    running: dict[str, int] = {}
    every = [str(lease_id) for some in leases.values() for lease_id in some]
    with (
        TemporaryDirectory(prefix="offpeak-logs-") as folder,
        web(running) as port,
        _agents(port, leases, Path(folder)) as outputs,
    ):
        words = [
            str(port),
            consumer.token,
            str(BEGINNING_SECONDS + SECONDS + ENDING_SECONDS),
            *every,
        ]
        readers = subprocess.Popen(
            [sys.executable, "-m", "tests.benchmarks.log_readers", *words], stdout=subprocess.PIPE
        )
        assert readers.stdout is not None and readers.stdout.readline() == b"ready\n"
        for output in outputs:
            output.write(b"-\n")
        time.sleep(BEGINNING_SECONDS)
        running["readers"] = readers.pid
        before = processor_seconds(running)
        lines = _print(outputs)
        after = processor_seconds(running)
        told, _ = readers.communicate()
    late, slept = json.loads(told)
    name = f"{HOSTS * LEASES} leases, {LINES_PER_SECOND} lines/s each"
    yield Figure(f"{name}: line to reader, p50", late[len(late) // 2], "ms")
    p99 = percentile(late, 0.99)
    yield Figure(f"{name}: line to reader, p99", p99, "ms", goal="<= 300 ms")
    wakes = percentile(slept, 0.99)
    yield Figure("beside them, a sleep ends late, p99", wakes, "ms")
    yield Figure(f"{name}: lines that came", 100 * len(late) / lines, "%")
    for who, what in (("web", "web process"), ("clients", "agents"), ("readers", "readers")):
        used = 100 * (after[who] - before[who]) / SECONDS
        yield Figure(f"{name}: processor of the {what}", used, "%")


@contextmanager
def _agents(port: int, leases: dict[str, list[LeaseId]], folder: Path) -> Iterator[list[Output]]:
    """Run a shipper for each host; give what its leases print to."""
    stop, outputs = threading.Event(), list[Output]()
    with ExitStack() as threads:
        for token, some in leases.items():
            shipper = Shipper(HttpUplink(f"http://127.0.0.1:{port}", token))
            printing: dict[UUID, Printing] = {}
            for lease_id in some:
                (folder / str(lease_id)).mkdir()
                outputs.append(Output(folder / str(lease_id) / "stdout.log", MOST))
                printing[lease_id] = Printing(folder / str(lease_id), ended=False)
            shipper.know(printing)
            thread = threading.Thread(target=shipper.run, args=[stop])
            thread.start()
            threads.callback(thread.join)
        threads.callback(stop.set)
        yield outputs
    for output in outputs:
        output.close()


def _print(outputs: list[Output]) -> int:
    """Print a line to each, evenly over the time; return how many."""
    began, lines = time.monotonic(), 0
    step = 1 / (len(outputs) * LINES_PER_SECOND)
    while (passed := time.monotonic() - began) < SECONDS:
        while lines * step <= passed:
            outputs[lines % len(outputs)].write(b"%d\n" % time.time_ns())
            lines += 1
        time.sleep(0.002)
    return lines
