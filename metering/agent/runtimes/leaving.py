"""What a lease leaves on the host, erased beside the tick: a folder may be huge, a disk busy."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from . import disks, groups
from .beside import Beside
from .inside import Tops
from .keeper import Deadline
from .launching import Launch
from .port import Work
from .records import bytes_in, is_locked, keep_newest
from .users import sweep

ENDED_KEPT_MAX = 100


@dataclass(frozen=True, slots=True)
class Left:
    """What is known of a lease whose files go. begun: it had work, whose output is kept.

    told: how much went with it is asked for. lost: its keeper may have left more behind.
    """

    begun: bool = True
    told: bool = False
    lost: bool = False


class StillHeld(OSError):
    """Somebody looks into a lease's folder still, or a file of it cannot be removed."""


class Leavings:
    """Erases what leases left. ended: where the newest few outputs are kept for the operator."""

    def __init__(self, ended: Path) -> None:
        self._ended = ended
        self._sizes: dict[UUID, int] = {}
        self._errands: Beside[int] = Beside("leavings")

    def erase(self, lease_id: UUID, folder: Path, uid: int | None, *, begun: bool) -> int | None:
        """Return the bytes that were erased; None: it is not done yet, ask again.

        uid: the account that only this lease had. begun: it had work, whose output is kept.
        """
        try:
            erased = self._errands.ask(
                lease_id, lambda _: self._erase(lease_id, folder, uid, begun=begun)
            )
        except OSError:
            return None
        if erased is not None:
            self._sizes.pop(lease_id, None)
        return erased

    def _erase(self, lease_id: UUID, folder: Path, uid: int | None, *, begun: bool) -> int:
        if uid is not None:
            sweep(uid)
        groups.remove(groups.all_of(folder.name))
        own = folder / "work", folder / "tmp"
        size = self._sizes.setdefault(lease_id, bytes_in(*own))
        if not disks.remove(folder):
            raise StillHeld(0, f"{folder} is in use")
        if not folder.exists():
            return size
        for each in own if begun else [folder]:
            shutil.rmtree(each, ignore_errors=True)
            if each.exists():
                # Its account is not handed out while a file of it lives.
                raise StillHeld(0, f"{each} cannot be removed")
        if begun:
            target = self._ended / folder.name
            shutil.rmtree(target, ignore_errors=True)
            os.replace(folder, target)
            keep_newest(self._ended, ENDED_KEPT_MAX)
        return size


class Leaves:
    """The part of a runtime of processes by which what leases left is put away."""

    _works: dict[UUID, Work]
    _roots: dict[UUID, dict[str, int]]
    _launches: dict[UUID, Launch]
    _preparing: Beside[int]
    _leaving: dict[UUID, Left]
    _leavings: Leavings
    _wiped: dict[UUID, int]
    _uids: dict[UUID, int]
    _ids: dict[UUID, tuple[int, str]]
    _told: dict[UUID, Deadline]
    _folders: dict[UUID, Path]
    _kept_tops: Tops | None

    def _folder_of(self, lease_id: UUID) -> Path:
        raise NotImplementedError

    def _own_uid(self, lease_id: UUID) -> int | None:
        raise NotImplementedError

    def _reap(self, lease_id: UUID, flags: int = os.WNOHANG) -> None:
        raise NotImplementedError

    def _sweep(self, *, but: UUID | None = None) -> None:
        raise NotImplementedError

    def wiped(self, lease_id: UUID) -> int | None:
        """Return, once, the bytes of files that were removed with a lease; None: not yet."""
        return self._wiped.pop(lease_id, None)

    def _leave(self, lease_id: UUID, left: Left) -> None:
        """Have what is left of a lease put away, now or when it lets itself be."""
        self._leaving.setdefault(lease_id, left)
        for known in (self._works, self._roots, self._launches):
            known.pop(lease_id, None)
        self._kept_tops = None
        self._put_away(lease_id)

    def _put_away(self, lease_id: UUID) -> None:
        """Erase the tenant's files, keep the newest few outputs for the operator."""
        folder, left = self._folder_of(lease_id), self._leaving[lease_id]
        if lease_id in self._preparing:
            if self._preparing.runs(lease_id):
                return
            with suppress(OSError):
                if (lock := self._preparing.ask(lease_id, Launch.nothing)) is not None:
                    os.close(lock)
        if lease_id in self._ids and is_locked(folder / "keeper.lock"):
            return  # podman still tidies up after it, which is not waited for
        uid = self._own_uid(lease_id)
        wiped = self._leavings.erase(lease_id, folder, uid, begun=left.begun)
        if wiped is None:
            return  # asked for again at the next tick
        if left.told:
            self._wiped[lease_id] = wiped
        for known in (self._leaving, self._uids, self._ids, self._told, self._folders):
            known.pop(lease_id, None)
        self._reap(lease_id, flags=0)
        if left.lost:
            self._sweep()
