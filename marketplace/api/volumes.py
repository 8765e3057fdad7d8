"""JSON over HTTP for volumes: created, changed, removed; their versions brought and read.

Blobs themselves do not pass here: they go straight between client and storage, by links.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

from django.conf import settings
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.rest import AmountField, Body, CountField, Endpoint, MomentField, TextField
from marketplace import volumes
from marketplace.api.folders import THROUGH, AskedAnew, AskLinks, AskMissing, LinksShape
from marketplace.domain.files.folder import GIB
from marketplace.domain.volumes.terms import (
    NAME_LENGTH_MAX,
    QUOTA_GIB_MAX,
)
from marketplace.models.volumes import VolumeRow
from marketplace.queries import bids
from marketplace.queries import volumes as queries
from marketplace.storage import default_storage
from marketplace.storage.through import storage_for

BY_NAME = ("name", "volume_id")


class AskVolume(Body):
    """A volume. subscriber_id: the business unit that pays, if not your own. size_gib: what the
    files of a version may have. expires_at: 30 days from now, if left out.
    """

    name = TextField(max_length=NAME_LENGTH_MAX)
    size_gib = CountField(value_min=1, value_max=QUOTA_GIB_MAX)
    expires_at = MomentField(required=False)
    subscriber_id = serializers.UUIDField(required=False)
    cost_centre = TextField(default="", allow_blank=True, max_length=60)


class ChangeVolume(Body):
    """Another size, or a later expiry at the price of today; what is left out stays."""

    size_gib = CountField(value_min=1, value_max=QUOTA_GIB_MAX, required=False)
    expires_at = MomentField(required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse a change of nothing."""
        if not attrs:
            raise serializers.ValidationError("Say a size_gib or expires_at.", "nothing-to-do")
        return attrs


class AskVersion(Body):
    """A version whose blobs are all there: the sha256 of its manifest.

    base: the version that it goes on from; 0 where the volume has none.
    """

    manifest = TextField(max_length=64)
    base = CountField()


class VersionShape(serializers.Serializer[Any]):
    """A version that is kept. lease_id: whose work left it; null: somebody brought it."""

    version = serializers.IntegerField(source="number")
    manifest = serializers.CharField()
    files = serializers.IntegerField()
    size_bytes = serializers.IntegerField()
    lease_id = serializers.UUIDField(allow_null=True)
    user_id = serializers.UUIDField(allow_null=True)
    kept_at = MomentField(source="at")


class VolumeShape(serializers.Serializer[Any]):
    """A volume. version, manifest, files, size_bytes: of its newest version; 0: it has none.

    price: of a GiB in the newest version for a month of 730 hours. bids, leases: those whose work
    writes to it now. notified_at: when its organisation was told that it expires at `expires_at`.
    unpaid_since: its account cannot pay; read_only_at: from when on nothing is written for that.
    expired_because: `time` or `unpaid`, and removed_at when its files go; empty: it has not.
    charged: all that was charged for it by now.
    """

    id = serializers.UUIDField(source="volume_id")
    name = serializers.CharField()
    size_gib = serializers.SerializerMethodField()
    version = serializers.IntegerField(source="number")
    manifest = serializers.CharField()
    files = serializers.IntegerField()
    size_bytes = serializers.IntegerField()
    price = AmountField(source="nanos_per_gib_month")
    currency = serializers.CharField()
    charged = AmountField(source="charged_nanos")
    charged_until = MomentField(allow_null=True)
    subscriber_id = serializers.UUIDField()
    account_id = serializers.UUIDField()
    cost_centre = serializers.CharField()
    user_id = serializers.UUIDField(allow_null=True)
    bids = serializers.ListField(child=serializers.UUIDField(), default=list)
    leases = serializers.ListField(child=serializers.UUIDField(), default=list)
    created_at = MomentField()
    expires_at = MomentField()
    notified_at = MomentField(source="noticed_at", allow_null=True)
    unpaid_since = MomentField(source="unpaid_at", allow_null=True)
    read_only_at = MomentField(allow_null=True)
    expired_because = serializers.CharField()
    removed_at = MomentField(allow_null=True)

    def get_size_gib(self, row: VolumeRow) -> int:
        """Return what the files of a version may have."""
        return row.quota_bytes // GIB


class VolumeWritten(serializers.Serializer[Any]):
    """Which volume was written, and the position to read it at."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    version = serializers.IntegerField(required=False)
    position = serializers.IntegerField()


def shown(row: VolumeRow) -> dict[str, Any]:
    """Return a volume with whose work writes to it."""
    writing, leases = queries.mounted(row.tenant_id, row.name, writable=True)
    return {**VolumeShape(row).data, "bids": writing, "leases": leases}


class Volumes(Endpoint):
    """The volumes of an organisation."""

    scopes: ClassVar = {"GET": "files:read", "POST": "bids:write"}
    reads: ClassVar = ("marketplace.volumes", "marketplace.bids", "ledger.parties")

    @extend_schema(responses=VolumeShape(many=True))
    def get(self, request: Request) -> Response:
        """List them by name."""
        return self.page(queries.volumes(self.actor), shown, BY_NAME)

    @extend_schema(request=AskVolume, responses={201: VolumeWritten})
    def post(self, request: Request) -> Response:
        """Keep a volume; its unit pays for what is in it, by the hour."""
        asked = self.body(AskVolume)
        volume_id, position = volumes.make_volume(
            self.store(),
            tenant_id=self.actor.tenant_id,
            unit=bids.unit_of(self.actor, asked.get("subscriber_id")),
            name=asked["name"],
            quota_bytes=asked["size_gib"] * GIB,
            expires_at=asked.get("expires_at"),
            cost_centre=asked["cost_centre"],
            user_id=self.actor.user_id,
            by=self.meta(),
            now=timezone.now(),
        )
        written = {"id": volume_id, "name": asked["name"], "position": position}
        return Response(written, status=201)


class OneVolume(Endpoint):
    """One volume."""

    scopes: ClassVar = {"GET": "files:read", "PATCH": "bids:write", "DELETE": "bids:write"}
    reads: ClassVar = ("marketplace.volumes", "marketplace.bids", "marketplace.leases")

    @extend_schema(responses=VolumeShape)
    def get(self, request: Request, volume: str) -> Response:
        """Show it."""
        return Response(shown(queries.volume(self.actor, volume)))

    @extend_schema(request=ChangeVolume, responses=VolumeWritten)
    def patch(self, request: Request, volume: str) -> Response:
        """Give it another size, or keep it for longer; also when it has expired."""
        row, asked = queries.volume(self.actor, volume), self.body(ChangeVolume)
        position = volumes.change_volume(
            self.store(),
            row,
            quota_bytes=asked["size_gib"] * GIB if "size_gib" in asked else None,
            expires_at=asked.get("expires_at"),
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"id": row.volume_id, "name": volume, "position": position})

    @extend_schema(responses=VolumeWritten)
    def delete(self, request: Request, volume: str) -> Response:
        """Keep it no more; refused while a bid or a lease names it."""
        row = queries.volume(self.actor, volume)
        position = volumes.remove_volume(
            self.store(),
            row.tenant_id,
            row.volume_id,
            volume,
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"id": row.volume_id, "name": volume, "position": position})


class MissingOfVolume(AskedAnew):
    """Which blobs the next version of a volume has to send."""

    scopes: ClassVar = {"POST": "files:write"}
    reads: ClassVar = ("marketplace.volumes",)
    one_append: ClassVar = True

    @extend_schema(request=AskMissing, responses=LinksShape, parameters=[THROUGH])
    def post(self, request: Request, volume: str) -> Response:
        """Say which of up to 1 000 blobs are missing, and keep room for them for a day."""
        row = queries.volume(self.actor, volume)
        links = volumes.missing_of(
            storage_for(default_storage(), request.query_params),
            self.actor.tenant_id,
            self.body(AskMissing)["blobs"],
            quota_bytes=row.quota_bytes,
            files_bytes_max=settings.ENV.files_gib_max * GIB,
            now=timezone.now(),
        )
        return Response(LinksShape({"links": links}).data)


class VolumeVersions(Endpoint):
    """The versions of a volume."""

    scopes: ClassVar = {"GET": "files:read", "POST": "files:write"}
    reads: ClassVar = ("marketplace.volumes",)
    one_append: ClassVar = True

    @extend_schema(responses=VersionShape(many=True))
    def get(self, request: Request, volume: str) -> Response:
        """List those that are kept, newest first: up to three."""
        row = queries.volume(self.actor, volume)
        kept = [{**each, "at": datetime.fromisoformat(each["at"])} for each in row.versions]
        return Response({"data": VersionShape(kept[::-1], many=True).data, "next": None})

    @extend_schema(request=AskVersion, responses={201: VolumeWritten})
    def post(self, request: Request, volume: str) -> Response:
        """Keep the next version, once all its blobs are there; the same again is the same."""
        row, asked = queries.volume(self.actor, volume), self.body(AskVersion)
        version, position = volumes.keep_version(
            self.store(),
            default_storage(),
            self.actor.tenant_id,
            row.volume_id,
            asked["manifest"],
            base=asked["base"],
            user_id=self.actor.user_id,
            by=self.meta(),
            now=timezone.now(),
        )
        written: dict[str, UUID | str | int] = {"id": row.volume_id, "name": volume}
        return Response({**written, "version": version, "position": position}, status=201)


class VolumeLinks(AskedAnew):
    """Where the blobs of a volume are read."""

    scopes: ClassVar = {"POST": "files:read"}
    reads: ClassVar = ("marketplace.volumes",)
    one_append: ClassVar = True

    @extend_schema(request=AskLinks, responses=LinksShape, parameters=[THROUGH])
    def post(self, request: Request, volume: str) -> Response:
        """Return links to up to 1 000 blobs of any version that is kept, or to its manifest."""
        row = queries.volume(self.actor, volume)
        blobs = self.body(AskLinks)["blobs"]
        storage = storage_for(default_storage(), request.query_params)
        links = volumes.links_to(storage, row.tenant_id, row.volume_id, blobs)
        return Response(LinksShape({"links": links}).data)
