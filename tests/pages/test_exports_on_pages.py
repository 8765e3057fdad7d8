"""Exports on pages: asked for, watched as they come on, loaded; and how accounts are called."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from django.test import Client

from ledger.domain.gl_mapping import GlMapping
from ledger.domain.periods import Period
from ledger.export_delivery import FolderTarget
from ledger.exporting import make_exports
from ledger.models import ExportPlanRow, ExportProgress, ExportRunRow
from ledger.planned_exports import deliver_planned
from ledger.queries import read_up_to
from ledger.queries.exports import gl_mapping
from tests.pages.reading import html
from tests.pages.world import CONSUMER, OWNER, PLATFORM, World

pytestmark = pytest.mark.django_db


def ask(client: Client, world: World, **form: str) -> str:
    told = {"period": str(Period.of(world.now)), "format": "focus", "token": str(uuid4()), **form}
    return sent(client, world, "/finance/exports/ask", told)


def sent(client: Client, world: World, path: str, form: dict[str, str]) -> str:
    answer = client.post(path, form)
    world.settle()
    if answer.status_code == 302:
        answer = client.get(answer["Location"])
    return html(answer.content)


def test_an_export_is_asked_for_watched_and_loaded(world: World, tmp_path: Path) -> None:
    joan = world.member(PLATFORM, "operator")

    page = ask(joan, world)
    assert "It is being written" in page and "0 % written" in page

    run = ExportRunRow.objects.get()
    ExportProgress.objects.create(export_id=run.pk, rows=30, rows_expected=40, bytes=9_000)
    assert "75 % written" in html(joan.get("/finance/exports/state").content)
    assert joan.get(f"/finance/exports/{run.pk}/file").status_code == 409

    make_exports(world.store, tmp_path, now=world.now)
    world.settle()

    page = html(joan.get("/finance/exports").content)
    run = ExportRunRow.objects.get()
    assert "ready" in page and run.sha256 in page
    assert "every 1s" not in page, "nothing is left to watch"
    answer = joan.get(f"/finance/exports/{run.pk}/file")
    data = b"".join(answer.streaming_content)  # type: ignore[attr-defined]  # it streams
    assert answer["Content-Length"] == str(len(data))
    assert data.startswith(b"AvailabilityZone,BilledCost,")


def test_sent_twice_a_form_asks_once(world: World) -> None:
    joan, token = world.member(PLATFORM, "finance"), str(uuid4())

    for _ in range(2):
        ask(joan, world, token=token)

    assert ExportRunRow.objects.count() == 1


def test_nobody_sees_the_exports_of_others(world: World, tmp_path: Path) -> None:
    ask(world.member(CONSUMER, "finance"), world)
    run = ExportRunRow.objects.get()
    make_exports(world.store, tmp_path, now=world.now)
    world.settle()

    other = world.member(OWNER, "finance")
    assert str(run.pk) not in html(other.get("/finance/exports").content)
    assert other.get(f"/finance/exports/{run.pk}/file").status_code == 404
    assert world.member(CONSUMER, "consumer").get("/finance/exports").status_code == 403


def test_finance_says_how_the_general_ledger_calls_accounts(world: World) -> None:
    joan = world.member(PLATFORM, "finance")
    form = {"company": "2000", "document_type": "ZB", "account_prepaid": "210000"}

    page = sent(joan, world, "/finance/exports/mapping", form)

    assert "210000" in page
    assert gl_mapping(read_up_to()) == GlMapping({"prepaid": "210000"}, "2000", "ZB")
    other = world.member(CONSUMER, "finance")
    assert other.post("/finance/exports/mapping", form).status_code == 403
    assert "Accounts of the general ledger" not in html(other.get("/finance/exports").content)


def test_finance_plans_exports_and_ends_it(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ledger.export_delivery._place", str(tmp_path))
    joan, other = world.member(PLATFORM, "finance"), world.member(CONSUMER, "finance")
    form = {"every": "day", "folder": "lake", "formats": "focus", "token": str(uuid4())}

    for _ in range(2):
        page = sent(joan, world, "/finance/exports/plans", form)
    assert "lake" in page and str(tmp_path) in page and "not due yet" in page
    deliver_planned(world.store, lambda: FolderTarget(tmp_path), now=world.now + timedelta(days=1))
    world.settle()
    page = html(joan.get("/finance/exports").content)
    assert f"{world.now:%Y-%m-%d}" in page and len(list(tmp_path.rglob("manifest.json"))) == 1
    assert "Bring by itself" not in html(other.get("/finance/exports").content)
    assert other.post("/finance/exports/plans", form).status_code == 403

    plan = ExportPlanRow.objects.get()
    assert other.post(f"/finance/exports/plans/{plan.pk}/end").status_code == 403
    sent(joan, world, f"/finance/exports/plans/{plan.pk}/end", {})
    assert ExportPlanRow.objects.get().ended_at is not None


def test_a_plan_that_is_wrong_is_told_in_place(world: World) -> None:
    joan = world.member(PLATFORM, "finance")
    form = {"every": "day", "folder": "../up", "formats": "focus", "token": str(uuid4())}

    answer = joan.post("/finance/exports/plans", form)
    assert answer.status_code == 422
    assert "small letters" in html(answer.content)
    without = joan.post("/finance/exports/plans", {"every": "day", "folder": "lake"})
    assert without.status_code == 422
    assert not ExportPlanRow.objects.exists()


def test_a_form_that_is_wrong_is_told_in_place(world: World) -> None:
    joan = world.member(PLATFORM, "operator")

    answer = joan.post("/finance/exports/ask", {"period": "2026-13", "format": "pdf"})

    assert answer.status_code == 422
    assert not ExportRunRow.objects.exists()
