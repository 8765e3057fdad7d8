"""Manifests of folders, as `marketplace/domain/files/manifest.py` says: here, since a host has no
server. `tests/contracts/test_manifests.py` holds the two to one set of cases.

Nothing in a manifest may lead out of the folder that is made from it. What does is refused as a
whole, before any file of it is written.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

FORMAT = "offpeak-folder-1"
BLOB_BYTES_MAX = 8 * 2**20
FILES_MAX = 50_000
BLOBS_MAX = 50_000
PATH_BYTES_MAX = 1_024
NAME_BYTES_MAX = 255
DEPTH_MAX = 64

_SHA256 = re.compile(r"[0-9a-f]{64}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\\]")

Names = tuple[str, ...]
Part = tuple[int, int, int]
"""Of which blob, from where on, how many bytes."""


class FolderWrong(Exception):
    """What came is no folder, or not the one that was asked for; the text says why."""


@dataclass(frozen=True, slots=True)
class File:
    """A file: its parts, one after the other."""

    names: Names
    parts: tuple[Part, ...]
    executable: bool


@dataclass(frozen=True, slots=True)
class Manifest:
    """A folder. blobs: sha256 and bytes of each. folders: those that nothing lies in."""

    blobs: tuple[tuple[str, int], ...]
    files: tuple[File, ...]
    links: tuple[tuple[Names, str], ...]
    folders: tuple[Names, ...]

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all its files."""
        return sum(length for file in self.files for _, _, length in file.parts)


def read_manifest(body: bytes, name: str) -> Manifest:
    """Read and check the manifest of this name, so that it may be done as it says.

    Raises: FolderWrong.
    """
    if hashlib.sha256(body).hexdigest() != name:
        raise FolderWrong("the list of its files is not what its name says")
    try:
        said = json.loads(body)
        known = {"format", "blobs", "files", "links", "folders"}
        if not isinstance(said, dict) or said.keys() - known or said.get("format") != FORMAT:
            raise FolderWrong(f"the list of its files has not the form {FORMAT}")
        manifest = Manifest(
            blobs=tuple(_blob(each) for each in said.get("blobs", ())),
            files=tuple(_file(each) for each in said.get("files", ())),
            links=tuple(_link(each) for each in said.get("links", ())),
            folders=tuple(need_path(each) for each in said.get("folders", ())),
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        raise FolderWrong("the list of its files cannot be read") from None
    _need_parts(manifest)
    _need_places(manifest)
    return manifest


def need_path(path: object) -> Names:
    """Return the names in a path that stays inside its folder.

    Raises: FolderWrong.
    """
    names = tuple(path.split("/")) if isinstance(path, str) else ()
    try:
        fits = (
            isinstance(path, str)
            and _CONTROL.search(path) is None
            and len(path.encode()) <= PATH_BYTES_MAX
            and len(names) <= DEPTH_MAX
            and not {"", ".", ".."} & set(names)
            and all(len(name.encode()) <= NAME_BYTES_MAX for name in names)
        )
    except UnicodeEncodeError:
        fits = False
    if not fits:
        raise FolderWrong(f"a path of the folder leads out of it: {path!r:.200}")
    return names


def stays_inside(names: Sequence[str], to: str) -> bool:
    """Tell if a link leads nowhere out of its folder: it goes up only at its beginning."""
    parts = to.split("/")
    ups = next((at for at, name in enumerate(parts) if name != ".."), len(parts))
    rest = {"", ".", ".."} & set(parts[ups:])
    fits = not rest and ups < len(names) and _CONTROL.search(to) is None
    return fits and len(to) <= PATH_BYTES_MAX


def _blob(said: Any) -> tuple[str, int]:
    sha256, size = said
    if not isinstance(sha256, str) or _SHA256.fullmatch(sha256) is None or type(size) is not int:
        raise FolderWrong("a part of the folder has no hash")
    if not 0 < size <= BLOB_BYTES_MAX:
        raise FolderWrong(f"a part of the folder has {size} bytes")
    return sha256, size


def _file(said: Any) -> File:
    if not isinstance(said, dict) or said.keys() - {"path", "parts", "executable"}:
        raise FolderWrong("a file of the folder is no file")
    parts = tuple((blob, offset, length) for blob, offset, length in said.get("parts", ()))
    if any(type(number) is not int for part in parts for number in part):
        raise FolderWrong("a file of the folder has parts that are none")
    executable = said.get("executable", False)
    if type(executable) is not bool:
        raise FolderWrong("a file of the folder is no file")
    return File(need_path(said["path"]), parts, executable)


def _link(said: Any) -> tuple[Names, str]:
    if not isinstance(said, dict) or said.keys() != {"path", "to"} or type(said["to"]) is not str:
        raise FolderWrong("a link of the folder is none")
    names, to = need_path(said["path"]), said["to"]
    if not stays_inside(names, to):
        raise FolderWrong(f"a link of the folder leads out of it: {said['path']!r:.200}")
    return names, to


def _need_parts(manifest: Manifest) -> None:
    """Refuse what is too much, and pieces that no blob has."""
    entries = len(manifest.files) + len(manifest.links) + len(manifest.folders)
    if entries > FILES_MAX or len(manifest.blobs) > BLOBS_MAX:
        raise FolderWrong(f"the folder has more than {FILES_MAX} files")
    if len({sha256 for sha256, _ in manifest.blobs}) < len(manifest.blobs):
        raise FolderWrong("the folder names a part twice")
    used = set()
    for file in manifest.files:
        for blob, offset, length in file.parts:
            if not 0 <= blob < len(manifest.blobs):
                raise FolderWrong("a file of the folder is of a part that is not there")
            if not (offset >= 0 < length and offset + length <= manifest.blobs[blob][1]):
                raise FolderWrong("a file of the folder goes beyond its part")
            used.add(blob)
    if len(used) < len(manifest.blobs):
        raise FolderWrong("the folder names a part that no file is made of")


def _need_places(manifest: Manifest) -> None:
    """Refuse two things in one place, and anything below what is no folder."""
    solid = [*(file.names for file in manifest.files), *(names for names, _ in manifest.links)]
    taken = set(solid)
    if len(taken) < len(solid) or taken & set(manifest.folders):
        raise FolderWrong("the folder has two things in one place")
    for names in [*solid, *manifest.folders]:
        if any(names[:depth] in taken for depth in range(1, len(names))):
            raise FolderWrong("the folder has things below what is no folder")
