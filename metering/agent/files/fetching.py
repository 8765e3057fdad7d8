"""The inputs of one lease: fetched beside the tick, part by part, into a folder of the agent's.

The folder holds `manifest`, `parts` (the files as far as they have come, by number), `done` (the
blobs that are in them) and, when everything is there, `files`. A part is noted as done after its
bytes are written, so a kill loses at most what was on its way. A power cut may lose what was
written and keep the note: notes of another boot are not believed.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from .. import wire
from ..clock import kernel_boot_id
from ..places import FOLDER, folder_at
from ..uplink import BlobRefused, Refused, Unreachable
from .manifest import BLOB_BYTES_MAX, FolderWrong, Manifest, read_manifest
from .port import FilesUplink
from .transit import Patience, each

LINKS_MAX = 128
"""Links last 15 minutes: so many are asked for at a time, a GiB of blobs."""
WRONG_MAX = 3
"""A part that is not what its name says is asked for again so often."""
SPARE_BYTES = 64 * 2**20
"""What must stay free on the host's disk beside the inputs."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

Place = tuple[int, int, int, int]
"""Of a blob's bytes: number of a file, place in it, offset in the blob, length."""


class FetchFailed(Exception):
    """The inputs cannot be had; the text is for the consumer."""


@dataclass(slots=True)
class Fetch:
    """Fetches the inputs of one lease into `folder`; `run` may be begun again after any cut."""

    lease_id: UUID
    folder: Path
    uplink: FilesUplink
    patience: Patience
    _links: dict[str, wire.Link] = field(default_factory=dict)
    _alone: threading.Lock = field(default_factory=threading.Lock)

    @property
    def what(self) -> str:
        """Return what is fetched, as the consumer knows it."""
        return "its inputs"

    def run(self) -> Path:
        """Return the folder with all files of the inputs.

        Raises: FetchFailed, OutOfTime, Stopped.
        """
        files = self.folder / "files"
        if files.is_dir():
            return files
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            manifest = self._manifest()
            self._take(manifest)
            _lay_out(self.folder, manifest)
        except FolderWrong as wrong:
            raise FetchFailed(f"{self.what} cannot be used: {wrong}") from wrong
        except OSError as error:
            if error.errno in FULL:
                raise FetchFailed(f"{self.what} find no room: the host's disk is full") from error
            text = f"{self.what} could not be written: {error.strerror}"
            raise FetchFailed(text) from error
        return files

    def _asked(self, blobs: tuple[str, ...]) -> tuple[str, Sequence[wire.Link]]:
        """Ask where blobs are read; none: which manifest it is, and where that is."""
        answer = self.uplink.inputs(self.lease_id, wire.InputsAsked(blobs=blobs))
        return answer.manifest, answer.links

    def _refused(self, refused: Refused) -> FetchFailed:
        return FetchFailed(f"{self.what} are refused: {refused.code or refused}")

    def _manifest(self) -> Manifest:
        return self._manifest_of(self._named())

    def _named(self) -> str:
        """Return the name of the manifest, once the server says it."""
        while True:
            self.patience.need()
            try:
                name, links = self._asked(())
            except Unreachable as trouble:
                self.patience.wait(str(trouble))
            except Refused as refused:
                raise self._refused(refused) from refused
            else:
                self._know(links)
                return name

    def _manifest_of(self, name: str) -> Manifest:
        kept = self.folder / "manifest"
        if not kept.exists() or hashlib.sha256(kept.read_bytes()).hexdigest() != name:
            body = self._blob(name, BLOB_BYTES_MAX)
            self._begin_anew()
            kept.write_bytes(body)
        return read_manifest(kept.read_bytes(), name)

    def _begin_anew(self) -> None:
        """Drop what came so far: it is of another folder."""
        shutil.rmtree(self.folder / "parts", ignore_errors=True)
        (self.folder / "done").unlink(missing_ok=True)

    def _take(self, manifest: Manifest) -> None:
        """Bring all blobs that are not there yet."""
        parts = self.folder / "parts"
        done = self._done()
        if not done:
            shutil.rmtree(parts, ignore_errors=True)
        parts.mkdir(mode=0o700, exist_ok=True)
        left = [(number, blob) for number, blob in enumerate(manifest.blobs) if blob[0] not in done]
        room = shutil.disk_usage(self.folder).free - SPARE_BYTES
        need = sum(size for _, (_, size) in left)
        if need > room:
            raise FetchFailed(
                f"{self.what} find no room: {need} bytes to come, {max(0, room)} free on the host"
            )
        places = _places(manifest)
        order = [sha256 for _, (sha256, _) in left]
        turn = {sha256: at for at, sha256 in enumerate(order)}
        with open(self.folder / "done", "a", buffering=1) as notes:
            if not done:
                notes.write(f"{kernel_boot_id()}\n")

            def take(item: tuple[int, tuple[str, int]]) -> None:
                number, (sha256, size) = item
                self.patience.need()
                data = self._blob(sha256, size, order[turn[sha256] :][:LINKS_MAX], whole=True)
                for place in places[number]:
                    _write(parts, place, data)
                with self._alone:
                    notes.write(f"{sha256}\n")

            each(take, left)

    def _done(self) -> set[str]:
        """Return the blobs that an earlier try of this boot of the host has written."""
        try:
            boot, *done = (self.folder / "done").read_text().splitlines()
        except (FileNotFoundError, ValueError):
            return set()
        if boot != kernel_boot_id():
            (self.folder / "done").unlink()
            return set()
        return set(done)

    def _blob(
        self, sha256: str, size: int, ahead: Sequence[str] = (), *, whole: bool = False
    ) -> bytes:
        """Return a blob that is what its name says. ahead: what will be asked for, with it first.

        whole: it has so many bytes, and not only at most.
        """
        wrong = absent = 0
        while True:
            try:
                link = self._link(sha256, ahead)
                data = self.uplink.read_blob(link, size)
            except Unreachable as trouble:
                self.patience.wait(str(trouble))
                continue
            except Refused as refused:
                raise self._refused(refused) from refused
            except BlobRefused as refused:
                with self._alone:
                    self._links.pop(sha256, None)  # its time may be over
                absent += refused.status == 404
                if absent >= WRONG_MAX:
                    text = f"part {sha256[:12]} is not in storage any more"
                    raise FetchFailed(f"{self.what} are lost: {text}") from refused
                self.patience.wait(str(refused))
                continue
            fits = len(data) == size if whole else len(data) <= size
            if fits and hashlib.sha256(data).hexdigest() == sha256:
                self.patience.went_well()
                return data
            wrong += 1
            if wrong >= WRONG_MAX:
                raise FetchFailed(
                    f"{self.what} are damaged: part {sha256[:12]} is not what its name says"
                )
            self.patience.wait("a part came damaged")

    def _link(self, sha256: str, ahead: Sequence[str]) -> wire.Link:
        with self._alone:
            if sha256 not in self._links:
                self._know(self._asked(tuple(ahead) or (sha256,))[1])
            if sha256 not in self._links:
                raise Unreachable("the server gave no link")
            return self._links[sha256]

    def _know(self, links: Sequence[wire.Link]) -> None:
        self._links |= {link.sha256: link for link in links}


def _places(manifest: Manifest) -> list[list[Place]]:
    """Return for each blob which of its bytes go where."""
    places: list[list[Place]] = [[] for _ in manifest.blobs]
    for number, file in enumerate(manifest.files):
        at = 0
        for blob, offset, length in file.parts:
            places[blob].append((number, at, offset, length))
            at += length
    return places


def _write(parts: Path, place: Place, data: bytes) -> None:
    number, at, offset, length = place
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    out = os.open(parts / str(number), flags, 0o600)
    try:
        left = memoryview(data)[offset : offset + length]
        while left:
            written = os.pwrite(out, left, at)
            left, at = left[written:], at + written
    finally:
        os.close(out)


def _lay_out(folder: Path, manifest: Manifest) -> None:
    """Give every file its place, links last, and the whole its name when all of it is there."""
    laid = folder / "laid"
    parts = folder / "parts"
    laid.mkdir(mode=0o700, exist_ok=True)
    root = os.open(laid, FOLDER)
    source = os.open(parts, FOLDER)
    try:
        for number, file in enumerate(manifest.files):
            with folder_at(root, file.names[:-1], make=True) as inner:
                _move(source, str(number), inner, file.names[-1], file.executable, bool(file.parts))
        for names in manifest.folders:
            with folder_at(root, names, make=True):
                pass
        for names, to in manifest.links:
            # One of a try before this may be there.
            with folder_at(root, names[:-1], make=True) as inner, suppress(FileExistsError):
                os.symlink(to, names[-1], dir_fd=inner)
    finally:
        os.close(source)
        os.close(root)
    os.replace(laid, folder / "files")
    shutil.rmtree(parts, ignore_errors=True)


def _move(
    source: int, number: str, folder: int, name: str, executable: bool, has_parts: bool
) -> None:
    """Move a file that came to its place; one that a try before this one moved is there."""
    mode = 0o755 if executable else 0o644
    try:
        if not has_parts:
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            os.close(os.open(number, flags, 0o600, dir_fd=source))
        os.chmod(number, mode, dir_fd=source)
        os.rename(number, name, src_dir_fd=source, dst_dir_fd=folder)
    except FileNotFoundError:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
