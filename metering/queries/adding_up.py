"""From stored intervals to what each GPU of a lease did in a span."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from uuid import UUID

from ledger.domain.ids import HostId, LeaseId, TenantId
from metering.domain.closing import LeaseSpan
from metering.domain.events import GpuUse
from metering.domain.meters import Gap
from metering.domain.rollup import Sampled, Span, roll_up
from metering.models import Interval
from metering.queries.progress import LeaseGpu

Samples = dict[tuple[UUID, str], list[Sampled]]
"""By host and GPU."""


def samples_of(lease_id: LeaseId, window: Span, *, late_too: bool = False) -> Samples:
    """Return the intervals of a lease that touch a span.

    late_too: count also what lay in a window that was closed when it came.
    """
    found: Samples = defaultdict(list)
    rows = Interval.objects.filter(
        lease_id=lease_id, end_ms__gt=window[0], start_ms__lt=window[1]
    ).values_list(
        "host_id",
        "gpu_uuid",
        "start_ms",
        "end_ms",
        "late_ms",
        "occupied_ms",
        "busy_ms",
        "energy_mj",
    )
    for host_id, gpu_uuid, start_ms, end_ms, late_ms, *measured in rows.iterator():
        left_out_ms = 0 if late_too else late_ms
        sampled = Sampled(start_ms, end_ms, left_out_ms, *measured)
        found[host_id, gpu_uuid].append(sampled)
    return found


def uses_of(
    lease: LeaseSpan, gpus: Sequence[LeaseGpu], samples: Samples, window: Span
) -> tuple[list[GpuUse], list[Gap]]:
    """Return what each GPU did in a span, and where proof is missing."""
    uses, gaps = [], []
    for gpu in gpus:
        rolled = roll_up(
            samples[gpu.host_id, gpu.gpu_uuid],
            window=window,
            expected=gpu.progress.expected(lease),
        )
        gaps += [Gap(gpu.gpu_uuid, span) for span in rolled.gaps]
        uses.append(
            GpuUse(
                gpu_uuid=gpu.gpu_uuid,
                host_id=HostId(gpu.host_id),
                owner_id=TenantId(gpu.owner_id),
                granted_ms=rolled.granted_ms,
                occupied_ms=rolled.occupied_ms,
                busy_ms=rolled.busy_ms,
                gap_ms=rolled.gap_ms,
                energy_mj=rolled.energy_mj,
            )
        )
    return uses, gaps
