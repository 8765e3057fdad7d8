"""An event that was stored in an old version is read as the present one, through every step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ledger.domain.event import EVENT_TYPES, Event
from ledger.eventstore import codec


@pytest.fixture
def named() -> Iterator[type[Event]]:
    """An event type in its third version: `label` became `title`, then `lang` came."""

    class Named(Event, name="test.named", version=3):
        """Something got a name."""

        title: str
        lang: str

    yield Named
    del EVENT_TYPES["test.named"]
    for key in [key for key in codec._upcasters if key[0] == "test.named"]:
        del codec._upcasters[key]
    codec._present.pop(("test.named", 3), None)


def second(fields: dict[str, Any]) -> dict[str, Any]:
    return {"title": fields["label"]}


def third(fields: dict[str, Any]) -> dict[str, Any]:
    return {**fields, "lang": "en"}


def test_each_old_version_goes_through_the_steps_after_it(named: type[Any]) -> None:
    codec.upcaster("test.named", from_version=1)(second)
    codec.upcaster("test.named", from_version=2)(third)

    wanted = named(title="Ada", lang="en")

    assert codec.decode("test.named", 1, b'{"label":"Ada"}') == wanted
    assert codec.decode("test.named", 2, b'{"title":"Ada"}') == wanted
    assert codec.decode("test.named", 3, b'{"title":"Ada","lang":"en"}') == wanted
    assert codec.missing_upcasters() == []


def test_a_version_without_its_step_is_named_at_the_start(named: type[Any]) -> None:
    codec.upcaster("test.named", from_version=2)(third)

    assert codec.missing_upcasters() == ["test.named version 1"]


def test_an_event_of_a_newer_program_is_not_guessed_at(named: type[Any]) -> None:
    with pytest.raises(codec.UnknownEventType):
        codec.decode("test.named", 4, b"{}")
    with pytest.raises(codec.UnknownEventType):
        codec.decode("test.never-heard-of", 1, b"{}")


def test_a_version_that_only_lacks_fields_with_defaults_is_read_as_it_is() -> None:
    class Grown(Event, name="test.grown", version=3, grown_from=2):
        """Something has two more fields than it had."""

        title: str
        lang: str = "en"

    try:
        assert codec.decode("test.grown", 2, b'{"title":"a"}') == Grown(title="a")
        assert codec.decode("test.grown", 3, b'{"title":"a","lang":"de"}') == Grown(
            title="a", lang="de"
        )
        assert codec.missing_upcasters() == ["test.grown version 1"]
    finally:
        del EVENT_TYPES["test.grown"]
        for version in (2, 3):
            codec._present.pop(("test.grown", version))
