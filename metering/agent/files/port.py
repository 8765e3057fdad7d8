"""What bringing and sending files asks of the server. `HttpUplink` does it."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from .. import wire


class FilesUplink(Protocol):
    """Calls about the files of one lease. Each raises Unreachable or Refused.

    Of blobs: Unreachable or BlobRefused.
    """

    def inputs(self, lease_id: UUID, asked: wire.InputsAsked) -> wire.Inputs: ...

    def missing(self, lease_id: UUID, asked: wire.OutputsAsked) -> wire.Links: ...

    def outputs(self, lease_id: UUID, sent: wire.OutputsSent) -> wire.OutputsKept: ...

    def outputs_failed(self, lease_id: UUID, failed: wire.OutputsFailed) -> wire.OutputsFailed: ...

    def read_blob(self, link: wire.Link, size_max: int) -> bytes: ...

    def send_blob(self, link: wire.Link, data: bytes) -> None: ...


class VolumesUplink(FilesUplink, Protocol):
    """And about the volumes that the lease's work has. Each raises Unreachable or Refused."""

    def volume_read(
        self, lease_id: UUID, name: str, asked: wire.VolumeAsked
    ) -> wire.VolumeRead: ...

    def volume_missing(self, lease_id: UUID, name: str, asked: wire.OutputsAsked) -> wire.Links: ...

    def volume_sent(self, lease_id: UUID, name: str, sent: wire.VolumeSent) -> wire.VolumeKept: ...

    def volume_failed(
        self, lease_id: UUID, name: str, failed: wire.OutputsFailed
    ) -> wire.OutputsFailed: ...
