"""The messages about what a lease's work has: logs, secrets, inputs, outputs and volumes.

`wire` has the others, and the rules of all.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal
from uuid import UUID

from .strict import Between, Length, Message, WireError

LOGS_PATH = "/api/v1/agent/logs"
SECRETS_PATH = "/api/v1/agent/secrets"

INPUTS_PATH = "/api/v1/agent/leases/{}/inputs"
OUTPUTS_PATH = "/api/v1/agent/leases/{}/outputs"
OUTPUTS_MISSING_PATH = "/api/v1/agent/leases/{}/outputs/missing"
OUTPUTS_FAILED_PATH = "/api/v1/agent/leases/{}/outputs/failed"
VOLUME_READ_PATH = "/api/v1/agent/leases/{}/volumes/{}/read"
VOLUME_MISSING_PATH = "/api/v1/agent/leases/{}/volumes/{}/missing"
VOLUME_VERSIONS_PATH = "/api/v1/agent/leases/{}/volumes/{}/versions"
VOLUME_FAILED_PATH = "/api/v1/agent/leases/{}/volumes/{}/failed"

BATCH_MAX = 1000
"""Intervals plus health events, or reports, in one message."""
LOG_PIECES_MAX = 256
LOG_PIECE_BYTES_MAX = 49_152
"""Of one piece of a log, before it is written as base64."""
LOG_BATCH_BYTES_MAX = 256 * 1024
"""Of all pieces in one message."""

Stream = Literal["stdout", "stderr"]
LogOutcome = Literal["taken", "ahead", "closed", "refused"]
SecretName = Annotated[str, Length(1, 64)]
VolumeName = Annotated[str, Length(1, 64)]
Sha256 = Annotated[str, Length(64, 64)]
BlobBytes = Annotated[int, Between(1, 8 * 2**20)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPiece(Message):
    """Bytes that the work of a lease printed, by the offset of the first since it began.

    attempt: which run of the lease's work on this host, from 1. data: in base64; empty asks how
    far the server is. skipped: what lies before `offset` is not on the host any more. ended: the
    stream ends with this piece.
    """

    lease_id: UUID
    attempt: Annotated[int, Between(1, 10_000)]
    stream: Stream
    offset: Annotated[int, Between(0, 2**53)]
    data: Annotated[str, Length(0, 65_536)]
    skipped: bool = False
    ended: bool = False

    def __post_init__(self) -> None:
        try:
            b64decode(self.data, validate=True)
        except binascii.Error:
            raise WireError("is not base64", "data") from None

    @property
    def content(self) -> bytes:
        """Return the bytes."""
        return b64decode(self.data)

    @staticmethod
    def written(content: bytes) -> str:
        """Return bytes as `data` has them."""
        return b64encode(content).decode("ascii")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBatch(Message):
    """POST /api/v1/agent/logs: news of several logs, those of one stream in their order."""

    pieces: Annotated[tuple[LogPiece, ...], Length(0, LOG_PIECES_MAX)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPieceTaken(Message):
    """What became of one piece.

    size: where the server's log ends; the next piece begins there. outcome: `taken`, also where
    all of it was known; `ahead`, bytes before it are missing; `closed`, nothing is added to this
    log any more; `refused`, the lease is none of this host. followed: somebody reads along.
    """

    lease_id: UUID
    attempt: Annotated[int, Between(1, 10_000)]
    stream: Stream
    size: Annotated[int, Between(0, 2**53)]
    outcome: LogOutcome
    followed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogsTaken(Message):
    """The answer, piece by piece in their order."""

    pieces: Annotated[tuple[LogPieceTaken, ...], Length(1, LOG_PIECES_MAX)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretsAsked(Message):
    """POST /api/v1/agent/secrets: the secrets of a lease that is to run here, for one attempt.

    public_key: of a pair that this attempt alone has, 32 bytes in base64.
    """

    lease_id: UUID
    attempt_id: UUID
    public_key: Annotated[str, Length(44, 44)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretsSealed(Message):
    """The answer: values by name, sealed as `sealing` says, in base64."""

    lease_id: UUID
    attempt_id: UUID
    sealed: Annotated[str, Length(1, 4 * 1024 * 1024)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Link(Message):
    """Where a blob is read or sent, with exactly these headers. A path is one of the server."""

    sha256: Sha256
    url: Annotated[str, Length(1, 8192)]
    headers: Annotated[Mapping[str, str], Length(0, 16)]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputsAsked(Message):
    """POST INPUTS_PATH: the agent wants to read these blobs of the lease's inputs; none: only
    the manifest.
    """

    blobs: Annotated[tuple[Sha256, ...], Length(0, BATCH_MAX)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs(Message):
    """The answer. manifest: the sha256 of the list of the files, one of the links where none was
    asked for. Links last 15 minutes.
    """

    manifest: Sha256
    links: Annotated[tuple[Link, ...], Length(0, BATCH_MAX)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob(Message):
    """A blob of what the work left."""

    sha256: Sha256
    size: BlobBytes


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputsAsked(Message):
    """POST OUTPUTS_MISSING_PATH: which of these blobs are to be sent?"""

    blobs: Annotated[tuple[Blob, ...], Length(1, BATCH_MAX)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Links(Message):
    """The answer: where each that is missing is sent. Links last 15 minutes."""

    links: Annotated[tuple[Link, ...], Length(0, BATCH_MAX)]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputsSent(Message):
    """POST OUTPUTS_PATH: all blobs of this manifest are there. exit_code: as in Report."""

    manifest: Sha256
    exit_code: Annotated[int, Between(-255, 255)] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputsKept(Message):
    """The answer: the folder that is kept."""

    folder_id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputsFailed(Message):
    """POST OUTPUTS_FAILED_PATH: what of the work's files could not be kept, and why; answered by
    itself. final: it is not tried again.
    """

    reason: Annotated[str, Length(1, 500)]
    final: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Source(Message):
    """What a host fetches for work: a commit of a git repository, or one file.

    ref, folder: of a repository; sha256: of a file, and empty for a repository. secret: the name
    of the one that the server of the address is shown; empty: none.
    """

    url: Annotated[str, Length(9, 2048)]
    ref: Annotated[str, Length(0, 200)] = ""
    folder: Annotated[str, Length(0, 1024)] = ""
    sha256: Annotated[str, Length(0, 64)] = ""
    secret: Annotated[str, Length(0, 64)] = ""

    def __post_init__(self) -> None:
        if not self.url.startswith("https://"):
            raise WireError("is not https", "url")
        if bool(self.ref) == bool(self.sha256):
            raise WireError("names a commit or a file", "ref")
        if self.ref.startswith("-"):
            raise WireError("is no commit", "ref")


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeMount(Message):
    """A volume that the work of a lease finds at `path`, beneath the place where it starts.

    writable: what the work changed there becomes the volume's next version.
    """

    name: VolumeName
    path: Annotated[str, Length(1, 256)]
    writable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeAsked(Message):
    """POST VOLUME_READ_PATH: the agent wants to read these blobs of the volume's newest version;
    none: only which version that is, and its manifest.
    """

    blobs: Annotated[tuple[Sha256, ...], Length(0, BATCH_MAX)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeRead(Message):
    """The answer. version: counted from 1; 0: nothing was kept in the volume yet, and there is no
    manifest. Links as in Inputs. room_bytes: how much the files of the next version may have.
    """

    version: Annotated[int, Between(0, 2**53)]
    manifest: Sha256 | None
    links: Annotated[tuple[Link, ...], Length(0, BATCH_MAX)]
    room_bytes: Annotated[int, Between(0, 2**53)]


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeSent(Message):
    """POST VOLUME_VERSIONS_PATH: all blobs of this manifest are there; the volume's next version.

    base: the version that the work found, or that this agent kept last; where the volume is
    further, or another lease writes to it, the server refuses. final: the work ended.
    """

    base: Annotated[int, Between(0, 2**53)]
    manifest: Sha256
    final: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeKept(Message):
    """The answer: the version that was kept. The same manifest on the same base again: the same."""

    version: Annotated[int, Between(1, 2**53)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged(Message):
    """The answer: everything of this boot up to this seq is stored and need not come again."""

    acknowledged_seq: Annotated[int, Between(0, 2**53)]
