"""What the agent of a host asks about the files of the leases that it serves, and of no other.

Blobs do not pass here: the agent gets links, for the inputs of a lease only while its work is to
run there, and for what the work left until a day after its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar
from uuid import UUID

from django.conf import settings
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.domain.ids import LeaseId
from marketplace import folders
from marketplace.commands import leases
from marketplace.domain.files.folder import GIB
from marketplace.domain.leases.lease import LeaseUnknown
from marketplace.domain.leases.outputs import InputsNotAsked, need_outputs_wanted
from marketplace.queries.leases import Carried, carried
from marketplace.storage import default_storage
from marketplace.storage.port import Link
from marketplace.storage.through import storage_for
from metering.agent import wire
from metering.api.agent import AgentEndpoint


class AgentInputs(AgentEndpoint):
    """The inputs of a lease that is assigned to the host."""

    scopes: ClassVar = {"POST": "agent"}
    reads: ClassVar = ("marketplace.leases", "marketplace.folders")

    @extend_schema(request=dict[str, Any], responses=dict[str, Any], tags=["agent"])
    def post(self, request: Request, lease_id: UUID) -> Response:
        """Say where blobs of the inputs are read; asked for none, where their manifest is."""
        lease = carried(self.host_id, lease_id)
        if not lease.wanted:
            raise LeaseUnknown(lease_id=lease_id)
        if lease.inputs is None:
            raise InputsNotAsked(lease_id=lease_id)
        manifest = folders.manifest_for_work(self.store(), lease.tenant_id, lease.inputs)
        asked = list(self.message(wire.InputsAsked).blobs) or [manifest]
        storage = storage_for(default_storage(), request.query_params)
        links = folders.links_to(storage, lease.tenant_id, lease.inputs, asked)
        answer = wire.Inputs(manifest=manifest, links=_spoken(links))
        return Response(answer.to_json())


class Outputs(AgentEndpoint):
    """What the work of a lease left."""

    scopes: ClassVar = {}

    def lease(self, lease_id: UUID) -> Carried:
        """Return the lease, if the host may bring files of it.

        Raises: LeaseUnknown, OutputsNotAsked, OutputsTooLate.
        """
        lease = carried(self.host_id, lease_id)
        need_outputs_wanted(lease.outputs, closed_at=lease.closed_at, now=timezone.now())
        return lease


class AgentOutputsMissing(Outputs):
    """Which blobs of what a work left are to be sent."""

    scopes: ClassVar = {"POST": "agent"}
    reads: ClassVar = ("marketplace.leases",)

    @extend_schema(request=dict[str, Any], responses=dict[str, Any], tags=["agent"])
    def post(self, request: Request, lease_id: UUID) -> Response:
        """Say where the missing ones are sent, and keep room for them."""
        lease = self.lease(lease_id)
        sizes = {blob.sha256: blob.size for blob in self.message(wire.OutputsAsked).blobs}
        links = folders.ask_missing(
            storage_for(default_storage(), request.query_params),
            lease.tenant_id,
            sizes,
            quota=settings.ENV.files_gib_max * GIB,
            now=timezone.now(),
        )
        return Response(wire.Links(links=_spoken(links)).to_json())


class AgentOutputs(Outputs):
    """What the work of a lease left, as a folder of its consumer's."""

    scopes: ClassVar = {"POST": "agent"}
    reads: ClassVar = ("marketplace.leases",)
    one_append: ClassVar = True

    @extend_schema(request=dict[str, Any], responses=dict[str, Any], tags=["agent"])
    def post(self, request: Request, lease_id: UUID) -> Response:
        """Keep the folder, once all its blobs are there; the same again changes nothing."""
        lease, sent = self.lease(lease_id), self.message(wire.OutputsSent)
        folder_id, _position = folders.keep_folder(
            self.store(),
            default_storage(),
            lease.tenant_id,
            sent.manifest,
            title=f"Outputs of lease {str(lease_id)[:8]}",
            by=self.meta(),
            now=timezone.now(),
            lease_id=LeaseId(lease_id),
            host_id=self.host_id,
            exit_code=sent.exit_code,
        )
        return Response(wire.OutputsKept(folder_id=folder_id).to_json())


class AgentOutputsFailed(Outputs):
    """What of it could not be kept."""

    scopes: ClassVar = {"POST": "agent"}
    reads: ClassVar = ("marketplace.leases",)

    @extend_schema(request=dict[str, Any], responses=dict[str, Any], tags=["agent"])
    def post(self, request: Request, lease_id: UUID) -> Response:
        """Take note of it: the consumer reads it on the lease."""
        self.lease(lease_id)
        failed = self.message(wire.OutputsFailed)
        leases.outputs_failed(
            self.store(),
            lease_id=LeaseId(lease_id),
            host_id=self.host_id,
            reason=failed.reason,
            final=failed.final,
            by=self.meta(),
            now=timezone.now(),
        )
        return Response(failed.to_json())


def _spoken(links: Mapping[str, Link]) -> tuple[wire.Link, ...]:
    return tuple(
        wire.Link(sha256=sha256, url=link.url, headers=dict(link.headers))
        for sha256, link in links.items()
    )
