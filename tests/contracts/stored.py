"""Golden records: one stored example of every event type and version, as first written.

`python -m tests.contracts.stored` adds examples of types and versions that have none yet. It never
changes one that is there: those are what stores in the field hold.
"""

from __future__ import annotations

import dataclasses
import json
import os
import typing
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from types import UnionType
from typing import Any, Literal
from uuid import UUID

from ledger.domain.event import EVENT_TYPES
from ledger.eventstore import codec

GOLDEN = Path(__file__).parent / "stored_events.json"
NOON = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)


def own_types() -> dict[str, Any]:
    """Return every event type of the product, without those that tests define."""
    return {name: kind for name, kind in EVENT_TYPES.items() if "tests." not in kind.__module__}


def example(kind: Any, name: str = "") -> Any:
    """Return a value of a field's type; the same each time."""
    kind = getattr(kind, "__supertype__", kind)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (UnionType, typing.Union):
        return example(next(each for each in arguments if each is not type(None)), name)
    if origin is Literal:
        return arguments[0]
    if origin is tuple:
        parts = [each for each in arguments if each is not Ellipsis]
        return tuple(example(each, name) for each in parts)
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        values = {
            field.name: example(hints[field.name], field.name) for field in dataclasses.fields(kind)
        }
        return typing.cast(Any, kind)(**values)
    plain: dict[Any, Any] = {
        UUID: UUID(int=1),
        datetime: NOON + timedelta(hours=8) if name in ("ends_at", "until", "stop_at") else NOON,
        date: date(2026, 1, 5),
        time: time(20),
        bool: True,
        int: 7,
        str: "USD" if name == "currency" else name or "text",
    }
    return plain[kind]


def main() -> None:
    """Add what is missing and print its names."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    import django

    django.setup()
    import config.wiring  # noqa: F401  # imports every app, so that every event type is registered

    golden: dict[str, dict[str, Any]] = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    for name, kind in sorted(own_types().items()):
        versions = golden.setdefault(name, {})
        if str(kind.schema_version) not in versions:
            versions[str(kind.schema_version)] = json.loads(codec.encode(example(kind)))
            print(f"added {name} version {kind.schema_version}")
    GOLDEN.write_text(json.dumps(golden, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
