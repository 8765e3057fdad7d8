"""The geometry of the small pictures that the server draws itself: numbers in, SVG paths out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SPARK_WIDTH, SPARK_HEIGHT = 240, 34
SPARK_SPAN_MIN = 0.01
DEPTH_WIDTH, DEPTH_HEIGHT = 250, 190
CROSSING_WIDTH, CROSSING_HEIGHT = 420, 210
HOURS_WIDTH, HOURS_HEIGHT = 960, 120
TICKS_MAX = 6
BAR_GAP = 2
NANOS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Spark:
    """A line and the area under it, in a box of SPARK_WIDTH by SPARK_HEIGHT.

    is_flat: nothing moved, so there is nothing to draw.
    """

    line: str
    area: str
    is_flat: bool = False
    width: int = SPARK_WIDTH
    height: int = SPARK_HEIGHT


def sparkline(values: Sequence[float]) -> Spark | None:
    """Scale `values`, oldest first, to the box. None where there are fewer than two.

    What moves by less than a hundredth of itself in all does not fill it: a line without axes
    must not make a fall out of a trifle.
    """
    if len(values) < 2:
        return None
    low, high = min(values), max(values)
    if low == high:
        return Spark(line="", area="", is_flat=True)
    span = max(high - low, abs(high) * SPARK_SPAN_MIN)
    step = SPARK_WIDTH / (len(values) - 1)
    inner = SPARK_HEIGHT - 6
    points = [
        f"{index * step:.1f} {3 + inner - (value - low) / span * inner:.1f}"
        for index, value in enumerate(values)
    ]
    line = "M" + "L".join(points)
    return Spark(line=line, area=f"{line}V{SPARK_HEIGHT}H0Z")


@dataclass(frozen=True, slots=True)
class Level:
    """How many GPUs are asked for, or offered, at one price."""

    nanos_per_gpu_hour: int
    gpus: int


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark on an axis: where it stands and what it says."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Depth:
    """Both sides of a book as cumulated steps, with their axes."""

    bids: str
    asks: str
    prices: list[Tick]
    counts: list[Tick]
    width: int = DEPTH_WIDTH
    height: int = DEPTH_HEIGHT


def depth(bids: Sequence[Level], asks: Sequence[Level]) -> Depth | None:
    """Cumulate each side from its best price outwards. None where the book is empty."""
    prices = [level.nanos_per_gpu_hour for level in (*bids, *asks)]
    if not prices:
        return None
    low, high = min(prices), max(prices)
    margin = max((high - low) // 12, NANOS // 50)
    low, high = max(low - margin, 0), high + margin
    tallest = max(sum(level.gpus for level in bids), sum(level.gpus for level in asks), 1)

    def across(nanos: int) -> float:
        return (nanos - low) / (high - low) * DEPTH_WIDTH

    def up(gpus: int) -> float:
        return DEPTH_HEIGHT - gpus / tallest * (DEPTH_HEIGHT - 8)

    def steps(levels: Sequence[Level], edge: int) -> str:
        if not levels:
            return ""
        path, total = f"M{across(levels[0].nanos_per_gpu_hour):.1f} {DEPTH_HEIGHT}", 0
        for level in levels:
            total += level.gpus
            path += f"H{across(level.nanos_per_gpu_hour):.1f}V{up(total):.1f}"
        return f"{path}H{edge}V{DEPTH_HEIGHT}Z"

    by_price = sorted(asks, key=lambda level: level.nanos_per_gpu_hour)
    from_top = sorted(bids, key=lambda level: -level.nanos_per_gpu_hour)
    return Depth(
        bids=steps(from_top, 0),
        asks=steps(by_price, DEPTH_WIDTH),
        prices=[
            Tick(across(nanos), f"{nanos / NANOS:.2f}")
            for nanos in _round_marks(low, high, 10_000_000)
        ],
        counts=[Tick(up(gpus), str(gpus)) for gpus in _round_marks(0, tallest, 1) if gpus],
    )


def _round_marks(low: int, high: int, finest: int) -> list[int]:
    """Up to TICKS_MAX whole marks of 1, 2 or 5 times a power of ten inside [low, high]."""
    step = finest
    factors = (2, 5 / 2, 2)
    turn = 0
    while (high - low) / step >= TICKS_MAX:
        step = int(step * factors[turn % 3])
        turn += 1
    first = -(-low // step) * step
    return list(range(first, high + 1, step))


@dataclass(frozen=True, slots=True)
class Crossing:
    """Supply and demand as steps: GPUs across, price up. mark: the height of the price paid."""

    supply: str
    demand: str
    mark: float | None
    prices: list[Tick]
    counts: list[Tick]
    width: int = CROSSING_WIDTH
    height: int = CROSSING_HEIGHT


def crossing(
    supply: Sequence[Level], demand: Sequence[Level], price: int | None = None
) -> Crossing | None:
    """Cumulate supply from the lowest floor up and demand from the highest limit down.

    None where there is neither. price: what was paid, in nano-units per GPU-hour.
    """
    levels = [level.nanos_per_gpu_hour for level in (*supply, *demand)]
    if not levels:
        return None
    shown = levels if price is None else [*levels, price]
    margin = max((max(shown) - min(shown)) // 12, NANOS // 50)
    low, high = max(min(shown) - margin, 0), max(shown) + margin
    most = max(sum(level.gpus for level in supply), sum(level.gpus for level in demand), 1)

    def across(gpus: int) -> float:
        return gpus / most * (CROSSING_WIDTH - 8)

    def up(nanos: int) -> float:
        return CROSSING_HEIGHT - (nanos - low) / (high - low) * CROSSING_HEIGHT

    def steps(ordered: Sequence[Level]) -> str:
        path, total = "", 0
        for level in ordered:
            height = up(level.nanos_per_gpu_hour)
            path += f"V{height:.1f}" if path else f"M0 {height:.1f}"
            total += level.gpus
            path += f"H{across(total):.1f}"
        return path

    return Crossing(
        supply=steps(sorted(supply, key=lambda level: level.nanos_per_gpu_hour)),
        demand=steps(sorted(demand, key=lambda level: -level.nanos_per_gpu_hour)),
        mark=None if price is None else up(price),
        prices=[
            Tick(up(nanos), f"{nanos / NANOS:.2f}") for nanos in _round_marks(low, high, 10_000_000)
        ],
        counts=[Tick(across(gpus), str(gpus)) for gpus in _round_marks(0, most, 1) if gpus],
    )


@dataclass(frozen=True, slots=True)
class Slot:
    """One slot of the supply strip: GPUs free and GPUs leased, and whether it is night."""

    label: str
    free_gpus: int
    leased_gpus: int = 0
    night: bool = False


@dataclass(frozen=True, slots=True)
class Bar:
    """One drawn slot: its left edge and the height and top of both parts."""

    x: float
    width: float
    free_y: float
    free_height: float
    leased_y: float
    leased_height: float
    night: bool
    text: str


@dataclass(frozen=True, slots=True)
class Hours:
    """A strip of slots with a few labels below."""

    bars: list[Bar]
    labels: list[Tick]
    counts: list[Tick]
    most: int
    step: float
    width: int = HOURS_WIDTH
    height: int = HOURS_HEIGHT


def hours(slots: Sequence[Slot], *, label_every: int = 4) -> Hours | None:
    """Stack leased and free GPUs for each slot. None where there are no slots."""
    if not slots:
        return None
    most = max(max(slot.free_gpus + slot.leased_gpus for slot in slots), 1)
    wide = HOURS_WIDTH / len(slots)
    bars = []
    for index, slot in enumerate(slots):
        leased = slot.leased_gpus / most * HOURS_HEIGHT
        free = slot.free_gpus / most * HOURS_HEIGHT
        bars.append(
            Bar(
                x=round(index * wide, 1),
                width=round(wide - BAR_GAP, 1),
                leased_y=round(HOURS_HEIGHT - leased, 1),
                leased_height=round(leased, 1),
                free_y=round(HOURS_HEIGHT - leased - free, 1),
                free_height=round(free, 1),
                night=slot.night,
                text=f"{slot.label}: {slot.free_gpus} free, {slot.leased_gpus} leased",
            )
        )
    labels = [
        Tick(round(index * wide, 1), slot.label)
        for index, slot in enumerate(slots)
        if index % label_every == 0
    ]
    counts = [
        Tick(round(HOURS_HEIGHT - gpus / most * HOURS_HEIGHT, 1), str(gpus))
        for gpus in _round_marks(0, most, 1)
    ]
    return Hours(bars=bars, labels=labels, counts=counts, most=most, step=round(wide + 0.1, 1))


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a lying bar, in per cent of its length. kind: how it looks."""

    kind: str
    x: float
    width: float
    text: str


@dataclass(frozen=True, slots=True)
class Lying:
    """A lying bar: parts over each other in their order, and marks across it."""

    parts: list[Part]
    marks: list[Tick]


def quota_bar(
    *, used: float, total: int, borrowed: float, lent: float, most: float, limit: int | None
) -> Lying:
    """Draw a quota: what is used of it, what of it others use, what is used beyond.

    most: GPUs that fill the length. limit: with all that may be borrowed; None: no limit.
    """

    def part(kind: str, since: float, gpus: float, text: str) -> Part:
        return Part(kind, _percent(since, most), _percent(gpus, most), text)

    parts = [part("quota", 0, total, f"quota {total}")]
    if within := min(used, total):
        parts.append(part("used", 0, within, f"{within} used of it"))
    if lent:
        parts.append(part("lent", total - lent, lent, f"{lent} lent"))
    if borrowed:
        parts.append(part("borrowed", total, borrowed, f"{borrowed} borrowed"))
    ends = (
        [] if limit is None or limit > most else [Tick(_percent(limit, most), f"at most {limit}")]
    )
    return Lying(parts, ends)


def share_bar(*, fraction: float, entitled: float, most: float) -> Lying:
    """Draw a remembered use with a mark where the fair share is. All are fractions of all use."""
    part = Part("used", 0.0, _percent(fraction, most), f"{fraction:.2%} of all, remembered")
    return Lying([part], [Tick(_percent(entitled, most), f"fair share {entitled:.2%}")])


def _percent(value: float, most: float) -> float:
    return round(min(value, most) / most * 100, 2) if most else 0.0
