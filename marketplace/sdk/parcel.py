"""A folder as it is sent: which of its files go, packed into blobs, and unpacked again.

Standard library alone, and nothing of the network: `look` finds what goes, `pack` reads it once and
names every blob by its hash, `piece` reads a blob again for sending, `unpack` writes a folder from
its manifest. Blobs and manifests are what `marketplace/domain/files/manifest.py` says.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FORMAT = "offpeak-folder-1"
BLOB_BYTES = 8 * 2**20
PACKED_BELOW = 2**20
"""Smaller files lie together in packs."""
PACK_BYTES_MIN = 2 * 2**20
"""From here on a pack may end."""
MANIFEST_BYTES_MAX = BLOB_BYTES
THREADS = 4
DRAFTS = ".offpeak-unpacking"
"""Where files are until all of them are whole."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f\\]")
_SHA256 = re.compile(r"[0-9a-f]{64}")

LeavesOut = Callable[[str], bool]
"""Tells of a path, which ends with `/` for a folder, that it stays at home."""


class FileChanged(Exception):
    """A file changed while it was read: nothing of it is half old and half new."""


class FolderWrong(Exception):
    """What came is no folder, or not the one that was asked for."""


@dataclass(frozen=True, slots=True)
class Found:
    """A file that goes. stamp: what changes when it is written to."""

    path: str
    size: int
    stamp: tuple[int, int, int]
    executable: bool


@dataclass(slots=True)
class Listing:
    """What of a folder goes. left_out: what does not, and why."""

    files: list[Found] = field(default_factory=list)
    links: list[tuple[str, str]] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Return the bytes of all files."""
        return sum(file.size for file in self.files)


Piece = tuple[str, int, int]
"""A path, and from where on how many of its bytes."""


@dataclass(slots=True)
class Parcel:
    """A folder that was read: its manifest, and of which bytes each blob is."""

    manifest: bytes
    blobs: dict[str, list[Piece]]
    sizes: dict[str, int]

    @property
    def name(self) -> str:
        """Return the hash that names the folder."""
        return hashlib.sha256(self.manifest).hexdigest()


def look(root: Path, leaves_out: LeavesOut) -> Listing:
    """Find what goes, in the order of paths. Follows no link."""
    listing = Listing()
    _look(root, "", leaves_out, listing)
    return listing


def look_at(file: Path) -> Listing:
    """Find one file, by its last name. Raises: OSError."""
    known = file.stat()
    runs = bool(known.st_mode & stat.S_IXUSR)
    return Listing(files=[Found(file.name, known.st_size, _stamp(known), runs)])


def _look(root: Path, above: str, leaves_out: LeavesOut, listing: Listing) -> None:
    with os.scandir(root / above) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    if above and not found:
        listing.folders.append(above.removesuffix("/"))
    for entry in found:
        path = above + entry.name
        is_folder = entry.is_dir(follow_symlinks=False)
        if leaves_out(f"{path}/" if is_folder else path):
            listing.left_out.append((f"{path}/" if is_folder else path, "ignored"))
        elif not _can_be_sent(path):
            listing.left_out.append((path, "its name cannot be made on every host"))
        elif is_folder:
            _look(root, f"{path}/", leaves_out, listing)
        elif entry.is_symlink():
            _take_link(path, os.readlink(entry.path), listing)
        elif entry.is_file(follow_symlinks=False):
            known = entry.stat(follow_symlinks=False)
            runs = bool(known.st_mode & stat.S_IXUSR)
            listing.files.append(Found(path, known.st_size, _stamp(known), runs))
        else:
            listing.left_out.append((path, "no file"))


def _take_link(path: str, to: str, listing: Listing) -> None:
    if stays_inside(path, to):
        listing.links.append((path, to))
    else:
        listing.left_out.append((path, "a link that leads out of the folder"))


def _stamp(known: os.stat_result) -> tuple[int, int, int]:
    return known.st_size, known.st_mtime_ns, known.st_ino


def pack(root: Path, listing: Listing) -> Parcel:
    """Read every file once and name the blobs.

    Raises: FileChanged.
    """
    drafts = list(_drafts(listing.files))
    with ThreadPoolExecutor(THREADS) as threads:
        hashes = list(threads.map(lambda draft: hashlib.sha256(piece(root, draft)), drafts))
    _need_unchanged(root, listing.files)
    blobs: dict[str, list[Piece]] = {}
    sizes: dict[str, int] = {}
    parts: dict[str, list[list[int]]] = {}
    index: dict[str, int] = {}
    for draft, digest in zip(drafts, hashes, strict=True):
        sha256, offset = digest.hexdigest(), 0
        blobs.setdefault(sha256, draft)
        at = index.setdefault(sha256, len(index))
        for path, _since, length in draft:
            parts.setdefault(path, []).append([at, offset, length])
            offset += length
        sizes[sha256] = offset
    manifest = {
        "format": FORMAT,
        "blobs": [[sha256, sizes[sha256]] for sha256 in index],
        "files": [
            {
                "path": file.path,
                "parts": parts.get(file.path, []),
                **({"executable": True} if file.executable else {}),
            }
            for file in listing.files
        ],
        "links": [{"path": path, "to": to} for path, to in listing.links],
        "folders": listing.folders,
    }
    body = json.dumps(manifest, ensure_ascii=False, separators=(",", ":")).encode()
    return Parcel(body, blobs, sizes)


def _drafts(files: Sequence[Found]) -> Iterator[list[Piece]]:
    """Cut large files into blobs, and put small ones together in the order of their paths.

    Where a pack ends is said by a path, so that a file that grows moves the ends of few others.
    """
    held: list[Piece] = []
    size = 0
    for file in files:
        if file.size >= PACKED_BELOW:
            for since in range(0, file.size, BLOB_BYTES):
                yield [(file.path, since, min(BLOB_BYTES, file.size - since))]
            continue
        if not file.size:
            continue
        if size + file.size > BLOB_BYTES:
            yield held
            held, size = [], 0
        held.append((file.path, 0, file.size))
        size += file.size
        if size >= PACK_BYTES_MIN and hashlib.sha256(file.path.encode()).digest()[0] < 8:
            yield held
            held, size = [], 0
    if held:
        yield held


def piece(root: Path, pieces: Sequence[Piece]) -> bytes:
    """Read a blob.

    Raises: FileChanged for a file that is gone or shorter by now.
    """
    read = []
    for path, since, length in pieces:
        try:
            with open(root / path, "rb", buffering=0) as file:
                data = os.pread(file.fileno(), length, since)
        except FileNotFoundError:
            raise FileChanged(path) from None
        if len(data) != length:
            raise FileChanged(path)
        read.append(data)
    return read[0] if len(read) == 1 else b"".join(read)


def piece_again(root: Path, sha256: str, pieces: Sequence[Piece]) -> bytes:
    """Read a blob for sending; it must be what it was.

    Raises: FileChanged.
    """
    data = piece(root, pieces)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise FileChanged(", ".join(path for path, _, _ in pieces[:3]))
    return data


def _need_unchanged(root: Path, files: Sequence[Found]) -> None:
    for file in files:
        try:
            now = _stamp(os.lstat(root / file.path))
        except FileNotFoundError:
            raise FileChanged(file.path) from None
        if now != file.stamp:
            raise FileChanged(file.path)


def stays_inside(path: str, to: str) -> bool:
    """Tell if a link leads nowhere out of its folder: it goes up only at its beginning."""
    names = to.split("/")
    ups = next((at for at, name in enumerate(names) if name != ".."), len(names))
    rest = {"", ".", ".."} & set(names[ups:])
    return not rest and ups < len(path.split("/")) and _CONTROL.search(to) is None


def _can_be_sent(path: str) -> bool:
    try:
        fits = len(path.encode()) <= 1_024
    except UnicodeEncodeError:
        return False
    return fits and _CONTROL.search(path) is None


def _safe(path: object) -> list[str]:
    """Return the names in a path of a manifest. Raises: FolderWrong for one that leads out."""
    names = path.split("/") if isinstance(path, str) else []
    wrong = not names or {"", ".", "..", DRAFTS} & set(names)
    if wrong or not isinstance(path, str) or not _can_be_sent(path):
        raise FolderWrong(f"a path of the folder leads out of it: {str(path)[:200]!r}")
    return names


def read_manifest(body: bytes, name: str) -> dict[str, Any]:
    """Read a manifest, and check that it is the one of this name.

    Raises: FolderWrong.
    """
    if hashlib.sha256(body).hexdigest() != name:
        raise FolderWrong("the list of its files is not what its name says")
    manifest = json.loads(body)
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise FolderWrong(f"the list of its files has a form that is not known here, not {FORMAT}")
    return manifest


def unpack(root: Path, manifest: Mapping[str, Any], fetch: Callable[[str], bytes]) -> None:
    """Write a folder: every blob is checked before any file has its name.

    fetch: returns a blob; asked by several threads, for each blob once.
    Raises: FolderWrong; what `fetch` raises.
    """
    files = [(file["path"], file) for file in manifest["files"]]
    for path, _ in files:
        _safe(path)
    drafts = root / DRAFTS
    drafts.mkdir(mode=0o700, parents=True)
    try:
        wanted = _wanted(manifest)
        with ThreadPoolExecutor(THREADS) as threads:
            blobs = list(enumerate(manifest["blobs"]))
            for _ in threads.map(lambda b: _write(drafts, fetch, b[1], wanted[b[0]]), blobs):
                pass
        for number, (path, file) in enumerate(files):
            draft = drafts / str(number)
            draft.touch(mode=0o600)  # one without parts is empty
            draft.chmod(0o755 if file.get("executable") else 0o644)
            place = _place(root, path)
            os.replace(draft, place)
    finally:
        shutil.rmtree(drafts, ignore_errors=True)
    for folder in manifest.get("folders", ()):
        _place(root, f"{folder}/x")
    for link in manifest.get("links", ()):
        if not stays_inside(link["path"], link["to"]):
            raise FolderWrong(f"a link of the folder leads out of it: {link['path'][:200]!r}")
        place = _place(root, link["path"])
        place.unlink(missing_ok=True)
        place.symlink_to(link["to"])


def _wanted(manifest: Mapping[str, Any]) -> list[list[tuple[int, int, int, int]]]:
    """Return for each blob which of its pieces go where: number of a file, and place in it."""
    wanted: list[list[tuple[int, int, int, int]]] = [[] for _ in manifest["blobs"]]
    for number, file in enumerate(manifest["files"]):
        at = 0
        for blob, offset, length in file.get("parts", ()):
            if not (0 <= blob < len(wanted) and offset >= 0 < length):
                raise FolderWrong("a file of the folder is of a part that is not there")
            wanted[blob].append((number, at, offset, length))
            at += length
    return wanted


def _write(
    drafts: Path,
    fetch: Callable[[str], bytes],
    blob: Sequence[Any],
    pieces: Sequence[tuple[int, int, int, int]],
) -> None:
    sha256, size = blob
    if _SHA256.fullmatch(str(sha256)) is None:
        raise FolderWrong("a part of the folder has no hash")
    data = fetch(sha256)
    if len(data) != size or hashlib.sha256(data).hexdigest() != sha256:
        raise FolderWrong(f"part {sha256[:12]} is not what its name says")
    held = memoryview(data)
    for number, at, offset, length in pieces:
        if offset + length > size:
            raise FolderWrong("a file of the folder goes beyond its part")
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        out = os.open(drafts / str(number), flags, 0o600)
        try:
            left = held[offset : offset + length]
            while left:
                written = os.pwrite(out, left, at)
                left, at = left[written:], at + written
        finally:
            os.close(out)


def _place(root: Path, path: str) -> Path:
    """Make the folders above a path, none of which may be a link; return the place.

    Raises: FolderWrong.
    """
    *above, name = _safe(path)
    folder = root
    for each in above:
        folder = folder / each
        if folder.is_symlink():
            raise FolderWrong(f"{folder} is a link: nothing is written through it")
        if not folder.is_dir():
            folder.mkdir()
    return folder / name
