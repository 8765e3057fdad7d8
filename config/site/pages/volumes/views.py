"""Volumes of an organisation: what they hold and cost, who writes, and what may be done."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from django import forms
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from config.site.forms.answers import done, meta_of, page
from config.site.forms.fields import TokenField
from config.site.pages.folders.views import listed
from config.site.parts.paging import part_of
from ledger.access import Actor
from ledger.access.visits import actor_of
from ledger.domain.refusal import Refusal
from ledger.eventstore import default_store
from ledger.queries import subscribers
from marketplace import volumes
from marketplace.domain.volumes.terms import (
    GIB,
    LIFE_DEFAULT,
    LIFE_MAX,
    LIFE_MIN,
    NAME_LENGTH_MAX,
    QUOTA_GIB_MAX,
)
from marketplace.models.volumes import VolumeRow
from marketplace.queries import volumes as queries
from marketplace.queries.bids import unit_of
from marketplace.storage import default_storage
from marketplace.storage.contents import file_at, manifest_at
from marketplace.storage.download_links import Wanted

DAY = timedelta(days=1)


class SizeForm(forms.Form):
    """How much a volume holds."""

    size_gib = forms.IntegerField(label="Size", min_value=1, max_value=QUOTA_GIB_MAX)


class TimeForm(forms.Form):
    """How long a volume is kept, from now."""

    days = forms.IntegerField(
        label="Keep it for",
        min_value=LIFE_MIN // DAY,
        max_value=LIFE_MAX // DAY,
        initial=LIFE_DEFAULT // DAY,
    )


class VolumeForm(SizeForm, TimeForm):
    """A new volume."""

    token = TokenField()
    name = forms.CharField(label="Name", max_length=NAME_LENGTH_MAX)
    field_order = ("name", "size_gib", "days", "unit")

    def __init__(self, data: Any, *, units: list[tuple[str, str]]) -> None:
        super().__init__(data)
        if units:
            self.fields["unit"] = forms.ChoiceField(label="Paid by", choices=units)


@require_http_methods(["GET", "HEAD", "POST"])
def index(request: HttpRequest) -> HttpResponse:
    """Every volume, and a form for a new one; sent, make it."""
    actor = actor_of(request)
    actor.need_scope("files:read")
    units: list[tuple[str, str]] = []
    if actor.subscriber_id is None:
        rows = subscribers(actor).order_by("title")
        units = [(str(row.subscriber_id), row.title) for row in rows]
    form, refusal = VolumeForm(request.POST or None, units=units), None
    if request.method == "POST" and form.is_valid():
        try:
            return _made(request, actor, form.cleaned_data)
        except Refusal as refused:
            refusal = refused
    offered = volumes.offered()
    part = part_of(request, queries.volumes(actor), "page")
    context = {
        "volumes": [_seen(row) for row in part.rows],
        "part": part,
        "form": form,
        "may_write": actor.may("bids:write"),
        "price": offered.nanos_per_gib_month,
        "currency": offered.currency,
    }
    invalid = bool(form.errors)
    return page(request, "pages/volumes.html", context, refusal=refusal, invalid=invalid)


@require_safe
def one(request: HttpRequest, volume: str) -> HttpResponse:
    """What is in one volume, and what may be done with it."""
    return _show(request, volume)


@require_safe
def file(request: HttpRequest, volume: str) -> HttpResponse:
    """Send the browser on to one file of the newest version, which it saves."""
    row = _volume(actor_of(request), volume)
    path = request.GET.get("path", "")
    file_at(manifest_at(default_storage(), row.tenant_id, row.manifest), path)
    return _on_to(row, path, path.rpartition("/")[2])


@require_safe
def everything(request: HttpRequest, volume: str) -> HttpResponse:
    """Send the browser on to all of the newest version as an archive."""
    row = _volume(actor_of(request), volume)
    return _on_to(row, "", f"{row.name}.zip")


@require_POST
def extend(request: HttpRequest, volume: str) -> HttpResponse:
    """Keep a volume for longer."""
    form = TimeForm(request.POST)
    if not form.is_valid():
        return _show(request, volume, time=form)
    until = timezone.now() + timedelta(days=form.cleaned_data["days"])
    return _changed(request, volume, f"Kept until {until:%-d %B %Y}.", expires_at=until)


@require_POST
def resize(request: HttpRequest, volume: str) -> HttpResponse:
    """Give a volume another size."""
    form = SizeForm(request.POST)
    if not form.is_valid():
        return _show(request, volume, size=form)
    gib = form.cleaned_data["size_gib"]
    return _changed(request, volume, f"It holds {gib} GiB now.", quota_bytes=gib * GIB)


@require_POST
def remove(request: HttpRequest, volume: str) -> HttpResponse:
    """Keep a volume no more."""
    actor = actor_of(request)
    actor.need_scope("bids:write")
    row = queries.volume(actor, volume)
    try:
        position = volumes.remove_volume(
            default_store(),
            row.tenant_id,
            row.volume_id,
            row.name,
            by=meta_of(actor),
            now=timezone.now(),
        )
    except Refusal as refusal:
        return _show(request, volume, refusal=refusal)
    return done(request, "/volumes", position, f"Removed {row.name}.")


def _made(request: HttpRequest, actor: Actor, data: dict[str, Any]) -> HttpResponse:
    actor.need_scope("bids:write")
    now = timezone.now()
    _, position = volumes.make_volume(
        default_store(),
        tenant_id=actor.tenant_id,
        unit=unit_of(actor, UUID(data["unit"]) if "unit" in data else None),
        name=data["name"],
        quota_bytes=data["size_gib"] * GIB,
        expires_at=now + timedelta(days=data["days"], minutes=1),
        user_id=actor.user_id,
        by=meta_of(actor, data["token"]),
        now=now,
    )
    return done(request, f"/volumes/{data['name']}", position)


def _changed(request: HttpRequest, volume: str, said: str, **change: Any) -> HttpResponse:
    actor = actor_of(request)
    actor.need_scope("bids:write")
    row = queries.volume(actor, volume)
    try:
        position = volumes.change_volume(
            default_store(), row, by=meta_of(actor), now=timezone.now(), **change
        )
    except Refusal as refusal:
        return _show(request, volume, refusal=refusal)
    return done(request, f"/volumes/{row.name}", position, said)


def _show(
    request: HttpRequest,
    volume: str,
    *,
    refusal: Refusal | None = None,
    time: TimeForm | None = None,
    size: SizeForm | None = None,
) -> HttpResponse:
    actor = actor_of(request)
    row = _volume(actor, volume)
    context = _seen(row) | {
        "may_write": actor.may("bids:write"),
        "time": time or TimeForm(),
        "size": size or SizeForm(initial={"size_gib": row.quota_bytes // GIB}),
        "versions": row.versions[::-1],
    }
    invalid = time is not None or size is not None
    if row.manifest:
        try:
            manifest = manifest_at(default_storage(), row.tenant_id, row.manifest)
        except Refusal as lost:
            return page(request, "pages/volume.html", context, refusal=refusal or lost)
        files = sorted(manifest.files, key=lambda each: each.path)
        part = part_of(request, files, "page")
        context |= {"files": listed(part.rows), "part": part}
    return page(request, "pages/volume.html", context, refusal=refusal, invalid=invalid)


def _seen(row: VolumeRow) -> dict[str, Any]:
    """Return what a page tells of a volume: with whose work writes to it."""
    bids, leases = queries.mounted(row.tenant_id, row.name, writable=True)
    filled = 100 * row.size_bytes // row.quota_bytes
    return {"row": row, "bids": bids, "leases": leases, "filled_percent": filled}


def _volume(actor: Actor, volume: str) -> VolumeRow:
    actor.need_scope("files:read")
    return queries.volume(actor, volume)


def _on_to(row: VolumeRow, path: str, name: str) -> HttpResponse:
    kept_at = row.versions[-1]["at"] if row.versions else row.created_at.isoformat()
    wanted = Wanted(str(row.tenant_id), row.manifest, path, name, kept_at)
    return HttpResponseRedirect(wanted.link())
