"""Work opens the device files that its control group lists, and no others, in both generations."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from metering.agent.runtimes import device_lists, groups
from metering.agent.runtimes.device_lists import EVERYBODY, Device, devices_of, limit
from metering.agent.runtimes.limits import Limits
from tests.metering.agent.works import ROOT

TRIES = """
import errno, os, sys
open(sys.argv[1] + "/cgroup.procs", "w").write("0")
for path in sys.argv[2:]:
    try:
        os.close(os.open(path, os.O_RDWR))
        print("opened")
    except OSError as error:
        print(errno.errorcode[error.errno])
"""
NAMES = {"cgroup": "control groups v1", "cgroup2": "control groups v2"}


@pytest.fixture(params=NAMES)
def only(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    """The mounts of one generation alone, and what that is called."""
    lines = [
        line
        for line in groups.MOUNTS.read_text().splitlines()
        if line.split()[2] == request.param
        and (request.param == "cgroup2" or "devices" in line.split()[3].split(","))
    ]
    mounts = tmp_path / "mounts"
    mounts.write_text("\n".join(lines))
    name = NAMES[request.param]
    if groups.kept_by(Limits(), mounts).get("devices") != name:
        pytest.skip(f"this host lets nobody list devices in {name}")
    return mounts, name


@pytest.fixture
def group(only: tuple[Path, str]) -> Iterator[Path]:
    mounts, _ = only
    (made,) = groups.make(f"devices-{os.getpid()}", Limits(), mounts)
    yield made
    groups.remove([made])
    assert not made.exists()


@ROOT
def test_what_is_not_listed_is_refused_though_its_file_is_open_to_all(
    group: Path, only: tuple[Path, str], tmp_path: Path
) -> None:
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("on a host with cards these numbers are real ones")
    files = [tmp_path / "own", tmp_path / "other", tmp_path / "shared"]
    minors = (3, 4, device_lists.NVIDIACTL)
    for file, minor in zip(files, minors, strict=True):
        os.mknod(file, 0o20666, os.makedev(device_lists.NVIDIA, minor))
    allowed = [*EVERYBODY, Device(device_lists.NVIDIA, 3), Device(device_lists.NVIDIA, 255)]

    assert limit([group], allowed) == only[1]

    paths = ["/dev/null", "/dev/zero", "/dev/kmsg", *map(str, files)]
    said = subprocess.check_output([sys.executable, "-c", TRIES, str(group), *paths], text=True)
    # No driver is behind them here: that one is asked for shows that the kernel let it through.
    assert said.split() == ["opened", "opened", "EPERM", "ENXIO", "EPERM", "ENXIO"]


@ROOT
def test_a_list_of_no_group_holds_nothing() -> None:
    assert limit([], EVERYBODY) == ""


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for minor, uuid in enumerate(("GPU-a", "GPU-b")):
        about = tmp_path / "gpus" / str(minor)
        about.mkdir(parents=True)
        (about / "information").write_text(f"GPU UUID: {uuid}\nDevice Minor: {minor}\n")
    numbers = tmp_path / "devices"
    numbers.write_text(
        "Character devices:\n  1 mem\n195 nvidia\n507 nvidia-caps\n510 nvidia-uvm\n\n"
        "Block devices:\n  7 loop\n"
    )
    monkeypatch.setattr(device_lists, "GPU_FOLDER", tmp_path / "gpus")
    monkeypatch.setattr(device_lists, "NUMBERS", numbers)
    monkeypatch.setattr(device_lists, "DEV", tmp_path)


@pytest.mark.usefixtures("driver")
def test_a_lease_opens_its_own_cards_and_what_all_cards_share() -> None:
    own = set(devices_of(["GPU-b"])) - set(EVERYBODY)

    assert own == {Device(195, 1), Device(195, 254), Device(195, 255), Device(507), Device(510)}


@pytest.mark.usefixtures("driver")
def test_of_a_card_that_the_driver_does_not_name_all_are_open() -> None:
    assert Device(195) in devices_of(["GPU-b", "MIG-of-somebody"])
