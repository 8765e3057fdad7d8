"""What the agent of a host asks about the volumes of the leases that it serves, and of no other.

It may read a volume while the work is to run there, and bring versions until an hour after the
lease's end, or for as long as nobody else writes by then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar
from uuid import UUID

from django.conf import settings
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.domain.ids import LeaseId
from ledger.domain.refusal import Refusal
from ledger.eventstore.port import load
from marketplace import volumes
from marketplace.commands import leases
from marketplace.commands import volumes as commands
from marketplace.domain.facts.values import VolumeMount
from marketplace.domain.files.folder import GIB
from marketplace.domain.leases.lease import LeaseUnknown
from marketplace.domain.leases.outputs import OUTPUTS_WITHIN, OutputsTooLate
from marketplace.domain.volumes.terms import volume_id_of
from marketplace.domain.volumes.volume import Volume, need_kept
from marketplace.queries.leases import Carried, carried
from marketplace.storage import default_storage
from marketplace.storage.port import Link
from marketplace.storage.through import storage_for
from metering.agent import wire
from metering.api.agent import AgentEndpoint


class VolumeNotAsked(Refusal):
    """The bid of that lease names no such volume, or only to read it."""


@dataclass(frozen=True, slots=True)
class Mounted:
    """A volume of a lease."""

    lease: Carried
    mount: VolumeMount
    volume_id: UUID


class OfVolume(AgentEndpoint):
    """A volume that the work of a lease finds."""

    scopes: ClassVar = {}

    def found(self, lease_id: UUID, name: str, *, writes: bool = False) -> Mounted:
        """Return the volume, if the host serves that lease.

        writes: if it may bring versions of it.

        Raises: LeaseUnknown, VolumeNotAsked, OutputsTooLate.
        """
        lease = carried(self.host_id, lease_id)
        mount = next((each for each in lease.volumes if each.name == name), None)
        if mount is None or (writes and not mount.writable):
            raise VolumeNotAsked(lease_id=lease_id, name=name[:64])
        closed_at = lease.closed_at
        if writes and closed_at is not None and timezone.now() > closed_at + OUTPUTS_WITHIN:
            raise OutputsTooLate(closed_at=closed_at)
        return Mounted(lease, mount, volume_id_of(lease.tenant_id, name))


class AgentVolume(OfVolume):
    """The newest version of a volume."""

    scopes: ClassVar = {"POST": "agent"}
    reads: ClassVar = ("marketplace.leases",)

    def _asked(self) -> None:
        """Keep no answer: each is of now."""
        return None

    @extend_schema(request=dict[str, Any], responses=dict[str, Any], tags=["agent"])
    def post(self, request: Request, lease_id: UUID, volume: str) -> Response:
        """Say where blobs of it are read; asked for none, which version it is."""
        found, asked = self.found(lease_id, volume), self.message(wire.VolumeAsked)
        if not found.lease.wanted:
            raise LeaseUnknown(lease_id=lease_id)
        kept = volumes.read_by_work(
            self.store(),
            found.volume_id,
            bid_id=found.lease.bid_id,
            writable=found.mount.writable,
            by=self.meta(),
            now=timezone.now(),
        )
        newest = kept.newest
        blobs = list(asked.blobs) or ([] if newest is None else [newest.manifest])
        storage = storage_for(default_storage(), request.query_params)
        links = volumes.links_to(storage, found.lease.tenant_id, found.volume_id, blobs)
        answer = wire.VolumeRead(
            version=0 if newest is None else newest.number,
            manifest=None if newest is None else newest.manifest,
            links=_spoken(links),
            room_bytes=kept.quota_bytes,
        )
        return Response(answer.to_json())


class AgentVolumeMissing(OfVolume):
    """Which blobs of a volume's next version are to be sent."""

    scopes: ClassVar = {"POST": "agent"}
    reads: ClassVar = ("marketplace.leases", "marketplace.volumes")

    @extend_schema(request=dict[str, Any], responses=dict[str, Any], tags=["agent"])
    def post(self, request: Request, lease_id: UUID, volume: str) -> Response:
        """Say where the missing ones are sent, and keep room for them."""
        found = self.found(lease_id, volume, writes=True)
        sizes = {blob.sha256: blob.size for blob in self.message(wire.OutputsAsked).blobs}
        kept = need_kept(load(self.store(), Volume, found.volume_id), name=volume)
        links = volumes.missing_of(
            storage_for(default_storage(), request.query_params),
            found.lease.tenant_id,
            sizes,
            quota_bytes=kept.quota_bytes,
            files_bytes_max=settings.ENV.files_gib_max * GIB,
            now=timezone.now(),
        )
        return Response(wire.Links(links=_spoken(links)).to_json())


class AgentVolumeVersions(OfVolume):
    """What the work left in a volume, as its next version."""

    scopes: ClassVar = {"POST": "agent"}
    reads: ClassVar = ("marketplace.leases",)
    one_append: ClassVar = True

    @extend_schema(request=dict[str, Any], responses=dict[str, Any], tags=["agent"])
    def post(self, request: Request, lease_id: UUID, volume: str) -> Response:
        """Keep it, once all its blobs are there; the same again changes nothing."""
        found = self.found(lease_id, volume, writes=True)
        sent = self.message(wire.VolumeSent)
        version, _position = volumes.keep_version(
            self.store(),
            default_storage(),
            found.lease.tenant_id,
            found.volume_id,
            sent.manifest,
            base=sent.base,
            bid_id=found.lease.bid_id,
            lease_id=LeaseId(lease_id),
            host_id=self.host_id,
            final=sent.final,
            by=self.meta(),
            now=timezone.now(),
        )
        return Response(wire.VolumeKept(version=version).to_json())


class AgentVolumeFailed(OfVolume):
    """What of it could not be read or kept."""

    scopes: ClassVar = {"POST": "agent"}
    reads: ClassVar = ("marketplace.leases",)

    @extend_schema(request=dict[str, Any], responses=dict[str, Any], tags=["agent"])
    def post(self, request: Request, lease_id: UUID, volume: str) -> Response:
        """Take note of it: the consumer reads it on the lease. At last others may write."""
        found, failed = self.found(lease_id, volume), self.message(wire.OutputsFailed)
        now = timezone.now()
        leases.outputs_failed(
            self.store(),
            lease_id=LeaseId(lease_id),
            host_id=self.host_id,
            reason=failed.reason,
            final=failed.final,
            volume=volume,
            by=self.meta().step("failed"),
            now=now,
        )
        if failed.final and found.mount.writable:
            commands.release_volume(
                self.store(),
                volume_id=found.volume_id,
                bid_id=found.lease.bid_id,
                by=self.meta().step("release"),
                now=now,
            )
        return Response(failed.to_json())


def _spoken(links: Mapping[str, Link]) -> tuple[wire.Link, ...]:
    return tuple(
        wire.Link(sha256=sha256, url=link.url, headers=dict(link.headers))
        for sha256, link in links.items()
    )
