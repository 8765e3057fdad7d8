"""Two web processes and the tunnel of one agent, whose lease runs: what tests come in by."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.db import connection
from pytest_django import DjangoDbBlocker

from marketplace.models.leases import LeaseRow
from metering.agent.access.line import Line
from metering.agent.access.tunnel import Tunnel
from metering.agent.runtimes.port import WorkSpec
from metering.agent.runtimes.process import ProcessRuntime
from metering.models import AgentTunnel
from tests.access.conftest import Caller, admit
from tests.conftest import clear_event_table
from tests.emptying import empty_tables
from tests.metering.agent.works import PYTHON, accounts, running, state, until
from tests.metering.host_agent import host_token
from tests.metering.leases import lease_row, share_row
from tests.ports import free_port

ROOT_FOLDER = Path(__file__).resolve().parents[2]


@dataclass
class Place:
    """What runs: the ports of two web processes, a lease and its consumer, the agent's parts."""

    first: int
    second: int
    consumer: Caller
    lease: LeaseRow
    runtime: ProcessRuntime
    folder: Path

    def command(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "marketplace.sdk", *words],
            cwd=ROOT_FOLDER,
            env={
                **os.environ,
                "OFFPEAK_SERVER": f"http://127.0.0.1:{self.second}",
                "OFFPEAK_TOKEN": self.consumer.token,
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str, said: str = "") -> tuple[int, str, str]:
        process = self.command(*words)
        out, err = process.communicate(said, timeout=120)
        return process.returncode, out, err

    def ask(self, **wish: Any) -> tuple[int, dict[str, Any]]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.second}/api/v1/leases/{self.lease.lease_id}/access",
            data=json.dumps(wish).encode(),
            headers={
                "Authorization": f"Bearer {self.consumer.token}",
                "Content-Type": "application/json",
            },
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)

    def permit(self) -> str:
        return str(self.ask(what="port", port=8888)[1]["token"])


def committed(work: Callable[[], object]) -> None:
    """Do something where other processes see it: beside the transaction of the test."""

    def alone() -> None:
        try:
            work()
        finally:
            connection.close()

    thread = threading.Thread(target=alone)
    thread.start()
    thread.join()


def web(ended_last: ExitStack, folder: Path, name: str) -> int:
    """Start a web process as `up` does, on the database of this run; return its port."""
    port = free_port()
    log = ended_last.enter_context((folder / f"web-{port}.log").open("wb"))
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.live.process", name, "web"],
        cwd=ROOT_FOLDER,
        env={**os.environ, "PORT": str(port), "DJANGO_SETTINGS_MODULE": "tests.settings"},
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    ended_last.callback(process.wait, 60)
    ended_last.callback(process.terminate)
    return port


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5):
            return True
    except OSError:
        return False


def placed(ended_last: ExitStack, blocker: DjangoDbBlocker, folder: Path, program: str) -> Place:
    """Start all that runs; the work of the lease is a program in Python."""
    with blocker.unblock():
        name = str(connection.settings_dict["NAME"])
        consumer, owner = admit("grace-lab", "consumer"), admit("owner-works", "owner")
        lease = lease_row(tenant_id=consumer.tenant_id, owner_id=owner.tenant_id)
        share_row(lease, phase="run")
        token = host_token(lease.host_ids[0], owner.tenant_id)
    ended_last.callback(lambda: _empty(blocker))
    first, second = web(ended_last, folder, name), web(ended_last, folder, name)
    runtime = ended_last.enter_context(running(folder, users=accounts(2), confined=True))
    ended_last.callback(runtime.kill, lease.lease_id)
    command = (PYTHON, "-c", program)
    runtime.start(WorkSpec(lease_id=lease.lease_id, gpu_uuids=("GPU-a",), command=command))
    until(lambda: state(runtime, lease.lease_id) == "running")
    until(lambda: answers(first) and answers(second))
    line = Line(server=f"http://127.0.0.1:{first}", token=token)
    tunnel = Tunnel(
        line, "shell", enter=runtime.inside, count_in=runtime.count_in,
        secret=folder / "access.key",
    )  # fmt: skip
    tunnel.start()
    ended_last.callback(tunnel.stop)
    with blocker.unblock():
        until(lambda: AgentTunnel.objects.exists())
    return Place(first, second, consumer, lease, runtime, folder)


def _empty(blocker: DjangoDbBlocker) -> None:
    with blocker.unblock():
        empty_tables(None)
        clear_event_table()
