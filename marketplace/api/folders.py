"""JSON over HTTP for folders: which blobs are missing, what is kept, where to read it.

Blobs themselves do not pass here: they go straight between client and storage, by links. Who cannot
reach the storage asks for links of the market.
"""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID

from django.conf import settings
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.rest import Body, CountField, Endpoint, MomentField, TextField
from marketplace import folders
from marketplace.domain.files.folder import ASKED_MAX, GIB, TITLE_LENGTH_MAX
from marketplace.domain.files.manifest import BLOB_BYTES_MAX
from marketplace.models.folders import FolderRow
from marketplace.queries import folders as queries
from marketplace.storage import default_storage
from marketplace.storage.through import ASKED_FOR, storage_for

NEWEST_FIRST = ("-kept_at", "folder_id")
THROUGH = OpenApiParameter(
    ASKED_FOR,
    bool,
    description="If given, links are of the market: for who cannot reach the storage.",
)


class AskMissing(Body):
    """Blobs that somebody has: bytes by sha256."""

    blobs = serializers.DictField(child=CountField(value_min=1, value_max=BLOB_BYTES_MAX))


class AskKept(Body):
    """A folder whose blobs are all there: the sha256 of its manifest."""

    manifest = TextField(max_length=64)
    title = TextField(max_length=TITLE_LENGTH_MAX, required=False, allow_blank=True)


class AskLinks(Body):
    """Blobs of a folder that somebody wants to read, by sha256."""

    blobs = serializers.ListField(child=TextField(max_length=64), max_length=ASKED_MAX)


class LinkShape(serializers.Serializer[Any]):
    """Where a blob is sent to or read. url: if it is a path, of this market. headers: to send."""

    url = serializers.CharField()
    headers = serializers.DictField(child=serializers.CharField())


class MissingShape(serializers.Serializer[Any]):
    """Where to PUT each blob that is missing, and how much room there is. Links last 15 minutes."""

    links = serializers.DictField(child=LinkShape())
    bytes_used = serializers.IntegerField()
    bytes_max = serializers.IntegerField()


class LinksShape(serializers.Serializer[Any]):
    """Where to GET each blob. Links last 15 minutes."""

    links = serializers.DictField(child=LinkShape())


class FolderShape(serializers.Serializer[Any]):
    """A folder that is kept. lease_id: which lease left it; null: somebody brought it."""

    id = serializers.UUIDField(source="folder_id")
    manifest = serializers.CharField()
    title = serializers.CharField()
    files = serializers.IntegerField()
    size_bytes = serializers.IntegerField()
    user_id = serializers.UUIDField(allow_null=True)
    lease_id = serializers.UUIDField(allow_null=True)
    host_id = serializers.UUIDField(allow_null=True)
    exit_code = serializers.IntegerField(allow_null=True)
    kept_at = MomentField()


class FolderWritten(serializers.Serializer[Any]):
    """Which folder was written, and the position to read it at."""

    id = serializers.UUIDField()
    position = serializers.IntegerField()


class AskedAnew(Endpoint):
    """What is worked out anew each time: links end soon, and asking again does nothing twice."""

    scopes: ClassVar = {}

    def _asked(self) -> None:
        return None


class MissingBlobs(AskedAnew):
    """Which blobs an upload has to send."""

    scopes: ClassVar = {"POST": "files:write"}
    one_append: ClassVar = True

    @extend_schema(request=AskMissing, responses=MissingShape, parameters=[THROUGH])
    def post(self, request: Request) -> Response:
        """Say which of up to 1 000 blobs are missing, and keep room for them for a day."""
        tenant_id, quota = self.actor.tenant_id, settings.ENV.files_gib_max * GIB
        links = folders.ask_missing(
            storage_for(default_storage(), request.query_params),
            tenant_id,
            self.body(AskMissing)["blobs"],
            quota=quota,
            now=timezone.now(),
        )
        used = folders.used_bytes(tenant_id)
        said = {"links": links, "bytes_used": used, "bytes_max": quota}
        return Response(MissingShape(said).data)


class Folders(Endpoint):
    """The folders of an organisation."""

    scopes: ClassVar = {"GET": "files:read", "POST": "files:write"}
    reads: ClassVar = ("marketplace.folders",)
    one_append: ClassVar = True

    @extend_schema(
        responses=FolderShape(many=True), parameters=[OpenApiParameter("lease_id", UUID)]
    )
    def get(self, request: Request) -> Response:
        """List them, newest first; `lease_id=` lists what a lease left."""
        rows = queries.folders(self.actor, lease_id=request.query_params.get("lease_id"))
        return self.page(rows, FolderShape, NEWEST_FIRST)

    @extend_schema(request=AskKept, responses={201: FolderWritten})
    def post(self, request: Request) -> Response:
        """Keep a folder, once all its blobs are there: 409 names those that are missing."""
        asked = self.body(AskKept)
        folder_id, position = folders.keep_folder(
            self.store(),
            default_storage(),
            self.actor.tenant_id,
            asked["manifest"],
            title=asked.get("title", ""),
            user_id=self.actor.user_id,
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"id": folder_id, "position": position}, status=201)


class OneFolder(Endpoint):
    """One folder."""

    scopes: ClassVar = {"GET": "files:read", "DELETE": "files:write"}
    reads: ClassVar = ("marketplace.folders",)

    @extend_schema(responses=FolderShape)
    def get(self, request: Request, folder_id: UUID) -> Response:
        """Show it."""
        return Response(FolderShape(queries.folder(self.actor, folder_id)).data)

    @extend_schema(responses=FolderWritten)
    def delete(self, request: Request, folder_id: UUID) -> Response:
        """Keep it no longer; its room is free after a day."""
        queries.folder(self.actor, folder_id)
        position = folders.remove_folder(
            self.store(), folder_id, by=self.meta(), now=timezone.now()
        )
        return Response({"id": folder_id, "position": position})


class FolderLinks(AskedAnew):
    """Where the blobs of a folder are read."""

    scopes: ClassVar = {"POST": "files:read"}
    reads: ClassVar = ("marketplace.folders",)
    one_append: ClassVar = True

    @extend_schema(request=AskLinks, responses=LinksShape, parameters=[THROUGH])
    def post(self, request: Request, folder_id: UUID) -> Response:
        """Return links to up to 1 000 blobs of a folder; its manifest is one of them."""
        row: FolderRow = queries.folder(self.actor, folder_id)
        blobs = self.body(AskLinks)["blobs"]
        storage = storage_for(default_storage(), request.query_params)
        links = folders.links_to(storage, row.tenant_id, row.folder_id, blobs)
        return Response(LinksShape({"links": links}).data)
