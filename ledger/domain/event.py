"""What an event is: a fact with a permanent name. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import get_annotations
from typing import ClassVar, dataclass_transform

from ledger.domain.making import made_quickly

EVENT_TYPES: dict[str, type[Event]] = {}
"""Every event type by its stored name. Filled when a module of events is imported."""


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Event:
    """Something that happened. Its class is past tense, its `name` is for ever.

    Fields are str, int, bool, UUID, aware datetime, None, tuples and frozen dataclasses of
    those: what the codec can write as JSON and read back equal. When the fields of a type
    change, raise its `version` and register an upcaster (`ledger/eventstore/codec.py`). Where
    fields with defaults came and nothing else changed, say `grown_from=` the oldest version that
    this is true of: those are read as they are.
    """

    name: ClassVar[str]
    schema_version: ClassVar[int]
    grown_from: ClassVar[int]

    def __init_subclass__(
        cls, *, name: str, version: int = 1, grown_from: int | None = None
    ) -> None:
        assert name not in EVENT_TYPES, f"{name} already names {EVENT_TYPES[name]}"
        owned = get_annotations(cls)
        assert "name" not in owned, f"{cls.__name__}.name is its stored name, and no field"
        cls.name = name
        cls.schema_version = version
        cls.grown_from = version if grown_from is None else grown_from
        EVENT_TYPES[name] = made_quickly(dataclass(frozen=True, kw_only=True)(cls))
