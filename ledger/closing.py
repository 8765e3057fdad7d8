"""Closing a month: what is looked at before, and its exports, which are written once after it.

The apps above know what is left to do of a month's use; they hand their checks in at start
(`install`). The book of record adds its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from ledger import exports
from ledger.access import Actor
from ledger.commands.closing import freeze_exports
from ledger.domain.closing import Check, Point
from ledger.domain.closing_events import FrozenExport
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.periods import Period, read_period
from ledger.domain.refusal import Forbidden
from ledger.eventstore.port import EventStore, Meta, Position
from ledger.following import read_up_to
from ledger.models import PeriodRow
from ledger.queries import disagreements

Checking = Callable[[Period, datetime], Check]
"""Looks at one thing of a month, at a moment."""

EVERYTHING = Actor(tenant_id=PLATFORM_ID, roles=frozenset({"auditor"}), is_platform=True)
MONEY = "ledger.money"
INVOICES = "ledger.invoices"
"""Whose rows say on which invoice a charge is."""
MAPPING = "ledger.exports"
"""Whose rows say how a general ledger calls our accounts."""

POINTS_SHOWN = 10

_installed: tuple[Checking, ...] = ()


class PeriodsByPlatformOnly(Forbidden):
    """Only finance people and operators of the platform may close months and open them again."""


def need_to_close(actor: Actor) -> None:
    """Refuse whoever does not keep the platform's books.

    Raises: PeriodsByPlatformOnly.
    """
    if not actor.has_platform_money:
        raise PeriodsByPlatformOnly()


def install(checks: Sequence[Checking]) -> None:
    """Say what else is looked at before a month is closed."""
    global _installed
    _installed = tuple(checks)


def checklist(period: Period, *, now: datetime) -> list[Check]:
    """Look at all that has to be in order before a month is closed."""
    return [_balanced(), *(check(period, now) for check in _installed)]


def _balanced() -> Check:
    wrong = disagreements()
    return Check(
        name="trial-balance",
        title="Trial balance",
        passed=not wrong,
        words="; ".join(wrong[:3])
        or "Every entry, account and hold adds up, and all of it to zero.",
        left=len(wrong),
        points=tuple(Point(each) for each in wrong[:POINTS_SHOWN]),
    )


def exports_read_up_to() -> Position:
    """Return up to which event all rows are there that exports are made of."""
    return Position(min(read_up_to(name) for name in (MONEY, INVOICES, MAPPING)))


def freeze_closed(store: EventStore, *, now: datetime) -> int:
    """Write the exports of months that were closed since, and note what they are.

    They are made as of the event that closed the month, once its rows are there: nothing that is
    recorded later counts in it, so asking again gives the same bytes.

    Returns: how many months that were.
    """
    read, frozen = exports_read_up_to(), 0
    for row in PeriodRow.objects.filter(state="closed", exports=[]).order_by("period"):
        assert row.closed_position is not None
        if read < row.closed_position:
            continue
        period, position = read_period(row.period), Position(row.closed_position)
        freeze_exports(
            store,
            period,
            exports=[_frozen(name, period, position) for name in exports.FORMATS],
            by=Meta(actor="loop:closed-months"),
            now=now,
        )
        frozen += 1
    return frozen


def _frozen(name: str, period: Period, position: Position) -> FrozenExport:
    said = exports.manifest(EVERYTHING, name, period=period, position=position)
    return FrozenExport(
        format=said.format,
        version=said.version,
        position=said.position,
        rows=said.rows,
        bytes=said.bytes,
        sha256=said.sha256,
    )


def exports_that_differ() -> list[str]:
    """Return the exports of closed months that are not what they were when these were closed.

    Writes all of them again, so it is for `manage.py doctor`. One that a later version of the
    program writes in another form is left out.
    """
    wrong = []
    for row in PeriodRow.objects.filter(state="closed").order_by("period"):
        for was in row.exports:
            kind = exports.FORMATS.get(was["format"])
            if kind is None or kind.version != was["version"]:
                continue
            found = _frozen(was["format"], read_period(row.period), Position(was["position"]))
            if found.sha256 != was["sha256"]:
                wrong.append(f"{row.period}: {was['format']} is not what it was")
    return wrong
