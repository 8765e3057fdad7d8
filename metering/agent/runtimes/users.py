"""The accounts that leased work runs as: one lease, one account, while anything of it is left.

Numbers need no entry in /etc/passwd. An account comes round again when no process of it lives and
no file of it lies where everybody may write; whoever had it before is then gone without trace.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import re
import stat
import subprocess
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from .family import kill_all_of, of_user

USERS_MAX = 4096
UID_MIN = 1000
UID_MAX = 2**32 - 2
NOBODY = (65_534, 65_535)
OURS = "offpeak"
"""How the names of accounts begin that exist for leased work alone."""
SHARED_FOLDERS = tuple(map(Path, ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run/lock")))
FILES_MAX = 20_000
SWEPT_MAX = 1_000
RM = "/bin/rm"
IPC_RMID = 0
_RANGE = re.compile(r"([0-9]{1,10})-([0-9]{1,10})")


class UsersUnfit(ValueError):
    """These accounts cannot be those of leased work; the text says why."""


@dataclass(frozen=True, slots=True)
class WorkUser:
    """An account that work runs as."""

    name: str
    uid: int
    gid: int


def make_passable(folder: Path) -> None:
    """Make a folder, and those above it that are missing, that accounts of leased work can pass.

    Whatever the umask is. Raises: OSError.
    """
    missing = [each for each in folder.parents if not each.exists()]
    for each in [*reversed(missing), folder]:
        each.mkdir(exist_ok=True, mode=0o711)
        mode = stat.S_IMODE(each.stat().st_mode)
        if mode & 0o011 != 0o011:
            each.chmod(mode | 0o011)


def closed_on_the_way(folder: Path) -> Path | None:
    """Return the highest folder that lets no account through to `folder`; None: all do."""
    there = [each for each in [folder, *folder.parents] if each.exists()]
    closed = [each for each in there if not each.stat().st_mode & 0o001]
    return closed[-1] if closed else None


def read_users(text: str) -> tuple[WorkUser, ...]:
    """Return the accounts of a text such as `300000-300031` or `work-a,work-b`.

    Raises: UsersUnfit.
    """
    found: dict[int, WorkUser] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        for user in _numbered(part) if part[0].isdigit() else [named(part)]:
            if user.uid in found:
                raise UsersUnfit(f"the account {user.uid} is named twice")
            found[user.uid] = user
            if len(found) > USERS_MAX:
                raise UsersUnfit(f"more than {USERS_MAX} accounts")
    if not found:
        raise UsersUnfit("no account is named: give a range such as 300000-300031, or names")
    return tuple(found.values())


def named(name: str) -> WorkUser:
    """Return an account by its name.

    Raises: UsersUnfit.
    """
    try:
        known = pwd.getpwnam(name)
    except KeyError:
        raise UsersUnfit(f"there is no account {name!r} on this host") from None
    if known.pw_uid == 0:
        raise UsersUnfit(f"the account {name} is root, which leased work never runs as")
    return WorkUser(known.pw_name, known.pw_uid, known.pw_gid)


def _numbered(part: str) -> Iterator[WorkUser]:
    form = _RANGE.fullmatch(part if "-" in part else f"{part}-{part}")
    if form is None:
        raise UsersUnfit(f"{part!r} is no range such as 300000-300031")
    first, last = int(form[1]), int(form[2])
    if last < first or not UID_MIN <= first <= last <= UID_MAX:
        raise UsersUnfit(f"a range goes from {UID_MIN} or more upwards, not {part}")
    if last - first >= USERS_MAX:
        raise UsersUnfit(f"more than {USERS_MAX} accounts")
    for start, end, whose in _delegated():
        if first < end and start <= last:
            raise UsersUnfit(f"{part} overlaps what /etc/subuid gives to {whose}")
    for uid in range(first, last + 1):
        if uid in NOBODY:
            raise UsersUnfit(f"{uid} is the account of nobody")
        yield _unowned(uid)


def _unowned(uid: int) -> WorkUser:
    try:
        known = pwd.getpwuid(uid)
    except KeyError:
        return WorkUser(f"{OURS}-work-{uid}", uid, uid)
    if not known.pw_name.startswith(OURS):
        raise UsersUnfit(
            f"{uid} is the account of {known.pw_name}: choose numbers that nobody has, "
            "or give names"
        )
    return WorkUser(known.pw_name, uid, known.pw_gid)


def _delegated() -> Iterator[tuple[int, int, str]]:
    """Yield the numbers that user namespaces of others may use: [first, end), whose."""
    try:
        lines = Path("/etc/subuid").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        whose, _, rest = line.partition(":")
        first, _, count = rest.partition(":")
        if first.isdigit() and count.isdigit():
            yield int(first), int(first) + int(count), whose


class WorkUsers:
    """Hands out accounts in turn.

    alone: nobody else has these accounts, so every process of one is its lease's.
    """

    def __init__(self, users: Collection[WorkUser], *, alone: bool = True) -> None:
        self._users = tuple(users)
        self._next = 0
        self.alone = alone

    @property
    def first(self) -> WorkUser:
        return self._users[0]

    @property
    def uids(self) -> list[int]:
        return [user.uid for user in self._users]

    def __len__(self) -> int:
        return len(self._users)

    def free(self, held: Collection[int]) -> WorkUser | None:
        """Return the next account that is not `held` and of which nothing is left; None: none.

        An account that others have as well is one for all leases.
        """
        if not self.alone:
            return self.first
        for step in range(len(self._users)):
            user = self._users[(self._next + step) % len(self._users)]
            if user.uid in held or not is_clear(user.uid):
                continue
            self._next = (self._next + step + 1) % len(self._users)
            return user
        return None

    def end_unowned(self, held: Collection[int]) -> None:
        """Kill what runs as an account that no lease holds: its keeper was killed."""
        for user in self._users if self.alone else ():
            if user.uid not in held and of_user(user.uid):
                sweep(user.uid)


def sweep(uid: int) -> None:
    """End all processes of an account, and remove what it left where everybody may write."""
    kill_all_of(uid)
    if paths := [str(path) for path in _left(uid)]:
        # As the account itself: what it may remove is its own, wherever a swapped path leads.
        subprocess.run(
            [RM, "-rf", "--one-file-system", "--", *paths[:SWEPT_MAX]],
            user=uid,
            group=uid,
            extra_groups=[],
            stderr=subprocess.DEVNULL,
            check=False,
        )
    for kind, number in _ipc_of(uid):
        _remove_ipc(kind, number)


def is_clear(uid: int) -> bool:
    """Return whether no process of an account lives, and none of its files lies about."""
    return not of_user(uid) and next(_left(uid), None) is None and not _ipc_of(uid)


def _left(uid: int) -> Iterator[Path]:
    """Yield what an account owns in the folders where everybody may write, outermost first."""
    looked = 0
    for root in SHARED_FOLDERS:
        for folder, inner, files in os.walk(root):
            for name in [*inner, *files]:
                looked += 1
                path = Path(folder, name)
                if _owner(path) == uid:
                    yield path
            if looked > FILES_MAX:
                return
            # Further in only where everybody may write, or /tmp would be walked for each lease.
            inner[:] = [name for name in inner if _is_open(Path(folder, name))]


def _owner(path: Path) -> int | None:
    try:
        return path.lstat().st_uid
    except OSError:
        return None


def _is_open(path: Path) -> bool:
    try:
        return bool(path.lstat().st_mode & stat.S_IWOTH)
    except OSError:
        return False


def _ipc_of(uid: int) -> list[tuple[str, int]]:
    """Return the System V memory, semaphores and queues of an account: kind and number."""
    found = []
    for kind in ("shm", "sem", "msg"):
        try:
            title, *lines = Path("/proc/sysvipc", kind).read_text().splitlines()
        except OSError:
            continue
        place = title.split().index("uid")
        rows = [line.split() for line in lines]
        found += [(kind, int(row[1])) for row in rows if int(row[place]) == uid]
    return found


def _remove_ipc(kind: str, number: int) -> None:
    libc = ctypes.CDLL(None)
    if kind == "sem":
        libc.semctl(number, 0, IPC_RMID)
    else:
        getattr(libc, f"{kind}ctl")(number, IPC_RMID, None)
