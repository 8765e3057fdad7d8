"""What images take of the disk together: those that were not used for longest go first.

Which image was used when is written down beside them, since podman does not know. An image of a
container, whether that runs or not, stays, and so does one that was handed out a moment ago.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from .keeper import write_json
from .podman import Podman
from .records import read

FREE_BYTES_MIN = 2 << 30
"""Left on the disk of the images, whatever is fetched."""
ALL_BYTES_MAX = 256 << 30
HANDED_SECONDS = 600.0
"""So long after it was asked for, an image may still be about to have a container."""
USED = "images-used.json"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Lying:
    """An image on the disk. size: in bytes, with layers that others have as well."""

    image_id: str
    size: int


class Shelf:
    """The images of one agent, below `bytes_max` together as far as they are not in use."""

    def __init__(self, podman: Podman, bytes_max: int = ALL_BYTES_MAX) -> None:
        self._podman = podman
        self._bytes_max = bytes_max
        self._lock = threading.Lock()

    def use(self, image_id: str) -> None:
        """Note that an image is used now; where that cannot be written, it is only older."""
        try:
            with self._lock:
                write_json(self._file, self._used() | {image_id: time.time()})
        except OSError as error:
            log.warning("the use of image %s is not noted: %s", image_id[:12], error)

    def tidy(self) -> list[str]:
        """Remove images until the rest is small enough, and the disk has room; return which.

        What fails is said and tried again the next time: no lease waits for it.
        """
        try:
            return self._tidied()
        except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
            log.warning("images are not tidied: %s", error)
            return []

    def _tidied(self) -> list[str]:
        with self._lock:
            lying, used = self._lying(), self._used()
            total = sum(each.size for each in lying)
            recent = time.time() - HANDED_SECONDS
            removed: list[str] = []
            kept: set[str] | None = None
            for each in sorted(lying, key=lambda image: used.get(image.image_id, 0.0)):
                if total <= self._bytes_max and not self.is_full():
                    break
                kept = self._in_containers() if kept is None else kept
                if each.image_id in kept or used.get(each.image_id, 0.0) > recent:
                    continue
                if self._remove(each.image_id):
                    log.info("removed image %s, %d MiB", each.image_id[:12], each.size >> 20)
                    removed.append(each.image_id)
                    total -= each.size
            there = {each.image_id for each in lying} - set(removed)
            if used.keys() - there:
                write_json(self._file, {name: at for name, at in used.items() if name in there})
            return removed

    def is_full(self) -> bool:
        """Tell if the disk has no room for more."""
        space = os.statvfs(self._podman.folder)
        return space.f_bavail * space.f_frsize < FREE_BYTES_MIN

    @property
    def _file(self) -> Path:
        return self._podman.folder / USED

    def _used(self) -> dict[str, float]:
        """Return when each image was used last, in seconds of the wall clock."""
        return {name: float(at) for name, at in read(self._file).items()}

    def _lying(self) -> list[Lying]:
        found = json.loads(self._said("images", "--no-trunc", "--format", "json") or "[]") or []
        sizes = {each["Id"].removeprefix("sha256:"): int(each["Size"]) for each in found}
        return [Lying(name, size) for name, size in sizes.items()]

    def _in_containers(self) -> set[str]:
        """Return the images of containers, also of those that ended and are not put away yet."""
        return set(self._said("ps", "--all", "--no-trunc", "--format", "{{.ImageID}}").split())

    def _remove(self, image_id: str) -> bool:
        # Without its names it goes by its id, and without force, which would end containers of it.
        self._podman.call("untag", image_id)
        done = self._podman.call("rmi", image_id)
        if done.returncode:
            log.warning("image %s stays: %s", image_id[:12], done.stderr.strip()[:200])
        return done.returncode == 0

    def _said(self, *arguments: str) -> str:
        done = self._podman.call(*arguments)
        if done.returncode:
            raise subprocess.SubprocessError(done.stderr.strip()[:200])
        return done.stdout
