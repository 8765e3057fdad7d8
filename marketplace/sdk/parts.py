"""A part of a folder by its manifest, and a folder with other things in the place of some.

Pure: manifests as JSON has them, and paths in them, in and out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from . import parcel

Manifest = Mapping[str, Any]
EMPTY: Manifest = {"format": parcel.FORMAT, "blobs": [], "files": [], "links": [], "folders": []}


class NothingThere(Exception):
    """The folder has nothing of that path."""


class InTheWay(Exception):
    """What is at that path of the folder is of another kind; the text says what."""


def is_folder(manifest: Manifest, path: str) -> bool:
    """Tell if a path is a folder of it; the empty one is the whole.

    Raises: NothingThere.
    """
    if not path or any(_is_below(each, path) for each in _paths(manifest)):
        return True
    if path in manifest.get("folders", ()):
        return True
    if path not in _paths(manifest):
        raise NothingThere(path)
    return False


def part_of(manifest: Manifest, path: str) -> dict[str, Any]:
    """Return what is at a path: a folder's content, or one file (or link) by its last name.

    Raises: NothingThere.
    """
    if not path:
        return dict(manifest)
    whole = is_folder(manifest, path)

    def inside(each: str) -> str | None:
        if whole:
            return each[len(path) + 1 :] if _is_below(each, path) else None
        return PurePosixPath(path).name if each == path else None

    files = [_renamed(each, name) for each in manifest["files"] if (name := inside(each["path"]))]
    found = [_renamed(each, name) for each in _links(manifest) if (name := inside(each["path"]))]
    links = [each for each in found if parcel.stays_inside(each["path"], each["to"])]
    folders = [name for each in manifest.get("folders", ()) if (name := inside(each))]
    return _with_blobs(manifest["blobs"], files) | {"links": links, "folders": folders}


def with_part(manifest: Manifest, path: str, part: Manifest) -> dict[str, Any]:
    """Return a folder that has the files of `part` below `path`, and all else as it was.

    Raises: InTheWay.
    """
    new = {_joined(path, each): each for each in _paths(part)}
    old_folders = {name for each in _paths(manifest) for name in _above(each)}
    old_folders |= set(manifest.get("folders", ()))
    stays = set(_paths(manifest)) - new.keys()
    for each in new:
        if each in old_folders:
            raise InTheWay(f"{each} is a folder there")
        if above := next((name for name in _above(each) if name in stays), None):
            raise InTheWay(f"{above} is a file there")
    bases = [list(each) for each in manifest["blobs"]]
    first = len(bases)
    files = [each for each in manifest["files"] if each["path"] not in new]
    files += [_moved(each, _joined(path, each["path"]), first) for each in part["files"]]
    links = [each for each in _links(manifest) if each["path"] not in new]
    links += [_renamed(each, _joined(path, each["path"])) for each in _links(part)]
    taken = {name for each in (*files, *links) for name in _above(each["path"])}
    folders = {*manifest.get("folders", ()), *(_joined(path, e) for e in part.get("folders", ()))}
    made = _with_blobs([*bases, *part["blobs"]], files)
    return made | {"links": links, "folders": sorted(folders - taken)}


def written(manifest: Manifest) -> bytes:
    """Return the manifest as it is named and sent."""
    return json.dumps(manifest, ensure_ascii=False, separators=(",", ":")).encode()


def _with_blobs(blobs: Any, files: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a manifest of files, with the blobs that they are made of and no others."""
    index: dict[str, int] = {}
    sizes: dict[str, int] = {}
    told = []
    for file in files:
        parts = []
        for blob, offset, length in file.get("parts", ()):
            sha256, sizes[sha256] = blobs[blob]
            parts.append([index.setdefault(sha256, len(index)), offset, length])
        told.append({**file, "parts": parts})
    return {
        "format": parcel.FORMAT,
        "blobs": [[sha256, sizes[sha256]] for sha256 in index],
        "files": told,
    }


def _moved(file: Mapping[str, Any], path: str, first: int) -> dict[str, Any]:
    parts = [[blob + first, offset, length] for blob, offset, length in file.get("parts", ())]
    return {**file, "path": path, "parts": parts}


def _renamed(entry: Mapping[str, Any], path: str) -> dict[str, Any]:
    return {**entry, "path": path}


def _links(manifest: Manifest) -> list[dict[str, Any]]:
    return list(manifest.get("links", ()))


def _paths(manifest: Manifest) -> list[str]:
    return [each["path"] for each in (*manifest["files"], *_links(manifest))]


def _above(path: str) -> list[str]:
    names = path.split("/")
    return ["/".join(names[:depth]) for depth in range(1, len(names))]


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(f"{folder}/")


def _joined(above: str, path: str) -> str:
    return f"{above}/{path}" if above else path
