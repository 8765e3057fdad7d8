"""One time axis for all that is known of a lease: numbers in, places and texts out.

Places along the axis are in per cent of its length, so that the picture is as wide as the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

POINTS_MAX = 96
"""So many points are drawn at most, however long a lease is."""
GPUS_HEIGHT, MEMORY_HEIGHT, COST_HEIGHT = 56, 32, 40
GPUS_FOOT, MEMORY_FOOT = 76, 138
"""Where the bars of a track stand, in pixels from the top of the picture."""
COST_WIDTH = 1_000
NARROW_PX = 300
"""The width of the picture on a phone: marks that would touch there are drawn as one."""
MARK_GAP_PX = 3
TICKS = 4
SHORT_MS = 600_000
"""The times of a lease that is shorter are told to the second."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured in one of the equal parts of a lease's time.

    granted_ms: GPU-milliseconds that are proved; 0: nothing was measured. used_ms, memory_mib:
    None where the GPUs cannot tell.
    """

    at: int
    granted_ms: int
    used_ms: int | None
    memory_mib: int | None


@dataclass(frozen=True, slots=True)
class Upright:
    """A bar, in pixels from the top of the picture."""

    top: float
    height: float


@dataclass(frozen=True, slots=True)
class Point:
    """A part of the axis in which something was measured, as bars.

    gpus, used: GPUs on average. cost_nanos: of all that was granted up to its end.
    """

    starts_ms: int
    ends_ms: int
    x: float
    width: float
    gpus: float
    used: float | None
    memory_mib: int | None
    cost_nanos: int
    granted: Upright
    busy: Upright
    memory: Upright


@dataclass(frozen=True, slots=True)
class Gap:
    """A part in which the work ran and nothing was measured."""

    starts_ms: int
    ends_ms: int
    x: float
    width: float
    is_gap: bool = True


@dataclass(frozen=True, slots=True)
class Mark:
    """Where something happened: the numbers of the first and last event that lie there."""

    x: float
    first: int
    last: int
    titles: tuple[str, ...]

    @property
    def text(self) -> str:
        """Return what the mark says."""
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"

    @property
    def width(self) -> int:
        """Return how wide its text is drawn, in pixels."""
        return 12 + 6 * len(self.text)

    @property
    def begins(self) -> float:
        """Return where it begins on a phone, in pixels."""
        return (NARROW_PX - self.width) * self.x / 100

    @property
    def left(self) -> float:
        """Return where it begins beside its place: at the edges it stays within the picture."""
        return -round(self.width * self.x / 100, 1)

    @property
    def middle(self) -> float:
        """Return where the middle of its text is."""
        return self.left + self.width / 2


@dataclass(frozen=True, slots=True)
class Tick:
    """A time on the axis. side: where its text stands, `start`, `middle` or `end`."""

    x: float
    at_ms: int
    side: str


@dataclass(frozen=True, slots=True)
class Axis:
    """The picture. cost: a path in a box of COST_WIDTH by COST_HEIGHT; empty: nothing was charged.

    now: where the present is; None: the lease is over, or has not begun.
    """

    points: list[Point]
    gaps: list[Gap]
    marks: list[Mark]
    ticks: list[Tick]
    saved: list[float]
    cost: str
    ahead: str
    now: float | None
    is_short: bool
    is_use_known: bool
    gpus: int
    memory_most_mib: int | None

    @property
    def rows(self) -> list[Point | Gap]:
        """Return points and gaps in order of time, as a table lists them."""
        return sorted([*self.points, *self.gaps], key=lambda each: each.starts_ms)


@dataclass(frozen=True, slots=True)
class Price:
    """What granted time costs: per GPU-hour, and of the whole lease at most."""

    nanos_per_gpu_hour: int
    at_most_nanos: int

    def of(self, gpu_ms: int) -> int:
        """Return the cost of so much, in nano-units."""
        return self.nanos_per_gpu_hour * gpu_ms // 3_600_000


@dataclass(frozen=True, slots=True)
class Scale:
    """The time of a lease in `count` equal parts. gpus: those that fill the height."""

    starts_ms: int
    ends_ms: int
    count: int
    gpus: int

    @property
    def length_ms(self) -> int:
        """Return the length of all."""
        return self.ends_ms - self.starts_ms

    def edge(self, at: int) -> int:
        """Return where a part begins."""
        return self.starts_ms + self.length_ms * at // self.count

    def x(self, at_ms: int) -> float:
        """Return a place in per cent; what lies outside is at the edge."""
        return round(min(1.0, max(0.0, (at_ms - self.starts_ms) / self.length_ms)) * 100, 2)


def points_for(length_ms: int, shortest_ms: int) -> int:
    """Return into how many parts a length is cut, so that something falls into each."""
    return min(POINTS_MAX, max(1, length_ms // max(1, shortest_ms)))


def axis_of(
    measured: Sequence[Measured],
    scale: Scale,
    *,
    price: Price,
    events: Sequence[tuple[int, str]] = (),
    saved: Sequence[int] = (),
    ran: tuple[int, int] | None = None,
    now_ms: int | None = None,
) -> Axis:
    """Lay out what was measured and what happened.

    events: when and what, oldest first; they are numbered from 1. saved: when checkpoints were
    reported. ran: between when the work ran as far as is known; None: it never did. now_ms: while
    the lease goes on.
    """
    known = {each.at: each for each in measured if each.granted_ms > 0}
    most = max((each.memory_mib or 0 for each in known.values()), default=0)
    points: list[Point] = []
    granted_ms = 0
    for at in sorted(known):
        each, since, until = known[at], scale.edge(at), scale.edge(at + 1)
        granted_ms += each.granted_ms
        # A part that is not over yet, or in which the work began, is as wide as it is long so far.
        since, until = _within(since, until, ran)
        length = max(1, until - since)
        gpus = min(float(scale.gpus), each.granted_ms / length)
        used = None if each.used_ms is None else min(gpus, each.used_ms / length)
        points.append(
            Point(
                starts_ms=since,
                ends_ms=until,
                x=scale.x(since),
                width=round(max(0.2, scale.x(until) - scale.x(since)), 2),
                gpus=gpus,
                used=used,
                memory_mib=each.memory_mib,
                cost_nanos=price.of(granted_ms),
                granted=_upright(gpus, scale.gpus, GPUS_FOOT, GPUS_HEIGHT),
                busy=_upright(used or 0, scale.gpus, GPUS_FOOT, GPUS_HEIGHT),
                memory=_upright(each.memory_mib or 0, most, MEMORY_FOOT, MEMORY_HEIGHT),
            )
        )
    now = None if now_ms is None or now_ms < scale.starts_ms else scale.x(now_ms)
    return Axis(
        points=points,
        gaps=_gaps(set(known), scale, ran),
        marks=_marks(events, scale),
        ticks=_ticks(scale),
        saved=_thinned([scale.x(each) for each in saved]),
        cost=_cost(points, price),
        ahead=_ahead(points, price) if now is not None else "",
        now=now,
        gpus=scale.gpus,
        is_short=scale.length_ms < SHORT_MS,
        is_use_known=any(each.used is not None for each in points),
        memory_most_mib=most or None,
    )


def _within(since: int, until: int, ran: tuple[int, int] | None) -> tuple[int, int]:
    if ran is None:
        return since, until
    inner = max(since, ran[0]), min(until, ran[1])
    return inner if inner[0] < inner[1] else (since, until)


def _upright(value: float, most: float, foot: int, height: int) -> Upright:
    high = round(min(1.0, value / most) * height, 1) if most else 0.0
    return Upright(round(foot - high, 1), high)


def _gaps(known: set[int], scale: Scale, ran: tuple[int, int] | None) -> list[Gap]:
    """Return the runs of whole parts in which the work ran and nothing is known."""
    if ran is None:
        return []
    found: list[tuple[int, int]] = []
    for at in range(scale.count):
        since, until = scale.edge(at), scale.edge(at + 1)
        if at in known or since < ran[0] or until > ran[1]:
            continue
        if found and found[-1][1] == since:
            since = found.pop()[0]
        found.append((since, until))
    return [
        Gap(since, until, scale.x(since), round(scale.x(until) - scale.x(since), 2))
        for since, until in found
    ]


def _marks(events: Sequence[tuple[int, str]], scale: Scale) -> list[Mark]:
    marks: list[Mark] = []
    for number, (at_ms, title) in enumerate(events, start=1):
        mark = Mark(scale.x(at_ms), number, number, (title,))
        while marks and mark.begins < marks[-1].begins + marks[-1].width + MARK_GAP_PX:
            near = marks.pop()
            mark = Mark(near.x, near.first, number, (*near.titles, *mark.titles))
        marks.append(mark)
    return marks


def _ticks(scale: Scale) -> list[Tick]:
    sides = {0: "start", TICKS: "end"}
    return [
        Tick(
            round(number * 100 / TICKS, 2),
            scale.starts_ms + scale.length_ms * number // TICKS,
            sides.get(number, "middle"),
        )
        for number in range(TICKS + 1)
    ]


def _thinned(places: Sequence[float]) -> list[float]:
    """Return places that can be told apart: a work may save itself every minute."""
    found: list[float] = []
    for each in sorted(places):
        if not found or each - found[-1] >= 1.0:
            found.append(each)
    return found


def _cost(points: Sequence[Point], price: Price) -> str:
    if not points or not price.at_most_nanos:
        return ""
    path, last = f"M{_wide(points[0].x)} {COST_HEIGHT}", points[0].x
    for each in points:
        if each.x > last:
            path += f"H{_wide(each.x)}"
        last = each.x + each.width
        path += f"L{_wide(last)} {_up(each.cost_nanos, price)}"
    return f"{path}V{COST_HEIGHT}Z"


def _ahead(points: Sequence[Point], price: Price) -> str:
    """Return the line from what it costs so far to what it costs at most."""
    if not points or not price.at_most_nanos:
        return ""
    last = points[-1]
    height = _up(last.cost_nanos, price)
    top = _up(price.at_most_nanos, price)
    return f"M{_wide(last.x + last.width)} {height}L{COST_WIDTH} {top}"


def _wide(x: float) -> str:
    return f"{min(100.0, x) * COST_WIDTH / 100:.1f}"


def _up(nanos: int, price: Price) -> str:
    return f"{COST_HEIGHT - min(1.0, nanos / price.at_most_nanos) * (COST_HEIGHT - 2):.1f}"
