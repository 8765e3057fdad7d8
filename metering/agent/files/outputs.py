"""What a work leaves: which of its files its bid's patterns meet, and how they become blobs.

Patterns are as `marketplace/domain/files/outputs.py` says. The folder belongs to the work, and so
does what lies in it: nothing is read through a link, and what is no file is left out.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from ..places import FOLDER, read_at
from .manifest import (
    BLOB_BYTES_MAX,
    BLOBS_MAX,
    FILES_MAX,
    FORMAT,
    FolderWrong,
    Names,
    need_path,
    stays_inside,
)

PACKED_BELOW = 2**20
"""Smaller files lie together in a blob, up to BLOB_BYTES_MAX."""
LOOKED_MAX = 1_000_000
"""So many names are looked at: patterns over any folders meet whatever the work unpacked."""

Pattern = tuple[str, ...]
Piece = tuple[Names, int, int]
"""Of which file, from where on, how many bytes."""


class TooMuch(Exception):
    """More was left than a folder can have; the text is for the consumer."""


class Changed(Exception):
    """A file is not any more what it was, or cannot be read: `names` of it."""

    def __init__(self, names: Names) -> None:
        self.names = names
        super().__init__("/".join(names))


@dataclass(frozen=True, slots=True)
class Left:
    """A file that the work left."""

    names: Names
    size: int
    executable: bool


@dataclass(slots=True)
class Found:
    """What the patterns meet. unmet: patterns that met nothing. left_out: paths, and why."""

    files: list[Left] = field(default_factory=list)
    links: list[tuple[Names, str]] = field(default_factory=list)
    folders: list[Names] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    met: set[Pattern] = field(default_factory=set)
    looked: int = 0

    @property
    def is_empty(self) -> bool:
        return not (self.files or self.links or self.folders)


def look(root: int, patterns: Sequence[str]) -> tuple[Found, list[str]]:
    """Return what lies there that patterns meet, and the patterns that meet nothing.

    Raises: TooMuch, OSError.
    """
    found = Found()
    compiled = {tuple(each.removesuffix("/").split("/")): each for each in patterns}
    _look(root, (), [(each, each) for each in compiled], found, whole=False)
    return found, [text for pattern, text in compiled.items() if pattern not in found.met]


def _look(
    folder: int, above: Names, live: Sequence[tuple[Pattern, Pattern]], found: Found, *, whole: bool
) -> None:
    """Look into one folder. live: what is left of patterns here, and the whole of each."""
    with os.scandir(folder) as entries:
        here = sorted(entries, key=lambda entry: entry.name)
    if whole and not here and above:
        found.folders.append(above)
    for entry in here:
        found.looked += 1
        if found.looked > LOOKED_MAX or len(found.files) + len(found.links) > FILES_MAX:
            raise TooMuch(f"the work left more than {FILES_MAX} files: put them in an archive")
        names = (*above, entry.name)
        taken, further = whole, list[tuple[Pattern, Pattern]]()
        for rest, pattern in _unrolled(live):
            if rest[0] == "**":
                further.append((rest, pattern))
            elif fnmatchcase(entry.name, rest[0]):
                if len(rest) > 1:
                    further.append((rest[1:], pattern))
                else:
                    taken = True
                    found.met.add(pattern)
        if entry.is_dir(follow_symlinks=False):
            if taken or further:
                _enter(folder, names, further, found, whole=taken)
        elif taken:
            _take(folder, entry, names, found)


def _enter(
    folder: int, names: Names, live: Sequence[tuple[Pattern, Pattern]], found: Found, *, whole: bool
) -> None:
    try:
        need_path("/".join(names))
        inner = os.open(names[-1], FOLDER, dir_fd=folder)
    except (OSError, FolderWrong) as error:
        found.left_out.append((_shown(names), _why(error)))
        return
    try:
        _look(inner, names, live, found, whole=whole)
    finally:
        os.close(inner)


def _unrolled(live: Sequence[tuple[Pattern, Pattern]]) -> Iterator[tuple[Pattern, Pattern]]:
    """Yield patterns with each `**` at their beginning as some folders and as none."""
    for rest, pattern in live:
        yield rest, pattern
        while rest[0] == "**":
            # At the very end it meets all there is.
            rest = rest[1:] or ("*",)
            yield rest, pattern


def _take(folder: int, entry: os.DirEntry[str], names: Names, found: Found) -> None:
    try:
        path = "/".join(need_path("/".join(names)))
        about = os.stat(entry.name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(about.st_mode):
            to = os.readlink(entry.name, dir_fd=folder)
            if stays_inside(names, to):
                found.links.append((names, to))
            else:
                found.left_out.append((path, "a link that leads out"))
        elif stat.S_ISREG(about.st_mode):
            found.files.append(Left(names, about.st_size, bool(about.st_mode & stat.S_IXUSR)))
        else:
            found.left_out.append((path, "no file"))
    except (OSError, FolderWrong) as error:
        found.left_out.append((_shown(names), _why(error)))


def _why(error: Exception) -> str:
    return (error.strerror or "unreadable") if isinstance(error, OSError) else "its name is unfit"


def _shown(names: Names) -> str:
    return "/".join(names).encode(errors="backslashreplace").decode()


def drafts(files: Sequence[Left]) -> list[list[Piece]]:
    """Return the blobs: large files cut, small ones together in the order of their paths.

    Raises: TooMuch.
    """
    made: list[list[Piece]] = []
    held: list[Piece] = []
    size = 0
    for file in files:
        if file.size >= PACKED_BELOW:
            made += (
                [(file.names, since, min(BLOB_BYTES_MAX, file.size - since))]
                for since in range(0, file.size, BLOB_BYTES_MAX)
            )
        elif file.size:
            if size + file.size > BLOB_BYTES_MAX:
                made.append(held)
                held, size = [], 0
            held.append((file.names, 0, file.size))
            size += file.size
    made += [held] if held else []
    if len(made) > BLOBS_MAX:
        raise TooMuch("the work left more than 390 GiB")
    return made


def piece(root: int, pieces: Sequence[Piece]) -> bytes:
    """Read a blob.

    Raises: Changed.
    """
    read = []
    for names, since, length in pieces:
        try:
            data = read_at(root, names, since, length)
        except OSError:
            raise Changed(names) from None
        if len(data) != length:
            raise Changed(names)
        read.append(data)
    return read[0] if len(read) == 1 else b"".join(read)


@dataclass(slots=True)
class Parcel:
    """What is sent: the manifest, and of which pieces each blob is."""

    manifest: bytes
    blobs: dict[str, list[Piece]]
    sizes: dict[str, int]

    @property
    def name(self) -> str:
        return hashlib.sha256(self.manifest).hexdigest()


def parcel_of(found: Found, cut: Sequence[tuple[str, list[Piece]]]) -> Parcel:
    """Return a parcel. cut: each blob by its hash, in the order of `drafts`.

    Raises: TooMuch.
    """
    blobs: dict[str, list[Piece]] = {}
    sizes: dict[str, int] = {}
    index: dict[str, int] = {}
    parts: dict[Names, list[list[int]]] = {}
    for sha256, pieces in cut:
        blobs.setdefault(sha256, pieces)
        at, offset = index.setdefault(sha256, len(index)), 0
        for names, _since, length in pieces:
            parts.setdefault(names, []).append([at, offset, length])
            offset += length
        sizes[sha256] = offset
    said = {
        "format": FORMAT,
        "blobs": [[sha256, sizes[sha256]] for sha256 in index],
        "files": [
            {
                "path": "/".join(file.names),
                "parts": parts.get(file.names, []),
                **({"executable": True} if file.executable else {}),
            }
            for file in found.files
        ],
        "links": [{"path": "/".join(names), "to": to} for names, to in found.links],
        "folders": ["/".join(names) for names in found.folders],
    }
    body = json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode()
    if len(body) > BLOB_BYTES_MAX:
        raise TooMuch("the work left too many files: put them in an archive")
    return Parcel(body, blobs, sizes)
