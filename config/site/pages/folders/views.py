"""Folders that an organisation keeps: what is in them, to look through and to take home."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from config.site.forms.answers import done, meta_of, page
from config.site.parts.paging import part_of
from ledger.access import Actor
from ledger.access.visits import actor_of
from ledger.domain.refusal import Refusal
from ledger.eventstore import default_store
from marketplace import folders
from marketplace.domain.files.manifest import File
from marketplace.models.folders import FolderRow
from marketplace.queries import folders as queries
from marketplace.storage import default_storage
from marketplace.storage.contents import file_at, manifest_at, size_of
from marketplace.storage.download_links import Wanted

NAME_LENGTH_MAX = 80


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """Every folder, newest first."""
    actor = actor_of(request)
    actor.need_scope("files:read")
    part = part_of(request, queries.folders(actor), "page")
    return page(request, "pages/folders.html", {"folders": part.rows, "part": part})


@require_safe
def one(request: HttpRequest, folder_id: UUID) -> HttpResponse:
    """What is in one folder."""
    return _show(request, folder_id)


@require_safe
def file(request: HttpRequest, folder_id: UUID) -> HttpResponse:
    """Send the browser on to one file, which it saves."""
    row = _folder(actor_of(request), folder_id)
    path = request.GET.get("path", "")
    file_at(manifest_at(default_storage(), row.tenant_id, row.manifest), path)
    return _on_to(row, path, path.rpartition("/")[2])


@require_safe
def everything(request: HttpRequest, folder_id: UUID) -> HttpResponse:
    """Send the browser on to all of a folder as an archive."""
    row = _folder(actor_of(request), folder_id)
    name = "".join(each for each in row.title if each.isalnum() or each in "._- ").strip(". ")
    return _on_to(row, "", f"{name[:NAME_LENGTH_MAX] or row.folder_id}.zip")


@require_POST
def remove(request: HttpRequest, folder_id: UUID) -> HttpResponse:
    """Keep a folder no longer."""
    actor = actor_of(request)
    actor.need_scope("files:write")
    queries.folder(actor, folder_id)
    try:
        position = folders.remove_folder(
            default_store(), folder_id, by=meta_of(actor), now=timezone.now()
        )
    except Refusal as refusal:
        return _show(request, folder_id, refusal=refusal)
    return done(request, "/folders", position, "Removed. Its room is free after a day.")


def _show(request: HttpRequest, folder_id: UUID, refusal: Refusal | None = None) -> HttpResponse:
    row = _folder(actor_of(request), folder_id)
    context: dict[str, Any] = {"row": row, "may_remove": actor_of(request).may("files:write")}
    try:
        manifest = manifest_at(default_storage(), row.tenant_id, row.manifest)
    except Refusal as lost:
        return page(request, "pages/folder.html", context, refusal=refusal or lost)
    files = sorted(manifest.files, key=lambda each: each.path)
    part = part_of(request, files, "page")
    context |= {
        "files": listed(part.rows),
        "part": part,
        "links": manifest.links[: len(part.rows)] if part.first == 1 else [],
    }
    return page(request, "pages/folder.html", context, refusal=refusal)


def listed(files: Iterable[File]) -> list[dict[str, Any]]:
    """Return what a page tells of files."""
    return [{"path": each.path, "size": size_of(each)} for each in files]


def _folder(actor: Actor, folder_id: UUID) -> FolderRow:
    actor.need_scope("files:read")
    return queries.folder(actor, folder_id)


def _on_to(row: FolderRow, path: str, name: str) -> HttpResponse:
    wanted = Wanted(str(row.tenant_id), row.manifest, path, name, row.kept_at.isoformat())
    return HttpResponseRedirect(wanted.link())
