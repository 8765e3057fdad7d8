"""Exports that the market makes meanwhile, and how a general ledger calls our accounts."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid5

from django.http import StreamingHttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ledger import closing, exports, queries
from ledger.commands.exports import ask_export, set_gl_mapping
from ledger.domain.export_runs import ExportNotMade
from ledger.domain.gl_mapping import NAME_LENGTH_MAX, GlMapping
from ledger.domain.periods import read_period
from ledger.exporting import bytes_of, kept_in
from ledger.models import ExportRunRow
from ledger.queries.exports import Progress, export_run, export_runs, gl_mapping, progress_of
from ledger.rest import AmountField, Body, Endpoint, MomentField, TextField
from ledger.rest.schema import WrittenAt

READS = ("ledger.exports", "ledger.money")


class AskExport(Body):
    """A month to write as a file. position: leave out what was recorded after it; absent: nothing.

    format: as of `exports`, such as focus-parquet.
    """

    format = TextField(max_length=40)
    period = TextField(max_length=7)
    position = serializers.IntegerField(min_value=0, required=False)


class ExportRunShape(serializers.Serializer[Any]):
    """An export. state: asked, made or failed; percent: how much of it is written. The rest is what
    its manifest says, once it is made. words: why it failed.
    """

    export_id = serializers.UUIDField()
    format = serializers.CharField()
    period = serializers.CharField()
    position = serializers.IntegerField()
    state = serializers.CharField()
    percent = serializers.IntegerField()
    rows = serializers.IntegerField()
    bytes = serializers.IntegerField()
    sums = serializers.DictField(child=AmountField())
    version = serializers.CharField(allow_blank=True)
    sha256 = serializers.CharField(allow_blank=True)
    scope = serializers.CharField()
    words = serializers.CharField(allow_blank=True)
    asked_at = MomentField()
    ended_at = MomentField(allow_null=True)


class ExportAskedShape(WrittenAt):
    """The export that was asked for, and the position to read it at."""

    export_id = serializers.UUIDField()


class MappingShape(serializers.Serializer[Any]):
    """How the general ledger calls our kinds of accounts; what is not in `accounts` keeps its name.

    company: the company code of SAP, the subsidiary of NetSuite. document_type: of SAP.
    """

    accounts = serializers.DictField(child=serializers.CharField())
    company = serializers.CharField()
    document_type = serializers.CharField()


class SetMapping(Body):
    """The mapping from now on; it replaces the one before. Exports as of before keep theirs."""

    accounts = serializers.DictField(child=TextField(max_length=NAME_LENGTH_MAX))
    company = TextField(max_length=NAME_LENGTH_MAX)
    document_type = TextField(max_length=NAME_LENGTH_MAX)


class ExportRuns(Endpoint):
    """Exports that the market makes while who asked does something else."""

    scopes = {"GET": "billing:read", "POST": "billing:read"}
    reads = READS

    @extend_schema(responses=ExportRunShape(many=True))
    def get(self, request: Request) -> Response:
        """List them, the newest first."""
        rows = list(export_runs(self.actor).order_by("-asked_at", "export_id")[:100])
        told = progress_of([row.pk for row in rows if row.state == "asked"])
        return self.listed([shown(row, told.get(row.pk)) for row in rows], ("export_id",))

    @extend_schema(request=AskExport, responses={201: ExportAskedShape})
    def post(self, request: Request) -> Response:
        """Ask for one; its file is there once its state is `made`."""
        asked = self.body(AskExport)
        exports.format_named(asked["format"])
        period = read_period(asked["period"])
        given = asked.get("position")
        place = exports.position_asked(None if given is None else str(given))
        export_id = uuid5(self.command_id, "export")
        position = ask_export(
            self.store(),
            export_id=export_id,
            tenant_id=self.actor.tenant_id,
            everything=self.actor.sees_all,
            name=asked["format"],
            period=period,
            position=place,
            user_id=self.actor.need_person(),
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"export_id": export_id, "position": position}, status=201)


class ExportRunDetail(Endpoint):
    """One export."""

    scopes = {"GET": "billing:read"}
    reads = READS

    @extend_schema(responses=ExportRunShape)
    def get(self, request: Request, export_id: UUID) -> Response:
        """Show how far it is, or what it is."""
        row = export_run(self.actor, export_id)
        return Response(shown(row, progress_of([row.pk]).get(row.pk)))


class ExportRunFile(Endpoint):
    """An export's file."""

    scopes = {"GET": "billing:read"}
    reads = READS

    @extend_schema(responses={(200, "application/octet-stream"): OpenApiTypes.BINARY})
    def get(self, request: Request, export_id: UUID) -> StreamingHttpResponse:
        """Send it."""
        return file_answer(export_run(self.actor, export_id))


class GlMappingDetail(Endpoint):
    """How the general ledger calls our kinds of accounts."""

    scopes = {"GET": "billing:read", "PUT": "billing:write"}
    reads = ("ledger.exports",)

    @extend_schema(responses=MappingShape)
    def get(self, request: Request) -> Response:
        """Show it; kinds that are not in it go by their own names."""
        mapping = gl_mapping(queries.read_up_to())
        return Response(
            {
                "accounts": dict(mapping.accounts),
                "company": mapping.company,
                "document_type": mapping.document_type,
            }
        )

    @extend_schema(request=SetMapping, responses=WrittenAt)
    def put(self, request: Request) -> Response:
        """Replace it, for exports as of now and later."""
        asked = self.body(SetMapping)
        closing.need_to_close(self.actor)
        position = set_gl_mapping(
            self.store(),
            GlMapping(asked["accounts"], asked["company"], asked["document_type"]),
            user_id=self.actor.need_person(),
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"position": position})


def file_answer(row: ExportRunRow) -> StreamingHttpResponse:
    """Return the answer that sends an export's file.

    Raises: ExportNotMade.
    """
    if row.state != "made":
        raise ExportNotMade(state=row.state)
    kind = exports.format_named(row.format)
    file = f"offpeak-{row.format}-{row.period}-at-{row.position}.{kind.suffix}"
    headers = {"Content-Disposition": f'attachment; filename="{file}"'}
    if row.version == kind.version:
        headers |= {"Content-Length": str(row.bytes), "X-Offpeak-Sha256": row.sha256}
    return StreamingHttpResponse(
        bytes_of(kept_in(), row), content_type=kind.content_type, headers=headers
    )


def shown(row: ExportRunRow, progress: Progress | None) -> dict[str, Any]:
    """Return an export as it is answered."""
    moment = MomentField()
    so_far = progress or Progress(0, 0, 0)
    return {
        "export_id": row.export_id,
        "format": row.format,
        "period": row.period,
        "position": row.position,
        "state": row.state,
        "percent": 100 if row.state == "made" else so_far.percent,
        "rows": so_far.rows if row.rows is None else row.rows,
        "bytes": so_far.bytes if row.bytes is None else row.bytes,
        "sums": {name: AmountField().to_representation(nanos) for name, nanos in row.sums.items()},
        "version": row.version,
        "sha256": row.sha256,
        "scope": "everything" if row.everything else f"tenant {row.tenant_id}",
        "words": row.words,
        "asked_at": moment.to_representation(row.asked_at),
        "ended_at": row.ended_at and moment.to_representation(row.ended_at),
    }
