"""The manifest of a folder: which files it has, and of which blobs they are made.

A blob is up to BLOB_BYTES_MAX bytes that are named by their sha256. A large file is cut into
blobs; small ones lie together in one, a pack. A manifest is JSON and is itself kept as a blob, so
that its own sha256 names the folder with everything in it:

    {"format": "offpeak-folder-1",
     "blobs": [["<sha256>", <bytes>], …],
     "files": [{"path": "src/train.py", "parts": [[<index of a blob>, <offset>, <length>], …],
                "executable": true}, …],
     "links": [{"path": "latest", "to": "runs/7"}], "folders": ["empty"]}

Whoever reads one has it from somebody else: nothing in it may lead out of the folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ledger.domain.refusal import Invalid

FORMAT = "offpeak-folder-1"
BLOB_BYTES_MAX = 8 * 2**20
MANIFEST_BYTES_MAX = BLOB_BYTES_MAX
"""It is a blob, and read as a whole."""
FILES_MAX = 50_000
BLOBS_MAX = 50_000
"""A folder of 390 GiB."""
PATH_BYTES_MAX = 1_024
NAME_BYTES_MAX = 255
DEPTH_MAX = 64

_SHA256 = re.compile(r"[0-9a-f]{64}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\\]")


class ManifestUnreadable(Invalid):
    """That is no manifest of a folder.

    `detail` says what is wrong with it. `offpeak files up` makes one that is right.
    """


class PathUnsafe(Invalid):
    """A path of the manifest would lead out of its folder, or cannot be made on every host.

    Paths are relative, with `/` between names, without `.`, `..`, backslashes and control
    characters.
    """


class LinkUnsafe(Invalid):
    """A link of the manifest would lead out of its folder.

    Links are relative, and go up only at their beginning.
    """


class FolderTooLarge(Invalid):
    """A folder has at most 50 000 files and links.

    Put small files together in an archive before you bring them.
    """


class Part(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A piece of a file: `length` bytes from `offset` on of the blob at this index."""

    blob: int
    offset: int
    length: int


class File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file: its parts, one after the other. Without parts it is empty."""

    path: str
    parts: tuple[Part, ...] = ()
    executable: bool = False


class Link(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A symbolic link to another place of the folder."""

    path: str
    to: str


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A folder. blobs: sha256 and bytes of each. folders: those that nothing lies in."""

    format: str
    blobs: tuple[tuple[str, int], ...] = ()
    files: tuple[File, ...] = ()
    links: tuple[Link, ...] = ()
    folders: tuple[str, ...] = ()

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all its files; a piece that two of them share counts twice."""
        return sum(part.length for file in self.files for part in file.parts)

    @property
    def entries(self) -> int:
        """Return how many files and links it has."""
        return len(self.files) + len(self.links)


def read_manifest(body: bytes) -> Manifest:
    """Read and check a manifest, so that whoever unpacks it may do as it says.

    Raises: ManifestUnreadable, PathUnsafe, LinkUnsafe, FolderTooLarge.
    """
    if len(body) > MANIFEST_BYTES_MAX:
        raise FolderTooLarge(bytes=len(body), bytes_max=MANIFEST_BYTES_MAX)
    try:
        manifest = msgspec.json.decode(body, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
        raise ManifestUnreadable(detail=str(wrong)[:200]) from None
    if manifest.format != FORMAT:
        raise ManifestUnreadable(detail=f"its format is not {FORMAT}")
    if manifest.entries + len(manifest.folders) > FILES_MAX:
        raise FolderTooLarge(files=manifest.entries, files_max=FILES_MAX)
    if len(manifest.blobs) > BLOBS_MAX:
        raise FolderTooLarge(blobs=len(manifest.blobs), blobs_max=BLOBS_MAX)
    need_blobs(manifest.blobs)
    _need_parts(manifest)
    _need_places(manifest)
    return manifest


def need_blobs(blobs: Iterable[tuple[str, int]]) -> None:
    """Refuse what names no blob.

    Raises: ManifestUnreadable.
    """
    seen = set[str]()
    for sha256, size in blobs:
        if _SHA256.fullmatch(sha256) is None:
            raise ManifestUnreadable(detail=f"{sha256[:80]!r} is no sha256 in small hex digits")
        if not 0 < size <= BLOB_BYTES_MAX:
            raise ManifestUnreadable(detail=f"a blob has 1 to {BLOB_BYTES_MAX} bytes, not {size}")
        if sha256 in seen:
            raise ManifestUnreadable(detail=f"blob {sha256} is named twice")
        seen.add(sha256)


def need_path(path: str) -> list[str]:
    """Return the names in a path that stays inside its folder.

    Raises: PathUnsafe.
    """
    names = path.split("/")
    try:
        encoded = path.encode()
    except UnicodeEncodeError:
        raise PathUnsafe(path=repr(path)[:200]) from None
    fits = (
        _CONTROL.search(path) is None
        and len(encoded) <= PATH_BYTES_MAX
        and len(names) <= DEPTH_MAX
        and not {"", ".", ".."} & set(names)
        and all(len(name.encode()) <= NAME_BYTES_MAX for name in names)
    )
    if not fits:
        raise PathUnsafe(path=repr(path)[:200])
    return names


def need_link(path: Sequence[str], to: str) -> None:
    """Refuse a link that leads out of the folder, by itself or through other links.

    It goes up only at its beginning: there it passes through folders, since nothing lies below a
    link. After a name, `..` may go up from wherever another link leads to.

    Raises: LinkUnsafe.
    """
    names = to.split("/")
    ups = next((at for at, name in enumerate(names) if name != ".."), len(names))
    rest = names[ups:]
    fits = (
        _CONTROL.search(to) is None
        and len(to) <= PATH_BYTES_MAX
        and ups < len(path)
        and not {"", ".", ".."} & set(rest)
    )
    if not fits:
        raise LinkUnsafe(path="/".join(path)[:200], to=repr(to)[:200])


def _need_parts(manifest: Manifest) -> None:
    """Refuse pieces that no blob has, and blobs that no file is made of."""
    used = set[int]()
    for file in manifest.files:
        for part in file.parts:
            if not 0 <= part.blob < len(manifest.blobs):
                raise ManifestUnreadable(
                    detail=f"{file.path[:200]!r} is of a blob that is not named"
                )
            size = manifest.blobs[part.blob][1]
            if not (part.offset >= 0 < part.length and part.offset + part.length <= size):
                raise ManifestUnreadable(detail=f"{file.path[:200]!r} goes beyond its blob")
            used.add(part.blob)
    if len(used) < len(manifest.blobs):
        raise ManifestUnreadable(detail="it names a blob that no file is made of")


def _need_places(manifest: Manifest) -> None:
    """Refuse two things in one place, and anything below what is no folder."""
    kinds: dict[str, str] = {}

    def place(path: str, kind: str) -> list[str]:
        names = need_path(path)
        if kinds.get(path, kind) != kind or (path in kinds and kind != "folder"):
            raise ManifestUnreadable(detail=f"{path[:200]!r} is there twice")
        kinds[path] = kind
        return names

    for file in manifest.files:
        place(file.path, "file")
    for link in manifest.links:
        need_link(place(link.path, "link"), link.to)
    for folder in manifest.folders:
        place(folder, "folder")
    for path in list(kinds):
        _need_folders_above(path, kinds)


def _need_folders_above(path: str, kinds: Mapping[str, str]) -> None:
    above = path
    while "/" in above:
        above = above.rpartition("/")[0]
        if kinds.get(above, "folder") != "folder":
            raise ManifestUnreadable(detail=f"{above[:200]!r} is no folder, and has things in it")
