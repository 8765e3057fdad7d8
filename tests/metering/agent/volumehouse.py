"""The server's side of one volume, in memory, with faults that can be asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from metering.agent import wire
from metering.agent.uplink import Refused
from tests.metering.agent.storehouse import Storehouse, manifest_of, name_of


@dataclass
class VolumeHouse(Storehouse):
    """Holds the versions of one volume by their manifests. room: bytes that a version may have.

    told: what could not be kept. written: another lease writes to it. released: how often it was
    said that no more comes. ours: which version the work found that has made all since.
    """

    name: str = "data"
    versions: list[str] = field(default_factory=list)
    room: int = 2**40
    told: list[wire.OutputsFailed] = field(default_factory=list)
    written: bool = False
    released: int = 0
    bases: list[int] = field(default_factory=list)
    ours: int | None = None

    def hold(self, files: Mapping[str, bytes], **more: object) -> None:
        """Make files the volume's next version."""
        manifest = manifest_of(files, **more)
        self.blobs |= {name_of(each): each for each in (manifest, *files.values())}
        self.versions.append(name_of(manifest))
        self.ours = None

    def volume_read(self, lease_id: UUID, name: str, asked: wire.VolumeAsked) -> wire.VolumeRead:
        self._called("volume")
        assert name == self.name
        manifest = self.versions[-1] if self.versions else None
        known = set() if manifest is None else {manifest, *self._blobs_of(manifest)}
        if set(asked.blobs) - known:
            raise Refused(404, "none of its blobs", "blob-unknown")
        wanted = asked.blobs or ((manifest,) if manifest else ())
        return wire.VolumeRead(
            version=len(self.versions),
            manifest=manifest,
            links=self._links(wanted),
            room_bytes=self.room,
        )

    def volume_missing(self, lease_id: UUID, name: str, asked: wire.OutputsAsked) -> wire.Links:
        return self.missing(lease_id, asked)

    def volume_sent(self, lease_id: UUID, name: str, sent: wire.VolumeSent) -> wire.VolumeKept:
        self._called("sent")
        self.bases.append(sent.base)
        self.released += sent.final
        ours = self.ours is not None and self.ours <= sent.base <= len(self.versions)
        if self.versions[-1:] == [sent.manifest] and (ours or sent.base == len(self.versions)):
            return wire.VolumeKept(version=len(self.versions))
        if self.written or not (ours or sent.base == len(self.versions)):
            raise Refused(409, "another version is there", "volume-conflict")
        body = json.loads(self.blobs[sent.manifest])
        assert all(sha256 in self.blobs for sha256, _ in body["blobs"])
        if sum(size for file in body["files"] for _, _, size in file["parts"]) > self.room:
            raise Refused(413, "no room", "volume-full")
        self.ours = sent.base if self.ours is None else self.ours
        self.versions.append(sent.manifest)
        return wire.VolumeKept(version=len(self.versions))

    def volume_failed(
        self, lease_id: UUID, name: str, failed: wire.OutputsFailed
    ) -> wire.OutputsFailed:
        self._called("told")
        self.told.append(failed)
        return failed

    def files(self) -> dict[str, bytes]:
        """Return the files of the newest version."""
        body = json.loads(self.blobs[self.versions[-1]])
        names = [sha256 for sha256, _ in body["blobs"]]
        return {
            file["path"]: b"".join(
                self.blobs[names[blob]][since : since + size] for blob, since, size in file["parts"]
            )
            for file in body["files"]
        }

    def _blobs_of(self, manifest: str) -> set[str]:
        return {sha256 for sha256, _ in json.loads(self.blobs[manifest])["blobs"]}
