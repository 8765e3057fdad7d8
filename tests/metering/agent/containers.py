"""Container images made by hand, and runtimes that run them with the real podman."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from metering.agent.clock import SystemClock
from metering.agent.runtimes.images import Containers, Sources
from metering.agent.runtimes.limits import Limits
from metering.agent.runtimes.podman import FIRST_ID, IDS, Podman, find
from metering.agent.runtimes.port import NotYet, StartFailed, Work, WorkSpec
from metering.agent.runtimes.process import ProcessRuntime

LINKS = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}
FOLDERS = ("usr", "tmp", "proc", "sys", "dev", "etc", "run", "var", "var/tmp", "lease", "opt")
PASSWD = b"root:x:0:0:root:/:/bin/sh\nwork:x:1000:1000:work:/:/bin/sh\n"
DEADLINE_SECONDS = 60.0
RANGES_EACH = 16
LIMITS = Limits(processes=64, memory_bytes=256 << 20)


@dataclass(frozen=True, slots=True)
class Made:
    """An image in a folder. named: as a bid names it."""

    folder: Path
    digest: str

    @property
    def named(self) -> str:
        return f"tests/image@{self.digest}"


def make_image(
    folder: Path,
    *,
    files: Mapping[str, bytes] = {},
    user: str = "",
    environment: tuple[str, ...] = (),
) -> Made:
    """Make an image of almost nothing: its programs are the host's, which the runtime lends it."""
    folder.mkdir(parents=True)
    layer = _layer({"etc/passwd": PASSWD, "etc/os-release": b"ID=made\n", **files})
    packed = gzip.compress(layer, mtime=0)
    path = "PATH=/usr/local/bin:/usr/bin:/bin"
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": [path, *environment], "Entrypoint": ["/of/the/image"], "User": user},
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
    }
    about = json.dumps(config).encode()
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": _described("application/vnd.oci.image.config.v1+json", about),
        "layers": [_described("application/vnd.oci.image.layer.v1.tar+gzip", packed)],
    }
    text = json.dumps(manifest).encode()
    for blob in (about, packed):
        (folder / _digest(blob)[7:]).write_bytes(blob)
    (folder / "manifest.json").write_bytes(text)
    (folder / "version").write_text("Directory Transport Version: 1.1\n")
    return Made(folder, _digest(text))


def _layer(files: Mapping[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name in FOLDERS:
            about = tarfile.TarInfo(name)
            about.type, about.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(about)
        for name, target in LINKS.items():
            about = tarfile.TarInfo(name)
            about.type, about.linkname = tarfile.SYMTYPE, target
            archive.addfile(about)
        for name, data in files.items():
            about = tarfile.TarInfo(name)
            about.size, about.mode = len(data), 0o755
            archive.addfile(about, io.BytesIO(data))
    return made.getvalue()


def _described(kind: str, blob: bytes) -> dict[str, object]:
    return {"mediaType": kind, "digest": _digest(blob), "size": len(blob)}


def _digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


class ContainerRuntime(ProcessRuntime):
    """Runs all work in one image, and starts it as an agent does over several ticks."""

    image = ""

    def start(self, spec: WorkSpec) -> Work:
        wanted = spec if spec.image else replace(spec, image=self.image)
        begun = self._until(lambda: self._asked(wanted))
        assert begun is not None
        if begun.lost and not begun.started_ms:
            self.forget(spec.lease_id)
            raise StartFailed(begun.detail)
        return begun

    def _asked(self, wanted: WorkSpec) -> Work | None:
        try:
            work = super().start(wanted)
        except NotYet:
            return None
        return None if work.state == "starting" else work

    def _until(self, ask: Callable[[], Work | None]) -> Work | None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while (found := ask()) is None:
            assert time.monotonic() < deadline, "it did not begin in time"
            time.sleep(0.02)
        return found


def contained(
    folder: Path,
    podman: Podman,
    image: Made,
    *,
    limits: Limits = LIMITS,
    bare: bool = False,
    sources: Sources | None = None,
) -> ContainerRuntime:
    """Return a runtime that runs an image."""
    runtime = ContainerRuntime(
        folder,
        clock=SystemClock(),
        containers=Containers(podman, sources or Sources(folder=image.folder.parent)),
        limits=limits,
        bare=bare,
    )
    runtime.image = image.named
    return runtime


@pytest.fixture(scope="session")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    """Give podman with a storage of its own, which all tests of this process share."""
    folder = tmp_path_factory.mktemp("podman")
    found, why = find(folder, network="none", readable=[Path("/usr")], cdi=False)
    if found is None:
        pytest.skip(why)  # tests/install-tools.sh brings it
    # Each process of a run has ranges of user ids of its own: it counts what is alive of a range.
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    found = replace(found, first_id=FIRST_ID + worker * RANGES_EACH * IDS)
    yield found
    found.call("system", "reset", "--force")
    # podman leaves its storage mounted on itself.
    mounted = folder / "root" / found.driver
    subprocess.run(["umount", "--lazy", str(mounted)], check=False, capture_output=True)
    shutil.rmtree(found.running, ignore_errors=True)


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make_image(tmp_path_factory.mktemp("images") / "made")
