"""A file system of a set size for what a lease writes: a loop image, made and removed with it.

All that work can write, its folder and its `/tmp`, is on it, so that no lease fills the host's
disk, and what it wrote is gone with the image.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from .users import WorkUser

IMAGE, MOUNT = "disk.img", "disk"
OWN = ("work", "tmp")
SECONDS_MAX = 30
PROBE_BYTES = 8 << 20
MIN_BYTES = 8 << 20


def make(folder: Path, size: int, user: WorkUser) -> None:
    """Put the work's own folders, which are there and empty, on a file system of `size` bytes.

    Raises: OSError.
    """
    image, mount = folder / IMAGE, folder / MOUNT
    with open(image, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        file.truncate(max(size, MIN_BYTES))
    options = "lazy_itable_init=1,nodiscard,root_owner=0:0"
    _run("mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", "-E", options, str(image))
    mount.mkdir(mode=0o711, exist_ok=True)
    _run("mount", "-o", "loop,nosuid,nodev", str(image), str(mount))
    mount.chmod(0o711)
    for name in OWN:
        inside = mount / name
        inside.mkdir(mode=0o700)
        os.chown(inside, user.uid, user.gid)
        _run("mount", "--bind", str(inside), str(folder / name))


def remove(folder: Path) -> bool:
    """Take the file system of a lease away with all that is on it; tell if nothing of it is left.

    One that a process still holds stays, and this is asked for again.
    """
    if not (folder / IMAGE).exists():
        return True
    for name in (*OWN, MOUNT):
        while os.path.ismount(folder / name):
            try:
                _run("umount", str(folder / name))
            except OSError:
                return False
    (folder / IMAGE).unlink()
    shutil.rmtree(folder / MOUNT, ignore_errors=True)
    return True


def usable(folder: Path) -> str:
    """Return why this host can give leases no file system of their own; empty: it can."""
    probe = folder / "probe"
    try:
        shutil.rmtree(probe, ignore_errors=True)
        for name in ("", *OWN):
            (probe / name).mkdir()
        make(probe, PROBE_BYTES, WorkUser("probe", os.getuid(), os.getgid()))
    except OSError as error:
        return str(error)
    finally:
        if remove(probe):
            shutil.rmtree(probe, ignore_errors=True)
    return ""


def _run(*command: str) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
        )
    except subprocess.SubprocessError as error:
        raise OSError(0, f"{command[0]}: {error}") from error
    if done.returncode:
        said = (done.stderr.strip() or "it failed").splitlines()[-1]
        raise OSError(0, f"{command[0]}: {said}")
