"""Into running work and back: bytes of one stream through a forwarded port and through ssh.

Each on the way of a user: `offpeak port-forward` and `offpeak ssh`, the market's web process, an
agent's tunnel and a door into work without a network. Beside it the same work without the way.
"""

from __future__ import annotations

import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from metering.agent.access.line import Line
from metering.agent.access.tunnel import Tunnel
from metering.agent.runtimes.port import WorkSpec
from metering.models import AgentTunnel
from tests.access.conftest import admit
from tests.benchmarks.figures import Figure, percentile
from tests.benchmarks.served import processor_seconds, web
from tests.metering.agent.works import PYTHON, accounts, running, state, until
from tests.metering.host_agent import host_token
from tests.metering.leases import lease_row, share_row
from tests.ports import free_port

MB = 10**6
STREAM_BYTES = 256 * MB
SSH_BYTES = 256 * MB
TURNS = 3
ECHOES = 200
SERVES = f"""
import socket, threading
SOURCE = bytes(1 << 18)

def serve(way):
    with way:
        way.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        asked = way.recv(4096)
        if asked.startswith(b"GET"):
            way.sendall(b"HTTP/1.0 200 OK\\r\\nContent-Length: {STREAM_BYTES}\\r\\n\\r\\n")
            left = {STREAM_BYTES}
            while left > 0:
                left -= way.send(SOURCE[:left])
        while asked and not asked.startswith(b"GET"):
            way.sendall(asked)
            asked = way.recv(4096)

server = socket.create_server(("127.0.0.1", PORT))
print("ready", flush=True)
while True:
    threading.Thread(target=serve, args=[server.accept()[0]], daemon=True).start()
"""


def run() -> Iterator[Figure]:
    """Measure both ways in turns with the bare one, and give the middle of each."""
    if os.geteuid() != 0 or shutil.which("bwrap") is None or shutil.which("ssh") is None:
        raise SystemExit("needs root, bubblewrap and ssh")
    seen: dict[str, int] = {}
    with _place(seen) as (server, token, lease), _bare() as bare, ExitStack() as ended_last:
        local = free_port()
        forwarding = _offpeak(server, token, "port-forward", lease, f"{local}:8888")
        seen["client"] = forwarding.pid
        ended_last.callback(forwarding.wait)
        ended_last.callback(forwarding.terminate)
        until(lambda: _echoes(local, 1))
        rates: dict[int, list[float]] = {local: [], bare: []}
        echoes: dict[int, list[float]] = {local: [], bare: []}
        used: dict[str, float] = {}
        for _ in range(TURNS):
            for port in (local, bare):
                before = processor_seconds(seen) if port == local else {}
                rates[port].append(STREAM_BYTES / MB / _download(port))
                after = processor_seconds(seen) if port == local else {}
                for name in after:
                    used[name] = used.get(name, 0.0) + after[name] - before[name]
                echoes[port] += _echoes(port, ECHOES)
        plain = statistics.median(rates[bare])
        through = statistics.median(rates[local])
        yield Figure("one HTTP stream", through, "MB/s", plain, "without", goal=">= 100 MB/s")
        for name, who in (("web", "web process"), ("client", "client"), ("clients", "agent")):
            seconds = used[name] / (TURNS * STREAM_BYTES / 10**9)
            yield Figure(f"one HTTP stream: processor of the {who}", seconds, "s/GB", digits=1)
        for share, name in ((0.5, "p50"), (0.99, "p99")):
            added = percentile(echoes[local], share) - percentile(echoes[bare], share)
            goal = "<= 3 ms" if share == 0.5 else ""
            yield Figure(f"an echo, added, {name}", added * 1000, "ms", goal=goal, digits=2)
        _ssh(server, token, lease, 0)  # opens the door, which stays open for a minute
        began, took = map(
            statistics.median,
            zip(
                *(
                    (_ssh(server, token, lease, 0), _ssh(server, token, lease, SSH_BYTES))
                    for _ in range(TURNS)
                ),
                strict=True,
            ),
        )
        rate = SSH_BYTES / MB / max(0.001, took - began)
        yield Figure("ssh, from the work", rate, "MB/s", goal=">= 50 MB/s")
        yield Figure("offpeak ssh of an empty command", began, "s", digits=2)


@contextmanager
def _place(seen: dict[str, int]) -> Iterator[tuple[str, str, str]]:
    consumer, owner = admit("tunnel-lab", "consumer"), admit("tunnel-works", "owner")
    lease = lease_row(tenant_id=consumer.tenant_id, owner_id=owner.tenant_id)
    share_row(lease, phase="run")
    token = host_token(lease.host_ids[0], owner.tenant_id)
    with ExitStack() as ended_last:
        folder = Path(ended_last.enter_context(TemporaryDirectory(prefix="offw")))
        server = f"http://127.0.0.1:{ended_last.enter_context(web(seen))}"
        runtime = ended_last.enter_context(running(folder, users=accounts(2), confined=True))
        ended_last.callback(runtime.kill, lease.lease_id)
        command = (PYTHON, "-c", SERVES.replace("PORT", "8888"))
        runtime.start(WorkSpec(lease_id=lease.lease_id, gpu_uuids=("GPU-a",), command=command))
        until(lambda: state(runtime, lease.lease_id) == "running")
        tunnel = Tunnel(
            Line(server=server, token=token), "shell", enter=runtime.inside,
            count_in=runtime.count_in, secret=folder / "access.key",
        )  # fmt: skip
        tunnel.start()
        ended_last.callback(tunnel.stop)
        until(AgentTunnel.objects.exists)
        yield server, consumer.token, str(lease.lease_id)


@contextmanager
def _bare() -> Iterator[int]:
    port = free_port()
    code = SERVES.replace("PORT", str(port))
    process = subprocess.Popen([PYTHON, "-c", code], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        yield port
    finally:
        process.kill()
        process.communicate()


def _offpeak(server: str, token: str, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "marketplace.sdk", *words],
        env={**os.environ, "OFFPEAK_SERVER": server, "OFFPEAK_TOKEN": token},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _ssh(server: str, token: str, lease: str, count: int) -> float:
    began = time.monotonic()
    process = _offpeak(server, token, "ssh", lease, "--", f"head -c {count} /dev/zero")
    assert process.wait() == 0, "ssh failed"
    return time.monotonic() - began


def _download(port: int) -> float:
    began, left = time.monotonic(), STREAM_BYTES
    with closing(socket.create_connection(("127.0.0.1", port))) as way:
        way.sendall(b"GET / HTTP/1.0\r\n\r\n")
        while data := way.recv(1 << 18):
            left -= len(data)
    assert left <= 0, "the stream was cut"
    return time.monotonic() - began


def _echoes(port: int, number: int) -> list[float]:
    """Return how long each echo took; none where nobody answers yet."""
    took = []
    try:
        with closing(socket.create_connection(("127.0.0.1", port), 30)) as way:
            way.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for _ in range(number):
                began = time.monotonic()
                way.sendall(b"x")
                if not way.recv(1):
                    return []
                took.append(time.monotonic() - began)
    except OSError:
        return []
    return took
