"""The images of an agent take a bounded part of the disk, and none goes that is in use."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from metering.agent.runtimes import shelf as shelves
from metering.agent.runtimes.images import Images, Sources
from metering.agent.runtimes.podman import Podman, find
from metering.agent.runtimes.port import NotYet
from metering.agent.runtimes.shelf import Shelf
from tests.metering.agent.containers import Made, make_image
from tests.metering.agent.works import until

NAMES = ("first", "second", "third", "fourth")
MIB = 1 << 20


@pytest.fixture
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    """Give podman with a storage in which nobody else's images are."""
    folder = tmp_path_factory.mktemp("shelf")
    found, why = find(folder, network="none", readable=[Path("/usr")], cdi=False)
    if found is None:
        pytest.skip(why)  # tests/install-tools.sh brings it
    yield found
    found.call("system", "reset", "--force")
    mounted = folder / "root" / found.driver
    subprocess.run(["umount", "--lazy", str(mounted)], check=False, capture_output=True)
    shutil.rmtree(found.running, ignore_errors=True)


@pytest.fixture
def made(tmp_path: Path) -> dict[str, Made]:
    return {
        name: make_image(tmp_path / "images" / name, files={"mark": os.urandom(2 * MIB)})
        for name in NAMES
    }


def use(podman: Podman, made: Made, most: int) -> str:
    """Ask for an image as a lease does; return its id."""
    images = Images(podman, Sources(folder=made.folder.parent, all_bytes_max=most))

    def asked() -> str | None:
        try:
            return images.ready(made.named).image_id
        except NotYet:
            return None

    return str(until(asked))


def pass_time(podman: Podman) -> None:
    """Let an hour have passed since each image was used."""
    file = podman.folder / shelves.USED
    file.write_text(json.dumps({k: at - 3_600 for k, at in json.loads(file.read_text()).items()}))


def there(podman: Podman) -> set[str]:
    return set(podman.call("images", "--no-trunc", "--quiet").stdout.replace("sha256:", "").split())


def test_those_that_no_lease_used_for_longest_go_and_never_one_in_use(
    podman: Podman, made: dict[str, Made]
) -> None:
    ids = {name: use(podman, made[name], 1 << 40) for name in NAMES[:3]}
    use(podman, made["first"], 1 << 40)

    # All were asked for a moment ago: each may be about to have a container.
    assert Shelf(podman, 1).tidy() == []

    pass_time(podman)
    assert Shelf(podman, 5 * MIB).tidy() == [ids["second"]]
    assert Shelf(podman, 5 * MIB).tidy() == [], "what is left is small enough"
    held = podman.call("create", "--network", "none", "--entrypoint", "/x", ids["third"])
    assert held.returncode == 0, held.stderr
    new = use(podman, made["fourth"], MIB)

    assert there(podman) == {ids["third"], new}, "of a container, and just come"
    assert set(json.loads((podman.folder / shelves.USED).read_text())) == there(podman)


def test_images_make_room_where_the_disk_is_full(
    podman: Podman, made: dict[str, Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    old = use(podman, made["first"], 1 << 40)
    pass_time(podman)
    monkeypatch.setattr(Shelf, "is_full", lambda self: old in there(self._podman))

    new = use(podman, made["second"], 1 << 40)

    assert there(podman) == {new}


def test_a_podman_that_fails_costs_no_lease_its_image(
    podman: Podman, made: dict[str, Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: Shelf) -> list[str]:
        raise subprocess.SubprocessError("no")

    monkeypatch.setattr(Shelf, "_tidied", fails)

    assert use(podman, made["first"], 1) in there(podman)
