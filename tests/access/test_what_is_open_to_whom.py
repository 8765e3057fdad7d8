"""Who sees what beside their own: probes for machines, leases for owners, nothing on the way."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings as django_settings
from django.test import Client
from django.utils import timezone

from config.web.csp import NOT_KEPT
from config.web.proxies import read_networks
from ledger.models import MemberRow, Person
from marketplace.models.leases import LeaseRow
from marketplace.queries import leases as queries
from tests.access.conftest import Caller, admit

STRANGER: dict[str, Any] = {"REMOTE_ADDR": "203.0.113.9"}


def governor() -> Caller:
    caller = admit("platform", "operator", scopes=("market:read",))
    MemberRow.objects.filter(user_id=caller.user_id).update(is_platform=True)
    return caller


@pytest.mark.django_db
def test_figures_are_for_who_runs_the_market() -> None:
    client = Client()
    token = {"Authorization": f"Bearer {governor().token}"}
    others = {"Authorization": f"Bearer {admit('acme', 'operator').token}"}

    assert client.get("/metrics").status_code == 200  # from the machine itself
    assert client.get("/metrics", **STRANGER).status_code == 403
    assert client.get("/metrics", headers=others, **STRANGER).status_code == 403
    assert client.get("/metrics", headers=token, **STRANGER).status_code == 200
    assert (
        client.get("/metrics", headers={"Authorization": "Bearer x"}, **STRANGER).status_code == 403
    )


@pytest.mark.django_db
def test_a_stranger_learns_whether_the_site_is_ready_and_not_why(settings: Any) -> None:
    told = Client().get("/readyz", **STRANGER)
    known = Client().get("/readyz")

    assert told.status_code == known.status_code
    assert set(told.json()) == {"status"}
    assert "checks" in known.json()
    settings.WATCHERS = read_networks("203.0.113.0/24")
    assert "checks" in Client().get("/readyz", **STRANGER).json()
    assert "checks" not in Client().get("/readyz").json()


@pytest.mark.django_db
@pytest.mark.parametrize(
    "path", ["/api/v1/me", "/api/v1/leases", "/api/v1/nothing", "/accounts/login/", "/leases", "/"]
)
def test_nobody_keeps_an_answer_on_the_way(path: str) -> None:
    caller = admit("acme", "operator")
    client = Client()
    client.force_login(Person.objects.get(id=caller.user_id))

    for answer in (caller.get(path), client.get(path), Client().get(path)):
        assert answer["Cache-Control"] == NOT_KEPT or "no-store" in answer["Cache-Control"]
        if answer["Cache-Control"] == NOT_KEPT:
            assert {"Cookie", "Authorization"} <= set(answer["Vary"].split(", "))


@pytest.mark.django_db
def test_static_files_are_kept() -> None:
    answer = Client().get("/static/offpeak.css")
    answer.close()

    assert "no-store" not in answer.get("Cache-Control", "")
    assert "Authorization" not in answer.get("Vary", "")


def leased(consumer: Caller, owner: Caller) -> LeaseRow:
    now = timezone.now()
    fields: dict[str, Any] = {
        "lease_id": uuid4(),
        "bid_id": uuid4(),
        "tenant_id": consumer.tenant_id,
        "subscriber_id": uuid4(),
        "owner_ids": [owner.tenant_id],
        "cost_centre": "CC-4711",
        "market": "main",
        "gpu_model": "H100-80GB",
        "gpus": 1,
        "gpu_uuids": ["GPU-1"],
        "host_ids": [uuid4()],
        "state": "closed",
        "close_reason": 301,
        "closed_at": now,
        "starts_at": now,
        "ends_at": now + timedelta(hours=1),
        "granted_at": now,
        "currency": "USD",
        "version": 1,
    }
    return make(fields)


def make(fields: dict[str, Any]) -> LeaseRow:
    """Fill what a row needs besides, by its column's kind."""
    for column in LeaseRow._meta.concrete_fields:
        if column.name in fields or column.null or column.has_default():
            continue
        kind = column.get_internal_type()
        empty: Any = "" if "Char" in kind or "Text" in kind else 0
        if "Array" in kind or "JSON" in kind:
            empty = []
        if kind == "DateTimeField":
            empty = timezone.now()
        fields[column.name] = False if kind == "BooleanField" else empty
    row = LeaseRow(**fields)
    row.save(force_insert=True)
    return row


@pytest.mark.django_db
def test_an_owner_sees_of_a_lease_what_it_needs_to_serve_it() -> None:
    consumer, owner = admit("consumer", "consumer"), admit("owner", "owner")
    row = leased(consumer, owner)
    path = f"/api/v1/leases/{row.lease_id}"

    own, served = consumer.get(path).json(), owner.get(path).json()
    listed = owner.get("/api/v1/leases").json()["data"]

    assert (own["cost_centre"], own["bid_id"]) == ("CC-4711", str(row.bid_id))
    for each in (served, *listed):
        assert (each["cost_centre"], each["bid_id"], each["subscriber_id"]) == (None, None, None)
        assert each["gpu_uuids"] == ["GPU-1"]
    assert owner.get(f"/api/v1/leases?bid_id={row.bid_id}").json()["data"] == []
    assert len(consumer.get(f"/api/v1/leases?bid_id={row.bid_id}").json()["data"]) == 1
    client = Client()
    client.force_login(Person.objects.get(id=owner.user_id))
    for page in ("/leases?show=all", f"/leases/{row.lease_id}"):
        content = client.get(page).content.decode()
        assert "H100-80GB" in content
        assert "CC-4711" not in content and str(row.bid_id) not in content


def test_who_governs_the_platform_sees_why(db: None) -> None:
    from ledger.access import actor_of_token

    row = leased(admit("consumer", "consumer"), admit("owner", "owner"))
    actor = actor_of_token(governor().token, now=timezone.now())

    assert queries.sees_why(actor, row)
    assert read_networks("127.0.0.1,::1") == django_settings.WATCHERS
