"""Secrets are set and removed on a page that never shows a value."""

from __future__ import annotations

from uuid import uuid4

import pytest
from django.utils import timezone

from ledger.vault import default_vault
from marketplace import secrets
from marketplace.models.secrets import SecretRow
from tests.pages.reading import html
from tests.pages.world import BY, CONSUMER, OWNER, World

pytestmark = pytest.mark.django_db

WHERE = "/settings/secrets"
VALUE = "hf_first\r\nsecond"


def test_a_secret_is_set_shown_by_its_name_alone_and_removed(world: World) -> None:
    consumer = world.member(CONSUMER, "consumer")

    assert "No secrets yet" in html(consumer.get(WHERE).content)
    assert consumer.post(WHERE, {"name": "MODEL_KEY", "value": VALUE}).status_code == 302
    world.settle()
    page = html(consumer.get(WHERE).content)

    assert "MODEL_KEY" in page and "by Cirrus consumer" in page and "0 bids" in page
    assert "hf_first" not in page
    assert consumer.post(WHERE, {"name": "MODEL_KEY", "value": "other"}).status_code == 302
    world.settle()
    assert SecretRow.objects.get().version == 2
    assert WHERE in html(consumer.get("/settings").content)
    assert consumer.post(f"{WHERE}/remove", {"name": "MODEL_KEY"}).status_code == 302
    world.settle()
    assert "No secrets yet" in html(consumer.get(WHERE).content)


def test_lines_of_a_value_end_as_in_a_file(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[str] = []
    set_secret = secrets.set_secret

    def noted(*given: object, **more: object) -> object:
        kept.append(str(given[4]))
        return set_secret(*given, **more)  # type: ignore[arg-type]  # as they were given

    monkeypatch.setattr(secrets, "set_secret", noted)

    world.member(CONSUMER, "consumer").post(WHERE, {"name": "KEY", "value": f" {VALUE}\r\n"})

    assert kept == [" hf_first\nsecond\n"]


def test_what_is_refused_says_why_and_sends_no_value_back(world: World) -> None:
    consumer = world.member(CONSUMER, "consumer")

    for said in (
        {"name": "1ST", "value": "hf_value"},
        {"name": "", "value": "hf_value"},
        {"name": "BIG", "value": "hf_value" * 5_000},
        {"name": "EMPTY", "value": ""},
    ):
        answer = consumer.post(WHERE, said)
        assert answer.status_code == 422
        assert "hf_value" not in answer.content.decode()
    assert consumer.post(f"{WHERE}/remove", {"name": "NOT_THERE"}).status_code == 422


def test_secrets_are_for_those_who_run_work_in_their_own_organisation(world: World) -> None:
    secrets.set_secret(
        world.store,
        default_vault(),
        world.tenant(CONSUMER),
        "MODEL_KEY",
        "value",
        user_id=None,
        by=BY,
        now=timezone.now(),
    )
    world.settle()

    assert "MODEL_KEY" not in html(world.member(OWNER, "consumer").get(WHERE).content)
    theirs = world.member(OWNER, "consumer").post(f"{WHERE}/remove", {"name": "MODEL_KEY"})
    assert theirs.status_code == 422
    assert SecretRow.objects.filter(name="MODEL_KEY").exists()
    assert "a program" in html(world.member(CONSUMER, "consumer").get(WHERE).content)
    finance = world.member(CONSUMER, "finance")
    assert finance.get(WHERE).status_code == 403
    assert finance.post(WHERE, {"name": f"X{uuid4().hex}", "value": "x"}).status_code == 403
