"""What the agent measures of work in an image: the container's processes and its own network."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from metering.agent.runtimes import egress
from metering.agent.runtimes.podman import Podman
from metering.agent.runtimes.used import Used
from tests.metering.agent.containers import ContainerRuntime, Made, contained
from tests.metering.agent.containers import image as image
from tests.metering.agent.containers import podman as podman
from tests.metering.agent.networks import PORTS, PUBLIC, neighbourhood
from tests.metering.agent.workloads import containers as containers
from tests.metering.agent.workloads import end_all, spec, until
from tests.metering.agent.works import PYTHON, ROOT, let_through

WRITTEN = 1 << 22
BURNS = f"""
import os, time
time.sleep(0.2)
with open("data", "wb") as file:
    file.write(os.urandom({WRITTEN}))
    os.fsync(file.fileno())
while True: pass
"""
CALLS = f"""
import socket
while True:
    try:
        with socket.create_connection(("{PUBLIC}", {PORTS[0]}), 10) as made:
            made.recv(10)
    except OSError:
        pass
"""


def grown(
    read: Callable[[], Used], enough: Callable[[Used], bool], *, since: Used | None = None
) -> Used:
    """Wait until what was used is enough; return it."""
    before = since or read()
    until(lambda: enough(read().since(before)))
    return read().since(before)


def of(runtime: ContainerRuntime, lease_id: UUID) -> Callable[[], Used]:
    return lambda: runtime.used()[lease_id]


def test_processor_time_and_disk_of_a_container_are_its_leases(
    containers: ContainerRuntime,
) -> None:
    busy, still = spec(PYTHON, "-c", BURNS), spec("sleep", "600")
    containers.start(still)
    quiet = containers.used()[still.lease_id]
    containers.start(busy)

    spent = grown(
        of(containers, busy.lease_id),
        lambda used: (used.cpu_ms or 0) >= 300 and (used.io_bytes or 0) >= WRITTEN,
    )

    assert spent.net_bytes == 0, "a container without a way out has a network, and nothing on it"
    rest = containers.used()[still.lease_id].since(quiet)
    assert rest.cpu_ms is not None and rest.cpu_ms < 200
    assert (rest.io_bytes or 0) < WRITTEN and rest.net_bytes == 0


@ROOT
def test_what_goes_over_a_containers_way_out_is_its_leases(
    podman: Podman, image: Made, tmp_path: Path
) -> None:
    out, why = egress.find(open_=True)
    if out is None or shutil.which("slirp4netns") is None:
        pytest.skip(why or "slirp4netns is not installed")  # tests/install-tools.sh brings it
    let_through(tmp_path)
    with neighbourhood() as network:
        ours = replace(podman, network="private", egress=out)
        runtime = contained(tmp_path / "state", ours, image)
        wanted = spec(PYTHON, "-c", CALLS)
        network.within(runtime.start, wanted)

        def read() -> Used:
            found: list[Used] = []
            network.within(lambda: found.append(runtime.used()[wanted.lease_id]))
            return found[0]

        spent = grown(read, lambda used: (used.net_bytes or 0) > 2_000)
        end_all(runtime)

    assert spent.net_bytes is not None


@ROOT
def test_a_container_on_the_hosts_network_has_none_that_is_known(
    podman: Podman, image: Made, tmp_path: Path
) -> None:
    runtime = contained(tmp_path, replace(podman, network="host"), image)
    wanted = spec("sleep", "600")
    runtime.start(wanted)
    assert runtime.used()[wanted.lease_id].net_bytes is None
    end_all(runtime)
