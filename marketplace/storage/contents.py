"""What is in a kept folder, read for a person: one file, or all of them as one archive.

Every blob is checked against its name before a byte of it goes on. Of a folder there is never more
in memory than one blob, however large its files are.
"""

from __future__ import annotations

import stat
import zipfile
from collections.abc import Iterator
from datetime import datetime
from hashlib import sha256 as sha256_of
from uuid import UUID

from ledger.domain.refusal import Refusal, Unknown
from marketplace.domain.files.manifest import File, Manifest, read_manifest
from marketplace.storage.port import BlobKey, Storage

ZIP64_FROM = 2**31 - 1


class FileUnknown(Unknown):
    """That folder has no such file."""


class ContentLost(Refusal):
    """What that folder is made of is not in storage as it was kept: lost, or changed there.

    An operator of the platform has to restore it.
    """

    status = 500


def manifest_at(storage: Storage, tenant_id: UUID, sha256: str) -> Manifest:
    """Return what is in a folder, by the name of its manifest.

    Raises: ContentLost, StorageAway.
    """
    return read_manifest(_checked(storage, tenant_id, sha256))


def file_at(manifest: Manifest, path: str) -> File:
    """Return one file of a folder. Raises: FileUnknown."""
    for each in manifest.files:
        if each.path == path:
            return each
    raise FileUnknown(path=path[:200])


def size_of(file: File) -> int:
    """Return the bytes of a file."""
    return sum(part.length for part in file.parts)


class Pieces:
    """The bytes of files of one folder. The last blob is kept: small files lie together in one."""

    def __init__(self, storage: Storage, tenant_id: UUID, manifest: Manifest) -> None:
        self._storage = storage
        self._tenant_id = tenant_id
        self._manifest = manifest
        self._held: tuple[str, bytes] = ("", b"")

    def of_file(self, file: File) -> Iterator[bytes]:
        """Yield a file, piece by piece. Raises: ContentLost, StorageAway."""
        for part in file.parts:
            blob = self._blob(self._manifest.blobs[part.blob][0])
            yield blob[part.offset : part.offset + part.length]

    def as_zip(self, at: datetime) -> Iterator[bytes]:
        """Yield all of the folder as a zip archive that is written as it is read.

        at: what the archive tells as the time of each file. Raises: ContentLost, StorageAway.
        """
        out = _Out()
        date = (max(1980, at.year), at.month, at.day, at.hour, at.minute, at.second)
        with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
            for path in self._manifest.folders:
                archive.writestr(_entry(f"{path}/", date, stat.S_IFDIR | 0o755), b"")
            for link in self._manifest.links:
                entry = _entry(link.path, date, stat.S_IFLNK | 0o777)
                archive.writestr(entry, link.to.encode())
            for file in self._manifest.files:
                entry = _entry(
                    file.path, date, stat.S_IFREG | (0o755 if file.executable else 0o644)
                )
                large = size_of(file) >= ZIP64_FROM
                with archive.open(entry, "w", force_zip64=large) as writing:
                    for piece in self.of_file(file):
                        writing.write(piece)
                        yield out.taken()
                yield out.taken()
        yield out.taken()

    def _blob(self, sha256: str) -> bytes:
        if self._held[0] != sha256:
            self._held = "", b""  # two blobs are never held
            self._held = sha256, _checked(self._storage, self._tenant_id, sha256)
        return self._held[1]


class _Out:
    """Where an archive is written to, and taken from."""

    def __init__(self) -> None:
        self._written = bytearray()

    def write(self, data: bytes, /) -> int:
        self._written += data
        return len(data)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def taken(self) -> bytes:
        """Return what was written since the last time."""
        found = bytes(self._written)
        self._written.clear()
        return found


def _entry(path: str, date: tuple[int, int, int, int, int, int], mode: int) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(path, date)
    entry.create_system = 3  # Unix: the mode means something
    entry.external_attr = mode << 16
    return entry


def _checked(storage: Storage, tenant_id: UUID, sha256: str) -> bytes:
    body = storage.read(BlobKey(tenant_id, sha256))
    if body is None or sha256_of(body).hexdigest() != sha256:
        raise ContentLost(blob=sha256)
    return body
