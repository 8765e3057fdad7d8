"""A run of an export: asked for, then made or failed, once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar, Literal, assert_never
from uuid import UUID

from ledger.domain.export_events import (
    CurrencySum,
    ExportAsked,
    ExportEvent,
    ExportFailed,
    ExportMade,
)
from ledger.domain.refusal import Refusal, Unknown

WORDS_LENGTH_MAX = 200

State = Literal["asked", "made", "failed"]


class ExportUnknown(Unknown):
    """There is no such export, or you may not see it."""


class ExportAskedOtherwise(Refusal):
    """This id is that of another export.

    Ask with a new one.
    """


class ExportNotMade(Refusal):
    """The file is not there yet.

    Wait until its state is `made`.
    """


@dataclass(frozen=True, slots=True)
class ExportRun:
    """One run."""

    STREAM: ClassVar[str] = "export"

    asked: ExportAsked
    state: State = "asked"

    @classmethod
    def evolve(cls, state: ExportRun | None, event: ExportEvent, /) -> ExportRun:
        """Return the run after `event`."""
        match event:
            case ExportAsked():
                return cls(event)
            case ExportMade():
                assert state is not None
                return replace(state, state="made")
            case ExportFailed():
                assert state is not None
                return replace(state, state="failed")
            case _:
                assert_never(event)


def ask(known: ExportRun | None, wanted: ExportAsked) -> Sequence[ExportEvent]:
    """Ask for an export; asked again for the same, by whoever, nothing changes.

    Raises: ExportAskedOtherwise.
    """
    if known is None:
        return [wanted]
    told = replace(wanted, at=known.asked.at, asked_by=known.asked.asked_by)
    if replace(told, position=known.asked.position) != known.asked:
        raise ExportAskedOtherwise(export_id=wanted.export_id)
    return []


def finish(
    known: ExportRun | None,
    export_id: UUID,
    *,
    version: str,
    rows: int,
    sums: Sequence[tuple[str, int]],
    size: int,
    sha256: str,
    now: datetime,
) -> Sequence[ExportEvent]:
    """Note that it was made; the first who says so counts.

    Raises: ExportUnknown.
    """
    if _running(known, export_id) is None:
        return []
    return [
        ExportMade(
            export_id=export_id,
            version=version,
            rows=rows,
            sums=tuple(CurrencySum(currency, nanos) for currency, nanos in sums),
            bytes=size,
            sha256=sha256,
            at=now,
        )
    ]


def fail(
    known: ExportRun | None, export_id: UUID, *, words: str, now: datetime
) -> Sequence[ExportEvent]:
    """Note that it could not be made.

    Raises: ExportUnknown.
    """
    if _running(known, export_id) is None:
        return []
    return [ExportFailed(export_id=export_id, words=words[:WORDS_LENGTH_MAX], at=now)]


def _running(known: ExportRun | None, export_id: UUID) -> ExportRun | None:
    if known is None:
        raise ExportUnknown(export_id=export_id)
    return known if known.state == "asked" else None
