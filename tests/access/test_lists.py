"""Lists in pages, versions, and reading one's own write."""

from __future__ import annotations

import base64
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from ledger.domain.refusal import Refusal
from ledger.eventstore import default_store
from ledger.models import Checkpoint, SubscriberRow
from ledger.rest import VersionMoved, paginate
from ledger.rest.cursors import CursorUnreadable, LimitOutOfRange
from ledger.rest.versions import VersionUnreadable, guarded, need_version
from tests.access.conftest import Caller
from tests.access.probe import keep_note
from tests.conftest import NOON

NOTES = "/api/v1/notes"
ORDER = ("cost_centre", "-subscriber_id")


def unit(tenant_id: UUID, cost_centre: str, title: str = "x") -> SubscriberRow:
    return SubscriberRow.objects.create(
        subscriber_id=uuid4(),
        tenant_id=tenant_id,
        title=title,
        cost_centre=cost_centre,
        registered_at=NOON,
    )


def listed(limit: int, order: tuple[str, ...] = ORDER) -> list[UUID]:
    """Follow `next` to the end."""
    found: list[UUID] = []
    cursor: str | None = None
    while True:
        query = {"limit": str(limit)} | ({"cursor": cursor} if cursor else {})
        rows = SubscriberRow.objects.all()
        page = paginate(rows, lambda row: row.subscriber_id, order, query=query)
        assert len(page["data"]) <= limit
        found += page["data"]
        cursor = page["next"]
        if cursor is None:
            return found


class Pages(TestCase):
    """Whatever the rows and the length of a page."""

    @settings(max_examples=30, deadline=None)
    @given(st.lists(st.text("aé\"'%_ ", max_size=4), max_size=12), st.integers(1, 5))
    def test_pages_put_together_are_the_whole_list(self, centres: list[str], limit: int) -> None:
        """No row is lost or shown twice, also among equal keys."""
        tenant_id = uuid4()
        for centre in centres:
            unit(tenant_id, centre)

        whole = [row.subscriber_id for row in SubscriberRow.objects.order_by(*ORDER)]

        self.assertEqual(listed(limit), whole)
        self.assertEqual(listed(limit, ("-registered_at", "subscriber_id")), sorted(whole))

    @settings(max_examples=60, deadline=None)
    @given(
        st.text(max_size=60)
        | st.binary(max_size=60).map(lambda raw: base64.urlsafe_b64encode(raw).decode().rstrip("="))
    )
    def test_any_other_cursor_is_refused(self, cursor: str) -> None:
        """It neither fails nor shows another list."""
        with pytest.raises(CursorUnreadable):
            paginate(SubscriberRow.objects.all(), str, ORDER, query={"cursor": cursor})


@pytest.mark.parametrize(
    "values",
    [
        '["a"]',
        '["a","b"]',
        "[1,2]",
        '{"a":1}',
        '["a\\u0000","b"]',
        '["\\ud800","b"]',
        "[[],[]]",
        "[" * 400,
    ],
)
@pytest.mark.django_db
def test_a_forged_cursor_is_refused(values: str) -> None:
    forged = base64.urlsafe_b64encode(values.encode()).decode().rstrip("=")

    with pytest.raises(CursorUnreadable):
        paginate(SubscriberRow.objects.all(), str, ORDER, query={"cursor": forged})


@pytest.mark.parametrize("limit", ["0", "201", "-1", "ten", "1e1", "", "9" * 400, "\u0665"])
def test_a_page_length_out_of_range_is_refused(limit: str) -> None:
    with pytest.raises(LimitOutOfRange):
        paginate(SubscriberRow.objects.none(), str, ORDER, query={"limit": limit})


@pytest.mark.urls("tests.access.probe")
def test_a_list_shows_the_actor_s_own_rows_only(ada: Caller, bob: Caller) -> None:
    for number in range(3):
        unit(ada.tenant_id, str(number), f"ada {number}")
    unit(bob.tenant_id, "0", "bob 0")

    first = ada.get(f"{NOTES}?limit=2").json()
    second = ada.get(f"{NOTES}?limit=2&cursor={first['next']}").json()

    assert (first["data"], second["data"]) == (["ada 0", "ada 1"], ["ada 2"])
    assert second["next"] is None
    assert bob.get(f"{NOTES}?cursor={first['next']}").json()["data"] == []


@pytest.mark.urls("tests.access.probe")
def test_after_waits_for_the_read_model(ada: Caller, monkeypatch: Any) -> None:
    position = ada.post(NOTES, {"text": "hello"}).json()["position"]
    monkeypatch.setattr("ledger.rest.endpoint.READ_WAIT_SECONDS", 0.02)
    Checkpoint.objects.create(name="probe", position=position - 1)

    too_early = ada.get(f"{NOTES}?after={position}")
    Checkpoint.objects.update(position=position)
    in_time = ada.get(f"{NOTES}?after={position}")

    assert (too_early.status_code, too_early["Retry-After"]) == (503, "1")
    assert too_early.json()["code"] == "not-read-yet"
    assert in_time.status_code == 200


@pytest.mark.urls("tests.access.probe")
@pytest.mark.parametrize("after", ["-1", "1.0", "x", "", "9" * 30, "999999999999", "\u0665"])
def test_after_takes_only_a_position_that_exists(ada: Caller, after: str) -> None:
    response = ada.get(f"{NOTES}?after={after}")

    assert (response.status_code, response.json()["code"]) == (422, "position-unreadable")


@pytest.mark.urls("tests.access.probe")
def test_if_match_keeps_one_from_overwriting_what_one_has_not_seen(ada: Caller) -> None:
    ada.post(NOTES, {"text": "first"})

    stale = ada.post(NOTES, {"text": "second"}, If_Match='"0"')
    fresh = ada.post(NOTES, {"text": "second"}, If_Match='"1"')
    anything = ada.post(NOTES, {"text": "third"}, If_Match="*")
    nonsense = ada.post(NOTES, {"text": "third"}, If_Match="1")

    assert (stale.status_code, stale.json()["details"]) == (412, {"version": 1})
    assert (fresh.status_code, anything.status_code) == (201, 201)
    assert (nonsense.status_code, nonsense.json()["code"]) == (422, "version-unreadable")


def test_the_version_is_checked_at_the_append_not_before(ada: Caller) -> None:
    """Somebody else writes between our look at the version and our decision."""
    from dataclasses import replace

    from tests.conftest import SOMEBODY

    store = default_store()
    by = replace(SOMEBODY, tenant_id=ada.tenant_id)
    keep_note(store, by=by, text="first")
    ours = guarded(store, f"probe-{ada.tenant_id}", '"1"')
    keep_note(store, by=by, text="somebody else's")

    with pytest.raises(VersionMoved):
        keep_note(ours, by=by, text="ours")


@pytest.mark.parametrize(
    ("if_match", "refusal"),
    [
        (None, None),
        ("*", None),
        ('"7"', None),
        ('"8"', VersionMoved),
        ('W/"7"', VersionUnreadable),
        ('"7","8"', VersionUnreadable),
        ('"x"', VersionUnreadable),
    ],
)
def test_if_match_names_one_version(if_match: str | None, refusal: type[Refusal] | None) -> None:
    if refusal is None:
        need_version(if_match, 7)
        return
    with pytest.raises(refusal):
        need_version(if_match, 7)
