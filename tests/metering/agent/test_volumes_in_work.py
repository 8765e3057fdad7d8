"""What work finds of its volumes on each runtime, and a volume's way from one work to the next."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from marketplace.sdk import checkpoint
from metering.agent import acting, wire
from metering.agent.abilities import abilities_of
from metering.agent.agent import Agent, AgentConfig
from metering.agent.clock import SystemClock
from metering.agent.files import checkpoint_versions
from metering.agent.gpus.simulated import SimulatedGpus
from metering.agent.runtimes.limits import LIMITS
from metering.agent.runtimes.port import StartFailed
from metering.agent.runtimes.process import ProcessRuntime
from metering.agent.uplink import HttpUplink, Refused
from tests.metering.agent.containers import ContainerRuntime
from tests.metering.agent.containers import image as image
from tests.metering.agent.containers import podman as podman
from tests.metering.agent.market import TOKEN, Market, assignment
from tests.metering.agent.storehouse import away
from tests.metering.agent.volumehouse import VolumeHouse
from tests.metering.agent.workloads import containers as containers
from tests.metering.agent.workloads import processes as processes
from tests.metering.agent.works import (
    PYTHON,
    ROOT,
    accounts,
    ended,
    mounted,
    program,
    running,
    said,
    until,
)

TRIES = """
import json, os
seen = {"read": open("volumes/data/a").read(), "fixed": open("models/base/a").read()}
for place in ("volumes/data/b", "models/base/b"):
    try:
        open(place, "w").write("written")
        seen[place] = "written"
    except OSError as error:
        seen[place] = error.strerror
seen["mine"] = os.stat("volumes/data/a").st_uid == os.getuid()
print(json.dumps(seen), flush=True)
"""


def seen_by(runtime: ProcessRuntime, folder: Path) -> dict[str, Any]:
    wanted = mounted(folder, program(TRIES))
    runtime.start(wanted)
    assert ended(runtime, wanted.lease_id).exit_code == 0
    work = runtime.folder_of(wanted.lease_id)
    assert work is not None and (work / "volumes/data/b").read_text() == "written"
    seen: dict[str, Any] = json.loads(said(folder, wanted))
    assert (seen["read"], seen["fixed"], seen["mine"]) == ("volumes/data", "models/base", True)
    runtime.forget(wanted.lease_id)
    until(lambda: not runtime.works() and not list(folder.rglob("models")))
    return seen


@ROOT
@pytest.mark.parametrize("disk_bytes", [0, 32 << 20])
def test_confined_work_writes_to_one_and_only_reads_the_other(
    tmp_path: Path, disk_bytes: int
) -> None:
    limits = replace(LIMITS, disk_bytes=disk_bytes)
    with running(tmp_path, users=accounts(), confined=True, limits=limits) as runtime:
        seen = seen_by(runtime, tmp_path)

    assert seen["models/base/b"] == "Read-only file system"


def test_work_in_an_image_writes_to_one_and_only_reads_the_other(
    containers: ContainerRuntime, tmp_path: Path
) -> None:
    seen = seen_by(containers, tmp_path)

    assert seen["models/base/b"] == "Read-only file system"


def test_a_volume_that_is_larger_than_the_works_disk_is_refused_with_a_reason(
    tmp_path: Path,
) -> None:
    limits = replace(LIMITS, disk_bytes=16 << 20)
    with running(tmp_path, users=accounts(), confined=False, limits=limits) as runtime:
        if dict(runtime.sandbox.enforces)["disk"] == "":
            pytest.skip("this host gives leases no file system of their own")
        wanted = mounted(tmp_path, program("pass"))
        (wanted.volumes[0].folder / "large").write_bytes(bytes(40 << 20))

        with pytest.raises(StartFailed, match="No space left"):
            runtime.start(wanted)
        assert not list((tmp_path / "leases").rglob("large"))


@pytest.mark.parametrize("lies", ["file", "folder", "link"])
def test_inputs_that_lie_where_a_volume_goes_are_no_way_out(
    lies: str, processes: ProcessRuntime, tmp_path: Path
) -> None:
    inputs, outside = tmp_path / "inputs", tmp_path / "outside"
    inputs.mkdir()
    outside.mkdir()
    match lies:
        case "file":
            (inputs / "volumes").write_text("x")
        case "folder":
            (inputs / "volumes/data/x").mkdir(parents=True)
        case "link":
            (inputs / "volumes").symlink_to(outside)
    wanted = replace(mounted(tmp_path, program("pass")), inputs=inputs)

    with pytest.raises(StartFailed, match="its inputs have something at volumes/data"):
        processes.start(wanted)

    assert list(outside.iterdir()) == []
    assert not (tmp_path / "leases" / str(wanted.lease_id)).exists()


# --- an agent ---------------------------------------------------------------------------------


class Host:
    """An agent with real work, whose files come from and go to a double of the server."""

    def __init__(self, folder: Path, market: Market, house: VolumeHouse) -> None:
        self._folder, self._market, self._house = folder, market, house
        self.clock = SystemClock()
        self.agent = self._make()

    def _make(self) -> Agent:
        self.runtime = ProcessRuntime(self._folder, clock=self.clock)
        return Agent(
            AgentConfig(state_dir=self._folder, hostname="h1", checkpoint_ms=0),
            gpus=SimulatedGpus(["L4"], clock=self.clock, holders=self.runtime.holders),
            runtime=self.runtime,
            uplink=HttpUplink(self._market.url, TOKEN),
            clock=self.clock,
            files=self._house,
        )

    def restart(self) -> None:
        self.agent.close()
        self.agent = self._make()

    def lease(self, code: str, *, writable: bool = True) -> UUID:
        """Have work run here with the volume."""
        self.agent.run_once()
        (gpu,) = self._market.registrations[-1].gpus
        wanted = assignment(gpu.uuid, now_ms=self.clock.now_ms())
        mount = wire.VolumeMount(name="data", path="volumes/data", writable=writable)
        wanted = replace(wanted, command=(PYTHON, "-c", code), volumes=(mount,))
        return self._market.assign(wanted)

    def until_told(self, lease_id: UUID, what: str) -> wire.Report:
        def told() -> list[wire.Report]:
            self.agent.run_once()
            return [each for each in self._market.told(lease_id) if each.what == what]

        until(told)
        return told()[0]

    def told(self, lease_id: UUID) -> list[wire.Report]:
        return self._market.told(lease_id)

    def until_called(self, what: str) -> None:
        def called() -> bool:
            self.agent.run_once()
            return what in self._house.calls

        until(called)

    def end(self, lease_id: UUID) -> None:
        """Have the lease be none of this host's any more."""
        del self._market.desired[lease_id]

    def over(self, lease_id: UUID) -> None:
        """Have the lease be none of this host's any more, and all of it gone from here."""
        self.end(lease_id)

        def gone() -> bool:
            self.agent.run_once()
            return lease_id not in self.agent.state.leases

        until(gone, why="the lease was not forgotten")


@pytest.fixture
def house() -> VolumeHouse:
    house = VolumeHouse()
    house.hold({"a": b"first"})
    return house


@pytest.fixture
def host(tmp_path: Path, market: Market, house: VolumeHouse) -> Iterator[Host]:
    market.poll_seconds = 1
    host = Host(tmp_path / "state", market, house)
    yield host
    for work in host.runtime.works():
        host.runtime.kill(work.lease_id)
    host.agent.close()


WRITES = "open('volumes/data/b', 'w').write(open('volumes/data/a').read() + ' and more')"
SECOND = {"a": b"first", "b": b"first and more"}


def test_what_one_work_wrote_the_next_finds_and_nothing_stays_here(
    host: Host, house: VolumeHouse, tmp_path: Path
) -> None:
    assert "volumes" in abilities_of(host.runtime)
    first = host.lease(WRITES)
    assert host.until_told(first, "exited").exit_code == 0
    host.over(first)

    assert house.files() == SECOND and len(house.versions) == 2
    assert list((tmp_path / "state" / "volumes").iterdir()) == []
    assert not list(tmp_path.rglob("b"))

    second = host.lease("import sys; sys.exit(len(open('volumes/data/b').read()))", writable=False)
    assert host.until_told(second, "exited").exit_code == len(SECOND["b"])
    host.over(second)
    assert len(house.versions) == 2


@pytest.mark.parametrize("end", ["fails", "is stopped"])
def test_however_the_work_ended_what_it_wrote_is_kept(
    end: str, host: Host, house: VolumeHouse
) -> None:
    then = "import sys; sys.exit(3)" if end == "fails" else "import time; time.sleep(600)"
    lease = host.lease(f"{WRITES}; {then}")
    if end == "is stopped":
        host.until_told(lease, "started")
        work = host.runtime.folder_of(lease)
        assert work is not None
        until(lambda: (work / "volumes/data/b").exists())
    else:
        assert host.until_told(lease, "exited").exit_code == 3

    host.over(lease)

    assert house.files() == SECOND


def test_an_agent_that_is_started_again_at_any_time_goes_on(
    host: Host, house: VolumeHouse, tmp_path: Path
) -> None:
    house.fault = away(lambda what, _: what in ("volume", "sent"))
    lease = host.lease(f"{WRITES}; import time; time.sleep(1)")
    host.until_called("volume")
    host.restart()
    house.fault = away(lambda what, _: what == "sent")
    host.until_told(lease, "started")
    host.restart()
    host.until_told(lease, "exited")
    host.until_called("sent")
    host.restart()
    assert len(house.versions) == 1
    house.fault = lambda *_: None

    host.over(lease)

    assert house.files() == SECOND and house.bases[-1] == 1


def test_a_fetch_that_takes_a_while_is_reported_once(
    host: Host, house: VolumeHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acting, "COMING_SAID_MS", 0)
    house.fault = away(lambda what, _: what == "volume")
    lease = host.lease(WRITES)

    report = host.until_told(lease, "fetching")
    host.restart()
    for _ in range(3):
        host.agent.run_once()
    house.fault = lambda *_: None
    host.until_told(lease, "exited")

    assert report.detail == "the files of volume data are on their way"
    told = [each.what for each in host.told(lease)]
    assert (told.count("fetching"), told.count("started")) == (1, 1)


def test_what_cannot_be_had_fails_the_lease_with_the_reason(
    host: Host, house: VolumeHouse, tmp_path: Path
) -> None:
    def gone(what: str, _number: int) -> None:
        if what == "volume":
            raise Refused(404, "no such volume", "volume-unknown")

    house.fault = gone
    lease = host.lease(WRITES)

    report = host.until_told(lease, "failed")

    assert report.detail == "the files of volume data are refused: volume-unknown"
    host.over(lease)
    until(lambda: not list((tmp_path / "state" / "volumes").iterdir()))


# --- checkpoints --------------------------------------------------------------------------------

SAVES = f"""
import sys, time, pathlib
sys.path.insert(0, {str(Path(checkpoint.__file__).parent)!r})
from checkpoint import Checkpoints

saves, go_on = Checkpoints("volumes/data/run"), pathlib.Path("go-on")
for step in range(2):
    with saves.save(step=step) as folder:
        (folder / "model").write_text(f"model {{step}}")
    while not go_on.exists():
        time.sleep(0.02)
    go_on.unlink()
while True:
    time.sleep(1)
"""


def models(house: VolumeHouse) -> list[bytes]:
    """Return the models of all checkpoints that the newest version has."""
    return [data for path, data in sorted(house.files().items()) if path.endswith("/model")]


def run_on(host: Host, lease: UUID) -> None:
    work = host.runtime.folder_of(lease)
    assert work is not None
    (work / "go-on").touch()


def test_a_checkpoint_of_running_work_is_a_version_and_counts_then(
    host: Host, house: VolumeHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_versions, "PAUSES", 0)
    house.fault = away(lambda what, _: what == "sent")
    lease = host.lease(SAVES)
    host.until_called("sent")
    assert not [each for each in host.told(lease) if each.what == "saved"], "it is not kept yet"
    house.fault = lambda *_: None

    host.until_told(lease, "saved")

    assert models(house) == [b"model 0"] and house.released == 0
    assert not [each for each in host.told(lease) if each.what in ("exited", "stopped")]
    run_on(host, lease)

    def both() -> bool:
        host.agent.run_once()
        return len([each for each in host.told(lease) if each.what == "saved"]) == 2

    until(both, why="the second checkpoint was not reported")
    assert models(house) == [b"model 0", b"model 1"]
    host.over(lease)
    assert house.released == 1


def test_the_next_agent_goes_on_with_checkpoints(
    host: Host, house: VolumeHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_versions, "PAUSES", 0)
    lease = host.lease(SAVES)
    host.until_told(lease, "saved")
    host.restart()
    host.agent.run_once()
    run_on(host, lease)

    def newest() -> bool:
        host.agent.run_once()
        return models(house)[-1:] == [b"model 1"]

    until(newest, why="no version has the second checkpoint")
    host.over(lease)
    assert models(house) == [b"model 0", b"model 1"] and house.told == []


def test_a_lease_that_ends_while_a_checkpoint_is_sent_keeps_its_last_version(
    host: Host, house: VolumeHouse
) -> None:
    house.fault = away(lambda what, _: what == "sent")
    lease = host.lease(SAVES)
    host.until_called("sent")
    host.end(lease)
    host.until_told(lease, "stopped")
    house.fault = lambda *_: None

    def is_over() -> bool:
        host.agent.run_once()
        return house.released == 1

    until(is_over, why="no last version")

    assert models(house) == [b"model 0"] and house.told == []
