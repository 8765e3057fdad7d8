"""Exports that the market makes: asked for, seen as they come on, loaded once they are there."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

from django import forms
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from config.site.forms.answers import done, meta_of, page
from ledger import closing, exports
from ledger.access import Actor
from ledger.access.visits import actor_of
from ledger.api.exports import file_answer
from ledger.commands.export_plans import end_export_plan, plan_exports
from ledger.commands.exports import ask_export, set_gl_mapping
from ledger.domain.export_plans import FOLDER_LENGTH_MAX
from ledger.domain.gl_mapping import KINDS, NAME_LENGTH_MAX, GlMapping
from ledger.domain.periods import Period, read_period
from ledger.domain.refusal import Refusal
from ledger.eventstore import default_store
from ledger.export_delivery import brought_to
from ledger.queries.exports import (
    Progress,
    deliveries,
    export_plans,
    export_run,
    export_runs,
    gl_mapping,
    progress_of,
)

RUNS_SHOWN = 50
DELIVERIES_SHOWN = 12
MONTHS_OFFERED = 24


class AskForm(forms.Form):
    """Which month, as what."""

    token = forms.UUIDField(widget=forms.HiddenInput, required=False)
    period = forms.ChoiceField(label="Month")
    format = forms.ChoiceField(label="As")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        newest = Period.of(timezone.now())
        count = newest.year * 12 + newest.month - 1
        months = [
            str(Period((count - back) // 12, (count - back) % 12 + 1))
            for back in range(MONTHS_OFFERED)
        ]
        self._choices("period", [(each, each) for each in months])
        self._choices("format", [(name, each.title) for name, each in exports.FORMATS.items()])

    def _choices(self, name: str, choices: list[tuple[str, str]]) -> None:
        field = self.fields[name]
        assert isinstance(field, forms.ChoiceField)
        field.choices = choices


class MappingForm(forms.Form):
    """How the general ledger calls our kinds of accounts."""

    company = forms.CharField(label="Company code or subsidiary", max_length=NAME_LENGTH_MAX)
    document_type = forms.CharField(label="Document type (SAP)", max_length=NAME_LENGTH_MAX)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for kind in KINDS:
            self.fields[f"account_{kind}"] = forms.CharField(
                label=kind.capitalize(), max_length=NAME_LENGTH_MAX, required=False
            )

    @property
    def accounts(self) -> list[forms.BoundField]:
        """Return the fields of accounts."""
        return [self[f"account_{kind}"] for kind in KINDS]

    def wanted(self) -> GlMapping:
        """Return the mapping that was typed; an empty account keeps its own name."""
        told = {kind: str(self.cleaned_data[f"account_{kind}"]).strip() for kind in KINDS}
        return GlMapping(
            {kind: name for kind, name in told.items() if name},
            self.cleaned_data["company"],
            self.cleaned_data["document_type"],
        )


class PlanForm(forms.Form):
    """What is brought by itself, how often, and into which folder."""

    token = forms.UUIDField(widget=forms.HiddenInput, required=False)
    every = forms.ChoiceField(
        label="When",
        choices=[("day", "Each day: the month so far"), ("month", "Each month, once it is closed")],
    )
    folder = forms.CharField(label="Folder", max_length=FOLDER_LENGTH_MAX, initial="lake")
    formats = forms.MultipleChoiceField(label="As", widget=forms.CheckboxSelectMultiple)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["formats"]
        assert isinstance(field, forms.MultipleChoiceField)
        field.choices = [(name, each.title) for name, each in exports.FORMATS.items()]


def _need_money(request: HttpRequest) -> Actor:
    actor = actor_of(request)
    actor.need("finance", "auditor", "operator")
    return actor


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """What was asked for, how far it is, and a form for more."""
    return _show(request, _need_money(request))


@require_safe
def state(request: HttpRequest) -> HttpResponse:
    """The list alone, as it is now."""
    return render(request, "pages/export_runs.html", _listed(_need_money(request)))


@require_POST
def ask(request: HttpRequest) -> HttpResponse:
    """Ask for an export."""
    actor, form = _need_money(request), AskForm(request.POST)
    if not form.is_valid():
        return _show(request, actor, form=form)
    name, token = form.cleaned_data["format"], form.cleaned_data["token"] or uuid4()
    try:
        position = ask_export(
            default_store(),
            export_id=token,
            tenant_id=actor.tenant_id,
            everything=actor.sees_all,
            name=name,
            period=read_period(form.cleaned_data["period"]),
            position=exports.position_asked(None),
            user_id=actor.need_person(),
            by=meta_of(actor),
            now=timezone.now(),
        )
    except Refusal as refused:
        return _show(request, actor, form=form, refusal=refused)
    return done(request, "/finance/exports", position, "It is being written.")


@require_POST
def mapping(request: HttpRequest) -> HttpResponse:
    """Say how the general ledger calls our accounts."""
    actor, form = _need_money(request), MappingForm(request.POST)
    closing.need_to_close(actor)
    if not form.is_valid():
        return _show(request, actor, mapped=form)
    try:
        position = set_gl_mapping(
            default_store(),
            form.wanted(),
            user_id=actor.need_person(),
            by=meta_of(actor),
            now=timezone.now(),
        )
    except Refusal as refused:
        return _show(request, actor, mapped=form, refusal=refused)
    return done(request, "/finance/exports", position, "Exports from now on use these names.")


@require_POST
def plan(request: HttpRequest) -> HttpResponse:
    """Have exports brought by themselves from now on."""
    actor, form = _need_money(request), PlanForm(request.POST)
    closing.need_to_close(actor)
    if not form.is_valid():
        return _show(request, actor, planned=form)
    wanted = form.cleaned_data
    try:
        position = plan_exports(
            default_store(),
            plan_id=wanted["token"] or uuid4(),
            every=wanted["every"],
            formats=wanted["formats"],
            folder=wanted["folder"],
            user_id=actor.need_person(),
            by=meta_of(actor),
            now=timezone.now(),
        )
    except Refusal as refused:
        return _show(request, actor, planned=form, refusal=refused)
    return done(request, "/finance/exports", position, "It is brought from now on.")


@require_POST
def end_plan(request: HttpRequest, plan_id: UUID) -> HttpResponse:
    """Bring nothing any more by a plan."""
    actor = _need_money(request)
    closing.need_to_close(actor)
    try:
        position = end_export_plan(
            default_store(),
            plan_id,
            user_id=actor.need_person(),
            by=meta_of(actor),
            now=timezone.now(),
        )
    except Refusal as refused:
        return _show(request, actor, refusal=refused)
    return done(request, "/finance/exports", position, "Nothing is brought by it any more.")


@require_safe
def file(request: HttpRequest, export_id: UUID) -> StreamingHttpResponse:
    """Send an export's file."""
    return file_answer(export_run(_need_money(request), export_id))


def _show(
    request: HttpRequest,
    actor: Actor,
    *,
    form: AskForm | None = None,
    mapped: MappingForm | None = None,
    planned: PlanForm | None = None,
    refusal: Refusal | None = None,
) -> HttpResponse:
    invalid = any(each is not None and bool(each.errors) for each in (form, mapped, planned))
    asked = {"token": uuid4(), "period": request.GET.get("period", "")}
    sees = actor.sees_all or actor.has_platform_money
    context = {
        "tab": "exports",
        **_listed(actor),
        "form": form or AskForm(initial=asked),
        "mapping": (mapped or _mapping()) if actor.has_platform_money else None,
        "plan": (planned or PlanForm(initial={"token": uuid4(), "formats": ["focus-parquet"]}))
        if actor.has_platform_money
        else None,
        "plans": export_plans() if sees else [],
        "place": brought_to(),
        "deliveries": deliveries(limit=DELIVERIES_SHOWN) if sees else [],
    }
    return page(request, "pages/exports.html", context, refusal=refusal, invalid=invalid)


def _mapping() -> MappingForm:
    known = gl_mapping(exports.position_asked(None))
    initial = {f"account_{kind}": name for kind, name in known.accounts.items()}
    return MappingForm(
        initial=initial | {"company": known.company, "document_type": known.document_type}
    )


def _listed(actor: Actor) -> dict[str, Any]:
    rows = list(export_runs(actor).order_by("-asked_at", "export_id")[:RUNS_SHOWN])
    told = progress_of([row.pk for row in rows if row.state == "asked"])
    return {
        "runs": [
            {
                "row": row,
                "title": exports.FORMATS[row.format].title
                if row.format in exports.FORMATS
                else row.format,
                "progress": told.get(row.pk, Progress(0, 0, 0)),
            }
            for row in rows
        ],
        "running": any(row.state == "asked" for row in rows),
    }
