"""The newest version of a volume for one lease: fetched as inputs are, and its number noted.

The folder has what `fetching` says and `about`: which version it is. Manifest and `about` stay when
the files went to the work: what the work made of them becomes the version after that one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import wire
from ..uplink import Refused
from .fetching import Fetch, FetchFailed
from .manifest import FolderWrong, Manifest, read_manifest
from .port import VolumesUplink

ABOUT = "about"
MOVES_MAX = 20
"""So often a newer version may come while one is fetched; then the fetch is given up."""
UNKNOWN = -1
EMPTY = ""
"""In place of a manifest's name: nothing was kept in the volume yet."""
NOTHING = Manifest((), (), (), ())


class _Moved(Exception):
    """A newer version came meanwhile, whose blobs are others."""


@dataclass(frozen=True, slots=True)
class Base:
    """The version that a work found. name: of its manifest. manifest: None: not known any more."""

    version: int
    name: str
    manifest: Manifest | None


@dataclass(slots=True)
class FetchVolume(Fetch):
    """Fetches the newest version of the volume `name`."""

    uplink: VolumesUplink
    name: str = ""
    _version: int = UNKNOWN

    @property
    def what(self) -> str:
        return f"the files of volume {self.name}"

    def run(self) -> Path:
        """Return the folder with all files of the newest version.

        Raises: FetchFailed, OutOfTime, Stopped.
        """
        for _ in range(MOVES_MAX):
            try:
                return Fetch.run(self)
            except _Moved:
                self._version = UNKNOWN
                self._links.clear()
        raise FetchFailed(f"{self.what} change faster than they can be fetched")

    def _asked(self, blobs: tuple[str, ...]) -> tuple[str, Sequence[wire.Link]]:
        try:
            answer = self._read(blobs)
        except Refused:
            if blobs and self._read(()).version != self._version:
                raise _Moved from None
            raise
        if self._version not in (UNKNOWN, answer.version):
            raise _Moved
        self._version = answer.version
        return answer.manifest or EMPTY, answer.links

    def _read(self, blobs: tuple[str, ...]) -> wire.VolumeRead:
        return self.uplink.volume_read(self.lease_id, self.name, wire.VolumeAsked(blobs=blobs))

    def _manifest(self) -> Manifest:
        self._version = UNKNOWN  # whichever is the newest now
        name = self._named()
        if name == EMPTY:
            self._begin_anew()
            (self.folder / "manifest").unlink(missing_ok=True)
            manifest = NOTHING
        else:
            manifest = self._manifest_of(name)
        _write_down(self.folder / ABOUT, {"version": self._version, "manifest": name})
        return manifest


def base_of(folder: Path) -> Base | None:
    """Return the version whose files were fetched into a folder; None: it is not known."""
    try:
        about = json.loads((folder / ABOUT).read_text())
        version, name = int(about["version"]), str(about["manifest"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if name == EMPTY:
        return Base(version, EMPTY, NOTHING)
    try:
        return Base(version, name, read_manifest((folder / "manifest").read_bytes(), name))
    except (OSError, FolderWrong):
        return Base(version, name, None)


def go_on_from(folder: Path, version: int, name: str, manifest: bytes) -> None:
    """Take note that what the work makes from now on goes on from a version that it has made.

    Where the host dies between the two writes the version is known and its manifest is not.

    Raises: OSError.
    """
    new = folder / "manifest.new"
    new.write_bytes(manifest)
    os.replace(new, folder / "manifest")
    _write_down(folder / ABOUT, {"version": version, "manifest": name})


def _write_down(path: Path, said: dict[str, Any]) -> None:
    """Write it so that a power cut leaves all of it or nothing."""
    new = path.with_name(f"{path.name}.new")
    with open(new, "w") as file:
        json.dump(said, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
