"""What agents measured of a lease, cut into equal parts of its time, for a picture of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Count, F, Max, Q, QuerySet, Sum, Value
from django.db.models.functions import Coalesce

from ledger.access import Actor
from metering.domain.instants import millis_down
from metering.models import Interval, MeterRow
from metering.queries.kept import kept_from_ms
from metering.queries.usage import meter, usage_windows

EXACT_MAX = 40_000
"""Up to so many intervals are added up anew for a picture; beyond, closed windows are shown."""
LENGTHS_ASKED = 200
MEMORY_SPAN_MS = 30_000
"""Of a long lease, memory is read at the end of each part of its time, over this long."""


@dataclass(frozen=True, slots=True)
class Extent:
    """Over what a lease was measured: GPUs that the asker may know of, and how finely.

    shortest_ms: no part of a picture should be shorter. first_ms, last_ms: of all intervals.
    """

    gpus: int
    shortest_ms: int
    is_exact: bool
    first_ms: int
    last_ms: int


@dataclass(frozen=True, slots=True)
class Piece:
    """What was measured in one part, of all GPUs. used_ms, memory_mib: None where unknown."""

    at: int
    granted_ms: int
    used_ms: int | None
    memory_mib: int | None


def extent(actor: Actor, lease_id: UUID) -> Extent | None:
    """Return over what a lease was measured; None before the first of it.

    Raises: MeterUnknown.
    """
    row = meter(actor, lease_id)
    rows = _intervals(actor, row)
    newest = list(rows.order_by("-end_ms").values_list("start_ms", "end_ms")[:LENGTHS_ASKED])
    gpus = sum(len(share["gpu_uuids"]) for share in _shares(actor, row))
    if (kept_from_ms() or 0) > row.starts_ms:
        return _of_windows(actor, row, gpus, newest)
    if not newest:
        return None
    first_ms = rows.order_by("end_ms").values_list("start_ms", flat=True)[0]
    longest_ms = max(end_ms - start_ms for start_ms, end_ms in newest)
    is_exact = rows[: EXACT_MAX + 1].count() <= EXACT_MAX
    shortest_ms = 2 * longest_ms
    if not is_exact:
        window = usage_windows(actor, lease_id).first()
        if window is not None:
            length = millis_down(window.ends_at) - millis_down(window.starts_at)
            shortest_ms = max(shortest_ms, length)
    return Extent(gpus, shortest_ms, is_exact, first_ms, newest[0][1])


def _of_windows(
    actor: Actor, row: MeterRow, gpus: int, newest: Sequence[tuple[int, int]]
) -> Extent | None:
    """Return the extent of a lease whose first samples are dropped: its windows tell of it."""
    spans = [
        (millis_down(starts_at), millis_down(ends_at))
        for starts_at, ends_at in usage_windows(actor, row.lease_id).values_list(
            "starts_at", "ends_at"
        )
    ] + [*newest]
    if not spans:
        return None
    shortest_ms = max(end_ms - start_ms for start_ms, end_ms in spans)
    first_ms, last_ms = min(start for start, _ in spans), max(end for _, end in spans)
    return Extent(gpus, shortest_ms, False, first_ms, last_ms)


def pieces(
    actor: Actor, lease_id: UUID, extent: Extent, *, starts_ms: int, ends_ms: int, count: int
) -> list[Piece]:
    """Return what was measured in each of `count` equal parts of [starts_ms, ends_ms).

    Memory is the most that each GPU had in use.

    Raises: MeterUnknown.
    """
    row = meter(actor, lease_id)
    rows = _intervals(actor, row)
    cut = _Cut(starts_ms, ends_ms, count)
    if extent.is_exact:
        return _added_up(cut, rows)
    used = defaultdict[int, list[tuple[int, int | None]]](list)
    for each in usage_windows(actor, lease_id):
        middle = (millis_down(each.starts_at) + millis_down(each.ends_at)) // 2
        busy_ms = each.occupied_ms if each.busy_ms is None else each.busy_ms
        used[cut.at(middle)].append((each.granted_ms, busy_ms))
    live = _added_up(cut, rows.filter(end_ms__gt=row.closed_through_ms))
    for piece in live:
        used[piece.at].append((piece.granted_ms, piece.used_ms))
    memory = _memory(cut, rows)
    return [
        Piece(at, sum(part for part, _ in parts), _sum([part for _, part in parts]), memory.get(at))
        for at, parts in sorted(used.items())
    ]


@dataclass(frozen=True, slots=True)
class _Cut:
    starts_ms: int
    ends_ms: int
    count: int

    def at(self, middle_ms: int) -> int:
        """Return in which part a moment lies."""
        return self.inside((middle_ms - self.starts_ms) * self.count // self._length_ms)

    def inside(self, at: int) -> int:
        """Return the nearest part that there is."""
        return min(self.count - 1, max(0, at))

    def edge(self, at: int) -> int:
        """Return where a part begins: no moment before it lies in it."""
        return self.starts_ms - (-self._length_ms * at // self.count)

    @property
    def _length_ms(self) -> int:
        return self.ends_ms - self.starts_ms


def _shares(actor: Actor, row: MeterRow) -> list[dict[str, Any]]:
    everything = actor.sees_all or actor.tenant_id == row.tenant_id
    mine = str(actor.tenant_id)
    return [share for share in row.shares if everything or share["owner_id"] == mine]


def _intervals(actor: Actor, row: MeterRow) -> QuerySet[Interval]:
    hosts = [share["host_id"] for share in _shares(actor, row)]
    return Interval.objects.filter(lease_id=row.lease_id, host_id__in=hosts)


def _added_up(cut: _Cut, rows: QuerySet[Interval]) -> list[Piece]:
    """Add up intervals, of which none is longer than a part: it lies in one or in two."""
    length, count = Value(cut.ends_ms - cut.starts_ms), Value(cut.count)
    found = (
        rows.filter(end_ms__gt=cut.starts_ms, start_ms__lt=cut.ends_ms)
        .annotate(
            since=(F("start_ms") - Value(cut.starts_ms)) * count / length,
            until=(F("end_ms") - Value(cut.starts_ms + 1)) * count / length,
        )
        .values("since", "until", "host_id", "gpu_uuid")
        .annotate(
            granted=Sum(F("end_ms") - F("start_ms")),
            used=Sum(Coalesce("busy_ms", "occupied_ms")),
            unknown=Count("seq", filter=Q(busy_ms=None, occupied_ms=None)),
            memory=Max("memory_used_mib"),
            ends=Sum("end_ms"),
            number=Count("seq"),
        )
        .order_by()
    )
    parts: dict[int, dict[tuple[UUID, str], _Gpu]] = defaultdict(lambda: defaultdict(_Gpu))
    for each in found:
        gpu = each["host_id"], each["gpu_uuid"]
        used_ms = None if each["unknown"] else each["used"]
        since, until = cut.inside(each["since"]), cut.inside(each["until"])
        beyond_ms = 0
        if until > since:
            beyond_ms = min(each["granted"], each["ends"] - each["number"] * cut.edge(until))
            part = None if used_ms is None else used_ms * beyond_ms // each["granted"]
            parts[until][gpu].add(beyond_ms, part, each["memory"])
            used_ms = None if used_ms is None or part is None else used_ms - part
        parts[since][gpu].add(each["granted"] - beyond_ms, used_ms, each["memory"])
    return [_piece(at, list(gpus.values())) for at, gpus in sorted(parts.items())]


@dataclass(slots=True)
class _Gpu:
    """What one GPU did in one part."""

    granted_ms: int = 0
    used_ms: int | None = 0
    memory_mib: int | None = None

    def add(self, granted_ms: int, used_ms: int | None, memory_mib: int | None) -> None:
        self.granted_ms += granted_ms
        self.used_ms = _sum([self.used_ms, used_ms])
        self.memory_mib = max(filter(None, (self.memory_mib, memory_mib)), default=None)


def _piece(at: int, gpus: Sequence[_Gpu]) -> Piece:
    return Piece(
        at,
        sum(each.granted_ms for each in gpus),
        _sum([each.used_ms for each in gpus]),
        _sum_of_known([each.memory_mib for each in gpus]),
    )


def _memory(cut: _Cut, rows: QuerySet[Interval]) -> dict[int, int | None]:
    spans = Q()
    for ends_ms in map(cut.edge, range(1, cut.count + 1)):
        spans |= Q(end_ms__gt=ends_ms - MEMORY_SPAN_MS, end_ms__lte=ends_ms)
    return {each.at: each.memory_mib for each in _added_up(cut, rows.filter(spans))}


def _sum(values: Sequence[int | None]) -> int | None:
    """Return the sum; None as soon as one is unknown, because unknown is never zero."""
    return None if None in values else sum(each or 0 for each in values)


def _sum_of_known(values: Sequence[int | None]) -> int | None:
    known = [each for each in values if each is not None]
    return sum(known) if known else None
