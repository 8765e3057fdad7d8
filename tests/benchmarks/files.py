"""Folders to the market's own storage and back, beside a plain copy that is hashed."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from django.conf import settings

from marketplace.sdk import parcel
from marketplace.sdk.client import Client
from marketplace.sdk.transfers import Transfers
from tests.access.world import follow, found
from tests.benchmarks.figures import Figure
from tests.benchmarks.served import web

MIB = 2**20
TURNS = 3
KINDS: dict[str, dict[int, int]] = {
    "3 files of 40 MiB": {40 * MIB: 3},
    "600 files of 3 KiB": {3 * 1024: 600},
    "mixed, 603 files": {30 * MIB: 3, 50 * 1024: 300, 3 * 1024: 300},
}
"""How many files of which size."""
GOAL = ">= 70%"


def run() -> Iterator[Figure]:
    """Copy, send and fetch in turns, each time other bytes; give the middle of each."""
    party = found("files")
    follow()
    with TemporaryDirectory(prefix="offpeak-files-") as folder, web() as port:
        server = f"http://127.0.0.1:{port}"
        with Client(server, party.caller.token) as client, Transfers(client, server) as transfers:
            for kind, sizes in KINDS.items():
                yield from _measured(kind, sizes, Path(folder), transfers)
    shutil.rmtree(settings.HOME / "blobs" / str(party.caller.tenant_id), ignore_errors=True)


def _measured(
    kind: str, sizes: dict[int, int], folder: Path, transfers: Transfers
) -> Iterator[Figure]:
    mib = sum(size * number for size, number in sizes.items()) / MIB
    took: dict[str, list[float]] = {"copy": [], "up": [], "down": [], "again": []}
    for turn in range(TURNS):
        source = folder / f"{kind} {turn}"
        _fill(source, sizes)
        for way, seconds in _turn(source, folder, transfers).items():
            took[way].append(seconds)
    plain = mib / median(took["copy"])
    yield Figure(f"{kind}: cp -r and sha256sum", plain, "MiB/s")
    for way in ("up", "down"):
        rate = mib / median(took[way])
        yield Figure(f"{kind}: {way}", rate, "MiB/s", plain, "the copy", goal=GOAL)
    yield Figure(f"{kind}: up once more", median(took["again"]), "s", digits=3)


def _turn(source: Path, folder: Path, transfers: Transfers) -> dict[str, float]:
    """Return how long each way took."""
    made: list[str] = []
    copied = _seconds(lambda: _copy(source, folder / "copy"))
    up = _seconds(lambda: made.append(_up(source, transfers)))
    follow()  # who asks again waits until what it did is in rows
    again = _seconds(lambda: made.append(_up(source, transfers)))
    down = _seconds(lambda: transfers.fetch(made[0], folder / "back"))
    for each in (source, folder / "copy", folder / "back"):
        shutil.rmtree(each)
    return {"copy": copied, "up": up, "down": down, "again": again}


def _seconds(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def _fill(source: Path, sizes: dict[int, int]) -> None:
    for size, number in sizes.items():
        (source / str(size)).mkdir(parents=True)
        for each in range(number):
            (source / str(size) / f"{each:04}").write_bytes(os.urandom(size))


def _copy(source: Path, to: Path) -> None:
    subprocess.run(["cp", "-r", str(source), str(to)], check=True)
    names = sorted(str(path) for path in to.rglob("*") if path.is_file())
    subprocess.run(["sha256sum", *names], check=True, stdout=subprocess.DEVNULL)


def _up(source: Path, transfers: Transfers) -> str:
    read = parcel.pack(source, parcel.look(source, lambda path: False))
    return transfers.send(source, read)[0]
