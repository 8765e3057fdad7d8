"""`offpeak.checkpoint`: work saves itself so that it can go on elsewhere, whatever ends it here.

    saves = Checkpoints("volumes/run")
    step = 0
    if (last := saves.newest()) is not None:
        step, model = last.about["step"] + 1, load(last.folder / "model.bin")
    while step < STEPS and not saves.ending:
        train(model)
        if saves.due(every=60):
            with saves.save(step=step) as folder:
                store(model, folder / "model.bin")
        step += 1

A checkpoint is a folder of its own with a list of its files and their hashes, `checkpoint.json`,
which is written last. It is made beside and renamed once it is whole and on the disk, so one that
was cut short is never found, and one that is damaged is passed over. Where the folder lies in a
volume, the host keeps each as a version of it while the work runs (chapter "Checkpoints").

With the standard library alone: this one file works by itself, in an image without the client.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

LIST = "checkpoint.json"
BEING_SAVED = ".offpeak-saving-"
"""What a folder's name begins with until all of it is there. Hosts leave such folders out."""
NUMBER_DIGITS = 8


class CheckpointWrong(Exception):
    """A checkpoint cannot be saved; the text says why."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A whole checkpoint: its number, the folder of its files, and what was said with it."""

    number: int
    folder: Path
    about: Mapping[str, Any]


class Checkpoints:
    """The checkpoints of one work in a folder, of which the newest are kept.

    keep: how many, at least one. Made in the main thread it hears the owner's notice (`SIGUSR1`)
    and the request to end (`SIGTERM`): a process without handlers would end at once.
    """

    def __init__(self, folder: str | os.PathLike[str], *, keep: int = 2) -> None:
        if keep < 1:
            raise CheckpointWrong("at least one checkpoint is kept")
        self.folder, self._keep = Path(folder), keep
        self.folder.mkdir(parents=True, exist_ok=True)
        self._saved_at = time.monotonic()
        self._noticed = self._ending = self._answered = False
        for left in self.folder.glob(f"{BEING_SAVED}*"):
            shutil.rmtree(left, ignore_errors=True)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGUSR1, self._hear)
            signal.signal(signal.SIGTERM, self._hear)

    # --- going on ----------------------------------------------------------------------------

    def newest(self) -> Checkpoint | None:
        """Return the newest whole checkpoint; None: there is none, so begin at the beginning.

        Every file of it is read and compared with its hash; one that is wrong is passed over.
        """
        for number in reversed(self._numbers()):
            folder = self._place(number)
            about = _verified(folder)
            if about is not None:
                return Checkpoint(number, folder, about)
        return None

    # --- when --------------------------------------------------------------------------------

    @property
    def noticed(self) -> bool:
        """Whether the owner takes the GPU back: the notice is in the file `$OFFPEAK_NOTICE`."""
        return self._noticed or self._notice() is not None

    @property
    def ending(self) -> bool:
        """Whether the work was asked to end: save, and leave."""
        return self._ending

    @property
    def seconds_left(self) -> float | None:
        """Return how long the GPU is still ours after a notice; None: there was none."""
        notice = self._notice()
        return None if notice is None else max(0.0, notice / 1000 - time.time())

    def due(self, *, every: float) -> bool:
        """Tell if it is time: `every` seconds after the last, and once at a notice and at the end.

        Choose it at least ten times as long as saving takes.
        """
        if (self.noticed or self._ending) and not self._answered:
            return True
        return time.monotonic() - self._saved_at >= every

    # --- saving ------------------------------------------------------------------------------

    @contextmanager
    def save(self, **about: Any) -> Iterator[Path]:
        """Give an empty folder to write to; at the end of the block it is the newest checkpoint.

        about: what to find in `Checkpoint.about`, as JSON has it. Where the block raises there is
        no checkpoint, and those before stay. The host hears that the work is safe up to the
        moment at which the block began.

        Raises: CheckpointWrong, OSError.
        """
        since, answers = datetime.now(UTC), self.noticed or self._ending
        number = max(self._numbers(), default=0) + 1
        made = self.folder / f"{BEING_SAVED}{os.getpid()}-{number}"
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir()
        try:
            yield made
            _write_list(made, about)
            os.rename(made, self._place(number))
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise
        _sync(self.folder)
        for old in self._numbers()[: -self._keep]:
            shutil.rmtree(self._place(old), ignore_errors=True)
        self._saved_at = time.monotonic()
        self._answered = self._answered or answers
        say_safe(since)

    # --- inside ------------------------------------------------------------------------------

    def _numbers(self) -> list[int]:
        return sorted(
            int(each.name)
            for each in self.folder.iterdir()
            if len(each.name) >= NUMBER_DIGITS and each.name.isascii() and each.name.isdigit()
        )

    def _place(self, number: int) -> Path:
        return self.folder / f"{number:0{NUMBER_DIGITS}d}"

    def _hear(self, which: int, _frame: FrameType | None) -> None:
        if which == signal.SIGTERM and not self._ending:
            self._ending, self._answered = True, False
        elif which == signal.SIGUSR1:
            self._noticed = True

    def _notice(self) -> int | None:
        """Return when the GPU is to be free, in ms since 1970, as the host's notice has it."""
        path = os.environ.get("OFFPEAK_NOTICE")
        if not path:
            return None
        try:
            return int(json.loads(Path(path).read_text())["stop_at_ms"])
        except (OSError, ValueError, KeyError, TypeError):
            return None


def say_safe(since: datetime) -> None:
    """Tell the host that the work can go on from this moment; nowhere else it does nothing.

    By hand: work that saves itself in its own way calls this once all of it is on the disk.
    """
    path = os.environ.get("OFFPEAK_CHECKPOINT")
    if not path:
        return
    # In place and of one length, so that the host never finds it empty or half written.
    line = since.astimezone(UTC).isoformat(timespec="microseconds").encode() + b"\n"
    file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.pwrite(file, line, 0)
        os.ftruncate(file, len(line))
    finally:
        os.close(file)


def _write_list(folder: Path, about: Mapping[str, Any]) -> None:
    """Bring all files to the disk, and their list after them."""
    files, folders = {}, [folder]
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise CheckpointWrong(f"{path.name} is neither a file nor a folder")
        if path.is_dir():
            folders.append(path)
        else:
            name = path.relative_to(folder).as_posix()
            if name == LIST:
                raise CheckpointWrong(f"{LIST} is the name of the list of files")
            files[name] = [path.stat().st_size, _hash_and_sync(path)]
    try:
        text = json.dumps({"about": about, "files": files}, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise CheckpointWrong(f"what is said with it is no JSON: {error}") from error
    with open(folder / LIST, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    for each in reversed(folders):
        _sync(each)


def _verified(folder: Path) -> Mapping[str, Any] | None:
    """Return what was said with a checkpoint whose files are all as its list has them."""
    try:
        listed = json.loads((folder / LIST).read_text())
        for name, (size, sha256) in listed["files"].items():
            path = folder / name
            if path.stat().st_size != size or _hash(path) != sha256:
                return None
        about = listed["about"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return about if isinstance(about, dict) else None


def _hash(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _hash_and_sync(path: Path) -> str:
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
