"""The constructor that frozen dataclasses get, and ids by name: cheaper, and no different."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, field, replace
from uuid import UUID, uuid4, uuid5

import pytest

from ledger.domain.event import EVENT_TYPES
from ledger.domain.ids import named, text_of
from ledger.domain.making import made_quickly, maker


@made_quickly
@dataclass(frozen=True, slots=True)
class Slotted:
    """A value in slots."""

    first: int
    second: str = "two"

    def __post_init__(self) -> None:
        assert self.first >= 0, "negative"


@made_quickly
@dataclass(frozen=True, kw_only=True)
class Open:
    """A value without slots. Its first field has a default, the second has none."""

    first: int = 1
    second: str


@pytest.mark.parametrize("made", [Slotted(3), Open(second="two", first=3)])
def test_what_is_made_has_its_fields_and_defaults_and_is_frozen(made: Slotted | Open) -> None:
    assert (made.first, made.second) == (3, "two")
    with pytest.raises(FrozenInstanceError):
        made.first = 4  # type: ignore[misc]
    assert replace(made, first=5).first == 5
    assert made == copy.deepcopy(made) == pickle.loads(pickle.dumps(made))
    assert hash(made) == hash(replace(made)) and "first=3, second='two'" in repr(made)


def test_the_constructor_takes_what_the_dataclass_declares() -> None:
    assert str(inspect.signature(Open)).startswith("(*, first: 'int' = 1, second: 'str') ->")
    assert Slotted(second="x", first=0) == Slotted(0, "x")
    with pytest.raises(TypeError):
        Open(1, "two")  # type: ignore[misc]
    with pytest.raises(TypeError, match="second"):
        Open()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="third"):
        Slotted(1, third=3)  # type: ignore[call-arg]


def test_what_is_checked_after_making_is_still_checked() -> None:
    with pytest.raises(AssertionError, match="negative"):
        Slotted(-1)


def test_a_class_whose_constructor_does_more_than_store_keeps_it() -> None:
    @dataclass(frozen=True)
    class Fresh:
        seen: list[int] = field(default_factory=list)

    @dataclass(frozen=True)
    class Partly:
        first: int
        later: int = field(init=False, default=2)

    before = (Fresh.__init__, Partly.__init__)

    made_quickly(Fresh)
    made_quickly(Partly)

    assert before == (Fresh.__init__, Partly.__init__)
    assert Fresh().seen is not Fresh().seen and Partly(1).later == 2


def test_every_event_is_made_quickly_and_stays_as_it_is() -> None:
    assert EVENT_TYPES
    for kind in EVENT_TYPES.values():
        assert "_fields" in kind.__init__.__code__.co_varnames, kind
        with pytest.raises(FrozenInstanceError):
            kind.__new__(kind).at = None  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", [Slotted, Open])
def test_what_a_maker_makes_is_as_if_its_class_had_made_it(kind: Callable[..., Open]) -> None:
    make = maker(kind)

    made = make(first=3, second="x")

    assert make is not kind
    assert type(made) is kind and made == kind(first=3, second="x")
    assert repr(made) == repr(kind(first=3, second="x"))
    assert hash(made) == hash(copy.deepcopy(made)) == hash(pickle.loads(pickle.dumps(made)))
    with pytest.raises(FrozenInstanceError):
        made.first = 4  # type: ignore[misc]
    with pytest.raises(TypeError):
        make(first=3, third=3)


def test_a_maker_knows_defaults_and_checks_what_its_class_does() -> None:
    assert maker(Slotted)(3) == Slotted(3) and maker(Open)(second="x") == Open(second="x")
    with pytest.raises(AssertionError, match="negative"):
        maker(Slotted)(-1)


def test_a_maker_of_a_class_that_does_more_than_store_is_the_class() -> None:
    @dataclass(frozen=True)
    class Fresh:
        seen: list[int] = field(default_factory=list)

    @dataclass(frozen=True, slots=True)
    class Longer(Slotted):
        third: int = 3

    assert maker(Fresh) is Fresh and maker(Longer) is Longer


def test_an_id_by_name_is_the_one_of_the_standard_library() -> None:
    for namespace in (UUID(int=0), UUID(int=(1 << 128) - 1), *[uuid4() for _ in range(50)]):
        id_of = named(namespace)
        for name in ("", "round1", "größer", str(uuid4())):
            expected = uuid5(namespace, name)
            made = id_of(name)
            assert made == expected and hash(made) == hash(expected) and made.version == 5
            assert made.is_safe == expected.is_safe
            assert pickle.loads(pickle.dumps(made)) == expected
            assert text_of(made) == str(expected)
        assert text_of(namespace) == str(namespace)
