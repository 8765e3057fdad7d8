"""What the work of one lease left: sent beside the tick, then named, so that it is kept.

Nothing is noted on the way: what is there already is asked of the server, so that a kill at any
moment costs a look at the files and no more. What cannot be read is left out and named; it never
costs the rest.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from uuid import UUID

from .. import wire
from ..places import FOLDER
from ..uplink import BlobRefused, Refused, Unreachable
from .outputs import Changed, Found, Parcel, Piece, TooMuch, drafts, look, parcel_of, piece
from .port import FilesUplink
from .transit import OutOfTime, Patience, each

ASKED_MAX = wire.BATCH_MAX
ASKED_BYTES_MAX = 2**30
"""Links last 15 minutes: so much is asked for at a time."""
LOOKS_MAX = 3
"""How often files are looked at anew that change meanwhile; then these are left out."""
INSIST_MAX = 3
NAMED_MAX = 5
REASON_LENGTH_MAX = 500

Sent = Literal["kept", "lost", "none"]
"""What became of the outputs: kept, given up, or there were none."""


@dataclass(slots=True)
class Send:
    """Sends what the patterns meet in `folder`, the place in which the work ran."""

    lease_id: UUID
    folder: Path
    patterns: tuple[str, ...]
    exit_code: int | None
    uplink: FilesUplink
    patience: Patience
    last_word: Patience
    """For saying that it is given up, when there is no time left for anything else."""
    _told: str = ""

    def run(self) -> Sent:
        """Return what became of it.

        Raises: Stopped.
        """
        try:
            return self._run()
        except TooMuch as much:
            return self._give_up(str(much))
        except Refused as refused:
            return self._give_up(f"the market refuses it: {refused.code or refused.status}")
        except OutOfTime as late:
            return self._give_up(f"it could not be sent in time: {late}")
        except OSError as error:
            return self._give_up(f"the host could not read it: {error.strerror}")

    def _run(self) -> Sent:
        root = os.open(self.folder, FOLDER)
        try:
            unfit: set[tuple[str, ...]] = set()
            for attempt in range(1, LOOKS_MAX + 1):
                found, unmet = look(root, self.patterns)
                found.files = [file for file in found.files if file.names not in unfit]
                if found.is_empty:
                    break
                try:
                    self._send(root, self._parcel(root, found))
                    break
                except Changed as changed:
                    unfit.add(changed.names)
                    if attempt == LOOKS_MAX:
                        raise TooMuch(f"{changed} changes while it is read") from None
        finally:
            os.close(root)
        wrong = [f"nothing met {pattern}" for pattern in unmet]
        wrong += left_out(found)
        wrong += [f"{'/'.join(names)} left out: it changes" for names in unfit]
        self._tell_of(wrong)
        return "none" if found.is_empty else "kept"

    def _parcel(self, root: int, found: Found) -> Parcel:
        return parcel_of(found, self._hashed(root, drafts(found.files)))

    def _hashed(self, root: int, cut: Sequence[list[Piece]]) -> list[tuple[str, list[Piece]]]:
        """Read blobs and name each by its hash. Raises: Changed, OutOfTime, Stopped."""
        hashes: dict[int, str] = {}

        def name(item: tuple[int, list[Piece]]) -> None:
            self.patience.need()
            number, pieces = item
            hashes[number] = hashlib.sha256(piece(root, pieces)).hexdigest()

        each(name, enumerate(cut))
        return [(hashes[number], pieces) for number, pieces in enumerate(cut)]

    def _send(self, root: int, parcel: Parcel) -> None:
        """Send what is missing, then name the folder; again until nothing is missing."""

        def read(sha256: str) -> bytes:
            if sha256 == parcel.name:
                return parcel.manifest
            pieces = parcel.blobs[sha256]
            data = piece(root, pieces)
            if hashlib.sha256(data).hexdigest() != sha256:
                raise Changed(pieces[0][0])
            return data

        def put(link: wire.Link) -> None:
            self.patience.need()
            data = read(link.sha256)
            self._insist(lambda: self.uplink.send_blob(link, data))

        while True:
            self.patience.need()
            try:
                for some in _batches({**parcel.sizes, parcel.name: len(parcel.manifest)}):
                    each(put, self._missing(some))
                    self.patience.went_well()
                self._insist(lambda: self._keep(parcel))
                return
            except (Unreachable, BlobRefused) as trouble:
                self.patience.wait(str(trouble))
            except Refused as refused:
                if refused.status != 413:
                    raise
                short, mend = self._full
                self._tell(f"{short}: {mend}, and it is tried again", final=False)
                self.patience.wait(short)

    @property
    def _full(self) -> tuple[str, str]:
        """Return what is said where there is no room, and what helps."""
        return "your organisation has no room for it", "remove folders"

    def _missing(self, some: wire.OutputsAsked) -> Sequence[wire.Link]:
        return self.uplink.missing(self.lease_id, some).links

    def _keep(self, parcel: Parcel) -> None:
        sent = wire.OutputsSent(manifest=parcel.name, exit_code=self.exit_code)
        self.uplink.outputs(self.lease_id, sent)

    def _say(self, failed: wire.OutputsFailed) -> None:
        self.uplink.outputs_failed(self.lease_id, failed)

    def _insist(self, call: Callable[[], object]) -> None:
        """Call again where nobody answers; what is asked for anew from the start takes longer."""
        for _ in range(INSIST_MAX):
            try:
                call()
                return
            except Unreachable as trouble:
                self.patience.wait(str(trouble))
        call()

    def _tell_of(self, wrong: Sequence[str]) -> None:
        """Say what was left out, the first few by name."""
        if wrong:
            more = f"; {len(wrong) - NAMED_MAX} more" if len(wrong) > NAMED_MAX else ""
            self._tell("; ".join(wrong[:NAMED_MAX]) + more, final=True)

    def _give_up(self, reason: str) -> Sent:
        with suppress(OutOfTime):  # where nobody can be told, the market says that nothing came
            self._tell(reason, final=True)
        return "lost"

    def _tell(self, reason: str, *, final: bool) -> None:
        reason = reason[:REASON_LENGTH_MAX]
        if self._told == f"{final} {reason}":
            return
        while True:
            try:
                self._say(wire.OutputsFailed(reason=reason, final=final))
            except Unreachable as trouble:
                self.last_word.wait(str(trouble))
                continue
            except Refused:
                pass
            self._told = f"{final} {reason}"
            return


def left_out(found: Found) -> list[str]:
    """Return in words what lies there and does not go."""
    return [f"{path} left out: {why}" for path, why in found.left_out]


def _batches(sizes: Mapping[str, int]) -> Iterator[wire.OutputsAsked]:
    """Yield blobs, so many at a time as are asked for together, the manifest last."""
    held: list[wire.Blob] = []
    size = 0
    for sha256, length in sizes.items():
        if held and (len(held) == ASKED_MAX or size + length > ASKED_BYTES_MAX):
            yield wire.OutputsAsked(blobs=tuple(held))
            held, size = [], 0
        held.append(wire.Blob(sha256=sha256, size=length))
        size += length
    if held:
        yield wire.OutputsAsked(blobs=tuple(held))
