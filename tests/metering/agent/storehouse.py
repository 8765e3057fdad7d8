"""The server's side of the files of one lease, in memory, with faults that can be asked for."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from metering.agent import wire
from metering.agent.uplink import BlobRefused, Refused, Unreachable


def name_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def manifest_of(files: Mapping[str, bytes], **more: Any) -> bytes:
    blobs = list(dict.fromkeys(data for data in files.values() if data))
    said = {
        "format": "offpeak-folder-1",
        "blobs": [[name_of(data), len(data)] for data in blobs],
        "files": [
            {"path": path, "parts": [[blobs.index(data), 0, len(data)]] if data else []}
            for path, data in files.items()
        ],
        **more,
    }
    return json.dumps(said).encode()


class Cut(BaseException):
    """What a kill is to the code that it strikes: nothing that it could catch and go on from."""


@dataclass
class Storehouse:
    """Holds blobs. fault: asked before each call with its name and number; may raise, or die."""

    blobs: dict[str, bytes] = field(default_factory=dict)
    manifest: str = ""
    fault: Callable[[str, int], None] = lambda what, number: None
    calls: list[str] = field(default_factory=list)
    read: list[str] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)
    kept: list[wire.OutputsSent] = field(default_factory=list)
    failed: list[wire.OutputsFailed] = field(default_factory=list)
    damaged: set[str] = field(default_factory=set)
    alone: threading.Lock = field(default_factory=threading.Lock)

    def bring(self, manifest: bytes, *blobs: bytes) -> None:
        self.manifest = name_of(manifest)
        self.blobs |= {name_of(each): each for each in (manifest, *blobs)}

    def _called(self, what: str) -> None:
        with self.alone:
            self.calls.append(what)
            number = len(self.calls)
        self.fault(what, number)

    def inputs(self, lease_id: UUID, asked: wire.InputsAsked) -> wire.Inputs:
        self._called("inputs")
        if not self.manifest:
            raise Refused(404, "no such lease", "lease-unknown")
        links = self._links(asked.blobs or (self.manifest,))
        return wire.Inputs(manifest=self.manifest, links=links)

    def missing(self, lease_id: UUID, asked: wire.OutputsAsked) -> wire.Links:
        self._called("missing")
        lacking = [blob.sha256 for blob in asked.blobs if blob.sha256 not in self.blobs]
        return wire.Links(links=self._links(lacking))

    def outputs(self, lease_id: UUID, sent: wire.OutputsSent) -> wire.OutputsKept:
        self._called("outputs")
        body = json.loads(self.blobs[sent.manifest])
        assert all(sha256 in self.blobs for sha256, _ in body["blobs"])
        self.kept.append(sent)
        return wire.OutputsKept(folder_id=UUID(int=1))

    def outputs_failed(self, lease_id: UUID, failed: wire.OutputsFailed) -> wire.OutputsFailed:
        self._called("failed")
        self.failed.append(failed)
        return failed

    def read_blob(self, link: wire.Link, size_max: int) -> bytes:
        self._called("read")
        with self.alone:
            self.read.append(link.sha256)
        if link.sha256 not in self.blobs:
            raise BlobRefused(404, "blob-unknown")
        data = self.blobs[link.sha256]
        if link.sha256 in self.damaged:
            data = bytes([data[0] ^ 1]) + data[1:]
        return data[: size_max + 1]

    def send_blob(self, link: wire.Link, data: bytes) -> None:
        self._called("send")
        assert name_of(data) == link.sha256
        with self.alone:
            self.sent.append(link.sha256)
        self.blobs[link.sha256] = data

    def left(self) -> dict[str, bytes]:
        """Return the files of the last folder that was kept."""
        body = json.loads(self.blobs[self.kept[-1].manifest])
        names = [sha256 for sha256, _ in body["blobs"]]
        return {
            file["path"]: b"".join(
                self.blobs[names[blob]][offset : offset + length]
                for blob, offset, length in file["parts"]
            )
            for file in body["files"]
        }

    def _links(self, sha256s: Any) -> tuple[wire.Link, ...]:
        return tuple(wire.Link(sha256=each, url=f"/blobs/{each}", headers={}) for each in sha256s)


def away(which: Callable[[str, int], bool]) -> Callable[[str, int], None]:
    """Return a fault: the server or the storage does not answer these calls."""

    def fault(what: str, number: int) -> None:
        if which(what, number):
            raise Unreachable("the line is cut")

    return fault


def cut_at(place: int) -> Callable[[str, int], None]:
    """Return a fault: everything ends at this call."""

    def fault(_what: str, number: int) -> None:
        if number >= place:
            raise Cut

    return fault


def killed_at(place: int) -> Callable[[str, int], None]:
    """Return a fault: the process is killed at this call."""

    def fault(_what: str, number: int) -> None:
        if number >= place:
            os.kill(os.getpid(), signal.SIGKILL)

    return fault
