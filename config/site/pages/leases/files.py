"""The files of a lease for its page: what it found, what it left, and what could not be kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from config.site.pages.folders.views import listed
from ledger.access import Actor
from ledger.domain.refusal import Refusal
from marketplace.domain.files.folder import FolderUnknown
from marketplace.models.folders import FolderRow
from marketplace.models.leases import LeaseRow
from marketplace.queries import folders
from marketplace.queries.folders import Left
from marketplace.storage import default_storage
from marketplace.storage.contents import manifest_at

SHOWN_MAX = 20


@dataclass(frozen=True, slots=True)
class Files:
    """What the page shows. first: the first files of the newest folder; more: there are others.

    inputs: a row; empty where the folder was removed since; None: it brought none.
    """

    inputs: FolderRow | dict[str, Any] | None
    left: Left
    first: list[dict[str, Any]]
    more: bool


def files_of(actor: Actor, row: LeaseRow, left: Left) -> Files | None:
    """Return the files of a lease; None where there are none, or they are not the asker's.

    What is in the newest folder is read once the lease is over: before, the page comes anew every
    few seconds.
    """
    if row.tenant_id != actor.tenant_id or not actor.may("files:read"):
        return None
    has_some = row.inputs is not None or row.fetch or row.outputs or row.volumes
    if not has_some and not left.folders:
        return None
    first: list[dict[str, Any]] = []
    more = False
    if row.closed_at is not None and left.folders:
        first, more = _first(actor, left)
    return Files(_inputs(actor, row), left, first, more)


def _inputs(actor: Actor, row: LeaseRow) -> FolderRow | dict[str, Any] | None:
    if row.inputs is None:
        return None
    try:
        return folders.folder(actor, row.inputs)
    except FolderUnknown:
        return {"folder_id": None}


def _first(actor: Actor, left: Left) -> tuple[list[dict[str, Any]], bool]:
    try:
        row = folders.folder(actor, left.folders[0].folder_id)
        manifest = manifest_at(default_storage(), row.tenant_id, row.manifest)
    except Refusal:  # its own page says why
        return [], False
    ordered = sorted(manifest.files, key=lambda each: each.path)
    return listed(ordered[:SHOWN_MAX]), len(ordered) > SHOWN_MAX
