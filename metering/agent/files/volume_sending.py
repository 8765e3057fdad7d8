"""What the work of one lease made of a volume: sent beside the tick, as the volume's next version.

At its end, and while it runs where it says that it saved itself (`checkpoint_versions`). As with
outputs nothing is noted on the way. A version is whole or there is none: a file that
changes while it is read, or a folder that is gone, leaves the volume as it is, and that is said.
What did not change is not sent, also where small files lie packed together. Where nothing changed
the version that is there is named again: so the volume is free for others at once.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .. import wire
from ..places import FOLDER, folder_at
from ..uplink import Refused, Unreachable
from .manifest import FolderWrong, Manifest, Names, need_path, read_manifest
from .outputs import PACKED_BELOW, Changed, Found, Parcel, Piece, TooMuch, drafts, look, parcel_of
from .outputs import piece as read_piece
from .port import VolumesUplink
from .sending import LOOKS_MAX, Send, Sent, left_out
from .transit import OutOfTime
from .volume_fetching import EMPTY, Base, base_of, go_on_from

EVERYTHING = ("**",)
BEING_SAVED = ".offpeak-saving-"
"""What the name of a folder begins with in which the work's checkpoint is not whole yet."""
UNKNOWN_BASE = "the host lost track of which version its work found"


@dataclass(slots=True)
class SendVolume(Send):
    """Sends what lies at `path` below `folder`, the place in which the work ran.

    fetched: the folder of the agent's into which the volume came. last: the work is over, and
    this is the last version that it makes. quiet: nobody is told of what is not kept. read_ms: for
    how long all its files were looked at and read so far; what is sent of them is read once more.
    """

    uplink: VolumesUplink
    name: str = ""
    path: str = ""
    fetched: Path = Path()
    last: bool = True
    quiet: bool = False
    read_ms: int = 0
    _base: Base | None = None

    def _run(self) -> Sent:
        self._base = base_of(self.fetched)
        if self._base is None:
            return self._give_up(UNKNOWN_BASE)
        root = os.open(self.folder, FOLDER)
        try:
            try:
                names = need_path(self.path)
                with folder_at(root, names) as inner:
                    return self._send_folder(inner)
            except (FileNotFoundError, NotADirectoryError, FolderWrong):
                return self._give_up(f"the work left no folder at {self.path}")
        finally:
            os.close(root)

    def _send_folder(self, root: int) -> Sent:
        for attempt in range(1, LOOKS_MAX + 1):
            try:
                found, parcel = self._read(root)
                if self._is_unchanged(parcel):
                    self._send_nothing()
                else:
                    self._send(root, parcel)
                break
            except Changed as changed:
                if attempt == LOOKS_MAX:
                    raise TooMuch(f"{changed} changes while it is read") from None
        self._tell_of(left_out(found))
        return "kept"

    def _read(self, root: int) -> tuple[Found, Parcel]:
        """Look at all files and name them by their hashes. Raises: Changed, OutOfTime, Stopped."""
        began = time.monotonic()
        try:
            found = _whole(look(root, EVERYTHING)[0])
            return found, self._parcel(root, found)
        finally:
            self.read_ms += round(1_000 * (time.monotonic() - began))

    def _send_nothing(self) -> None:
        """Name the version that is there, so that the server knows that no other comes."""
        assert self._base is not None
        while True:
            self.patience.need()
            try:
                self._name(self._base.name)
                return
            except Unreachable as trouble:
                self.patience.wait(str(trouble))

    def _parcel(self, root: int, found: Found) -> Parcel:
        packs = self._packs(root, found)
        inside = {names for _, pieces in packs for names, _, _ in pieces}
        rest = [file for file in found.files if file.names not in inside]
        return parcel_of(found, [*packs, *self._hashed(root, drafts(rest))])

    def _packs(self, root: int, found: Found) -> list[tuple[str, list[Piece]]]:
        """Return the packs of small files, of the version before, that are what they were."""
        before = None if self._base is None else self._base.manifest
        if before is None:
            return []
        sizes = {file.names: file.size for file in found.files}
        kept = []
        for number, pieces in enumerate(_packed(before)):
            self.patience.need()
            if not pieces or any(sizes.get(names) != length for names, _, length in pieces):
                continue
            sha256, _size = before.blobs[number]
            if hashlib.sha256(read_piece(root, pieces)).hexdigest() == sha256:
                kept.append((sha256, pieces))
        return kept

    def _is_unchanged(self, parcel: Parcel) -> bool:
        base = self._base
        if base is None or base.manifest is None or base.name == EMPTY:
            return False
        now = read_manifest(parcel.manifest, parcel.name)
        return _content(base.manifest) == _content(now)

    @property
    def _full(self) -> tuple[str, str]:
        return f"volume {self.name} has no room for it", "make it larger"

    def _missing(self, some: wire.OutputsAsked) -> Sequence[wire.Link]:
        return self.uplink.volume_missing(self.lease_id, self.name, some).links

    def _keep(self, parcel: Parcel) -> None:
        version = self._name(parcel.name)
        if not self.last:
            go_on_from(self.fetched, version, parcel.name, parcel.manifest)

    def _name(self, manifest: str) -> int:
        assert self._base is not None
        sent = wire.VolumeSent(base=self._base.version, manifest=manifest, final=self.last)
        return self.uplink.volume_sent(self.lease_id, self.name, sent).version

    def _tell(self, reason: str, *, final: bool) -> None:
        if not self.quiet:
            Send._tell(self, reason, final=final and self.last)

    def _say(self, failed: wire.OutputsFailed) -> None:
        self.uplink.volume_failed(self.lease_id, self.name, failed)

    def _give_up(self, reason: str) -> Sent:
        stays = "" if self._base is None else f"; it stays at version {self._base.version}"
        with suppress(OutOfTime, Refused):  # where nobody can be told, nothing new is there to see
            self._tell(f"what the work changed is not kept: {reason}{stays}", final=True)
        return "lost"


def _whole(found: Found) -> Found:
    """Leave out what the work was saving at that moment."""

    def is_whole(names: Names) -> bool:
        return not any(name.startswith(BEING_SAVED) for name in names)

    found.files = [file for file in found.files if is_whole(file.names)]
    found.links = [link for link in found.links if is_whole(link[0])]
    found.folders = [names for names in found.folders if is_whole(names)]
    return found


def _packed(manifest: Manifest) -> list[list[Piece]]:
    """Return for each blob the small files that lie in it, whole, one after the other.

    Empty where it is no such pack: large files are cut alike each time, and compared so.
    """
    lying: list[dict[int, Piece]] = [{} for _ in manifest.blobs]
    for file in manifest.files:
        if len(file.parts) == 1 and file.parts[0][2] < PACKED_BELOW:
            blob, offset, length = file.parts[0]
            lying[blob].setdefault(offset, (file.names, 0, length))
    packs = []
    for (_, size), pieces in zip(manifest.blobs, lying, strict=True):
        at = 0
        while at in pieces:
            at += pieces[at][2]
        packs.append([pieces[each] for each in sorted(pieces)] if at == size else [])
    return packs


def _content(manifest: Manifest) -> tuple[object, ...]:
    """Return what a folder is, whatever the order of its lists."""

    def parts(file_parts: Sequence[tuple[int, int, int]]) -> tuple[tuple[str, int, int], ...]:
        return tuple((manifest.blobs[blob][0], since, size) for blob, since, size in file_parts)

    files: dict[Names, object] = {
        file.names: (parts(file.parts), file.executable) for file in manifest.files
    }
    return files, dict(manifest.links), set(manifest.folders)
