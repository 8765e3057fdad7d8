"""The window grid: rows are the GPUs of a host, columns slots of time, cells what holds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from ledger.domain.span import Window
from listings.domain.divisions import card_of

SLOTS = 48
SLOT = timedelta(minutes=30)
MINUTE = timedelta(minutes=1)
NIGHT_FROM, NIGHT_UNTIL = 20, 6


@dataclass(frozen=True, slots=True)
class Held:
    """A span of a GPU that is not free. rank: who wins where two overlap, highest first."""

    window: Window
    state: str
    text: str
    detail: str
    href: str
    rank: int


@dataclass(frozen=True, slots=True)
class Cell:
    """One free slot, or a run of slots that one thing holds (`state` says what)."""

    state: str = ""
    span: int = 1
    text: str = ""
    detail: str = ""
    title: str = ""
    href: str = ""
    hour: bool = False
    night: bool = False


@dataclass(frozen=True, slots=True)
class GridRow:
    """One GPU, or share of one. key: the GPU's UUID, what the form sends."""

    key: str
    name: str
    detail: str
    cells: list[Cell]


@dataclass(frozen=True, slots=True)
class Head:
    """The label over the slots of one hour."""

    text: str
    span: int


@dataclass(frozen=True, slots=True)
class Grid:
    """What the template draws. starts: wall times of the slots, and of the end of the last."""

    label: str
    starts: list[str]
    heads: list[Head]
    rows: list[GridRow]
    slots: range = field(default=range(SLOTS))


def build_grid(
    gpus: Sequence[tuple[str, str, str]],
    held: Mapping[str, Sequence[Held]],
    *,
    since: datetime,
    zone: ZoneInfo,
    now: datetime,
) -> Grid:
    """Return the grid of a day of half hours from `since` on.

    gpus: key, name and detail of each row. held: by key, in any order.
    """
    moments = [since.astimezone(UTC) + SLOT * number for number in range(SLOTS + 1)]
    walls = [moment.astimezone(zone) for moment in moments]
    return Grid(
        label=f"Windows from {walls[0]:%A %-d %B %H:%M} to {walls[-1]:%A %H:%M}, times in {zone}",
        starts=[f"{wall:%Y-%m-%dT%H:%M}" for wall in walls],
        heads=[
            Head(f"{wall:%H}" if not wall.minute else f"{wall:%H:%M}", 2)
            for wall in walls[:SLOTS:2]
        ],
        rows=[
            GridRow(card_of(key), name, detail, _cells(held.get(key, ()), moments, walls, now))
            for key, name, detail in gpus
        ],
    )


def _hour_text(wall: datetime) -> str:
    """Write the hour over two slots; whole where clocks were changed by half an hour."""
    return f"{wall:%H:%M}" if wall.minute else f"{wall:%H}"


def _cells(
    held: Sequence[Held], moments: list[datetime], walls: list[datetime], now: datetime
) -> list[Cell]:
    cells: list[Cell] = []
    at = 0
    ranked = sorted(held, key=lambda each: -each.rank)
    holders = [_holder(ranked, moments[n], moments[n + 1]) for n in range(SLOTS)]
    while at < SLOTS:
        holder = holders[at]
        hour = walls[at].minute < SLOT // MINUTE
        if holder is None:
            if moments[at + 1] <= now:
                cells.append(Cell(state="past", hour=hour, title="past"))
            else:
                night = walls[at].hour >= NIGHT_FROM or walls[at].hour < NIGHT_UNTIL
                cells.append(Cell(hour=hour, night=night))
            at += 1
            continue
        end = at
        while end < SLOTS and holders[end] is holder:
            end += 1
        title = f"{holder.text} {holder.detail}".strip()
        cells.append(
            Cell(
                state=holder.state,
                span=end - at,
                text=holder.text,
                detail=holder.detail,
                title=title,
                href=holder.href,
                hour=hour,
            )
        )
        at = end
    return cells


def _holder(ranked: Sequence[Held], starts: datetime, ends: datetime) -> Held | None:
    return next(
        (h for h in ranked if h.window.starts_at < ends and starts < h.window.ends_at), None
    )
