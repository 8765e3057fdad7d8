"""Plans by which exports are brought to finance: every day, or once a month is closed.

A plan is due for something that has a name: a day, or a closing of a month. What is brought for it
is fixed before anything is written, so whoever is killed on the way brings the same bytes later.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar, Literal, assert_never
from uuid import UUID

from ledger.domain.event import Event
from ledger.domain.ids import UserId
from ledger.domain.refusal import Invalid, Refusal, Unknown

WORDS_LENGTH_MAX = 300
FOLDER_LENGTH_MAX = 60
_FOLDER = re.compile(r"[a-z0-9][a-z0-9._-]*")

Every = Literal["day", "month"]
"""How often: the month so far after each day, or a month once it is closed."""


class ExportPlanUnknown(Unknown):
    """There is no such plan of exports."""


class ExportPlanOtherwise(Refusal):
    """This id is that of another plan.

    End that one, and make a new plan.
    """


class FolderUnreadable(Invalid):
    """A folder is a name of up to 60 small letters, digits, `.`, `_` and `-`, such as lake.

    It lies in the place that the operator set.
    """


class NothingPlanned(Invalid):
    """A plan brings at least one form of export."""


class ExportsPlanned(Event, name="ledger.exports-planned"):
    """From now on these forms are brought to a folder of finance's place, by themselves.

    Stream exportplan-<plan_id>. formats: their names. folder: below the operator's place.
    """

    plan_id: UUID
    every: Every
    formats: tuple[str, ...]
    folder: str
    by_user: UserId
    at: datetime


class ExportPlanEnded(Event, name="ledger.export-plan-ended"):
    """Nothing is brought by this plan any more."""

    plan_id: UUID
    by_user: UserId
    at: datetime


class PlannedExportsDue(Event, name="ledger.planned-exports-due"):
    """A plan is due: this month as of this event is what is brought for it.

    due: the day, as 2026-11-30, or a closing, as 2026-11-at-4711.
    """

    plan_id: UUID
    due: str
    period: str
    position: int
    at: datetime


class PlannedExportsBrought(Event, name="ledger.planned-exports-brought"):
    """All files of what was due and their manifest are at the target, whole."""

    plan_id: UUID
    due: str
    target: str
    at: datetime


class PlannedExportsNotBrought(Event, name="ledger.planned-exports-not-brought"):
    """They could not be brought; it is tried again. words: why, said once as long as it is the
    same."""

    plan_id: UUID
    due: str
    target: str
    words: str
    at: datetime


PlanEvent = (
    ExportsPlanned
    | ExportPlanEnded
    | PlannedExportsDue
    | PlannedExportsBrought
    | PlannedExportsNotBrought
)


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """One plan. due: the newest that it was due for; None: it never was. words: why that failed."""

    STREAM: ClassVar[str] = "exportplan"

    planned: ExportsPlanned
    ended: bool = False
    due: PlannedExportsDue | None = None
    brought: bool = False
    words: str = ""

    @classmethod
    def evolve(cls, state: ExportPlan | None, event: PlanEvent, /) -> ExportPlan:
        """Return the plan after `event`."""
        if isinstance(event, ExportsPlanned):
            return cls(event)
        assert state is not None, "a plan is made first"
        match event:
            case ExportPlanEnded():
                return replace(state, ended=True)
            case PlannedExportsDue():
                return replace(state, due=event, brought=False, words="")
            case PlannedExportsBrought():
                return replace(state, brought=True, words="")
            case PlannedExportsNotBrought():
                return replace(state, words=event.words)
            case _:
                assert_never(event)


def plan(known: ExportPlan | None, wanted: ExportsPlanned) -> Sequence[PlanEvent]:
    """Make a plan, once; asked again for the same, nothing changes.

    Raises: FolderUnreadable, NothingPlanned, ExportPlanOtherwise.
    """
    if len(wanted.folder) > FOLDER_LENGTH_MAX or not _FOLDER.fullmatch(wanted.folder):
        raise FolderUnreadable(given=wanted.folder[:40])
    if not wanted.formats:
        raise NothingPlanned()
    if known is None:
        return [wanted]
    before = known.planned
    if replace(wanted, at=before.at, by_user=before.by_user) != before:
        raise ExportPlanOtherwise(plan_id=wanted.plan_id)
    return []


def end(
    known: ExportPlan | None, plan_id: UUID, *, by_user: UserId, now: datetime
) -> Sequence[PlanEvent]:
    """End a plan; ending it twice is ending it once.

    Raises: ExportPlanUnknown.
    """
    if known is None:
        raise ExportPlanUnknown(plan_id=plan_id)
    return [] if known.ended else [ExportPlanEnded(plan_id=plan_id, by_user=by_user, at=now)]


def fall_due(known: ExportPlan | None, wanted: PlannedExportsDue) -> Sequence[PlanEvent]:
    """Fix what is brought for a day or a closing, once: what was fixed before stays.

    A day that could not be brought gives way to the next, which has all of it; a closing does not.

    Raises: ExportPlanUnknown.
    """
    if known is None:
        raise ExportPlanUnknown(plan_id=wanted.plan_id)
    before = known.due
    if known.ended or (before is not None and before.due == wanted.due):
        return []
    if before is not None and known.planned.every == "month":
        is_next = known.brought and wanted.position > before.position
        return [wanted] if is_next else []
    return [wanted]


def bring(
    known: ExportPlan | None, plan_id: UUID, due: str, *, target: str, now: datetime
) -> Sequence[PlanEvent]:
    """Note that what was due is there, once. Raises: ExportPlanUnknown."""
    if not _is_open(known, plan_id, due):
        return []
    return [PlannedExportsBrought(plan_id=plan_id, due=due, target=target, at=now)]


def fail(
    known: ExportPlan | None, plan_id: UUID, due: str, *, target: str, words: str, now: datetime
) -> Sequence[PlanEvent]:
    """Note why it is not, as often as the reason is another one. Raises: ExportPlanUnknown."""
    words = words[:WORDS_LENGTH_MAX]
    if not _is_open(known, plan_id, due) or (known is not None and known.words == words):
        return []
    return [PlannedExportsNotBrought(plan_id=plan_id, due=due, target=target, words=words, at=now)]


def _is_open(known: ExportPlan | None, plan_id: UUID, due: str) -> bool:
    if known is None:
        raise ExportPlanUnknown(plan_id=plan_id)
    return known.due is not None and known.due.due == due and not known.brought
