"""How a host and its GPUs are doing, judged by when the server last heard and what it heard."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from listings.domain.events import GpuNote, UnfitReason
from marketplace.domain.facts import close_reasons

Standing = Literal["healthy", "late", "silent", "returning"]
GpuCondition = Literal["healthy", "lost", "mismatched", "failing", "filled", "absent", "closed"]

LATE_POLLS = 5
SILENT_POLLS = 30
LATE_MIN = timedelta(seconds=15)
SILENT_MIN = timedelta(seconds=90)
"""A restart of the agent or the server takes seconds and is no news; after an outage of the server
agents come back within a minute."""
HEARD_MIN = timedelta(seconds=60)
"""So long a host that was silent is heard without a pause before anything of it is leased again."""

FIT_AFTER = timedelta(minutes=10)
"""So long a GPU is without fault, on a host that is heard, before it is leased again."""
FREE_AFTER = timedelta(minutes=1)
"""The same of a card that others filled, and of a host that could start no work."""

FAILED_STARTS = 3
"""So many leases in a row, not all of one consumer, that a host could not start on a GPU, are a
fault of the GPU or of its host. Those of one consumer may be that of what it brings along."""
TRIED_AGAIN_AFTER = timedelta(minutes=30)
"""So long such a GPU is leased to nobody. Nothing but a lease can prove it: the next that fails
withholds it again at once."""
PROOF_MAX = timedelta(hours=8)
"""So long a GPU with relapse after relapse has to be without fault, and no longer."""
DIAGNOSTICS = ("diagnostic-passed", "diagnostic-failed")

ENDS_LEASES: dict[UnfitReason, tuple[int, timedelta]] = {
    "xid": (close_reasons.GPU_FAILING, timedelta()),
    "gpu-lost": (close_reasons.GPU_LOST, timedelta(seconds=30)),
    "absent": (close_reasons.GPU_LOST, timedelta(seconds=30)),
    "driver-mismatch": (close_reasons.DRIVER_CHANGED, timedelta(minutes=10)),
}
"""For which faults the leases of a GPU end, with which reason, and how long one lasts before.
A driver that misses a question once is no loss, and work that runs goes on for a while on a
driver whose library was replaced, until its owner restarts the host. For a card that strangers
fill no lease ends: its work has its memory already, and may be what fills it."""

FATAL_XIDS = frozenset({46, 48, 54, 61, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, 155})
"""XID errors after which a GPU is to be reset, repaired or replaced. The others are errors of the
work on it (13, 31, 43, 45, 94) or notes (63, 92): a consumer could take a GPU off the market with
them. Source: NVIDIA, "XID Errors", catalogue and recommended actions."""

CONDITIONS: dict[str, GpuCondition] = {
    "gpu-lost": "lost",
    "driver-mismatch": "mismatched",
    "xid": "failing",
    "card-filled": "filled",
    "absent": "absent",
    "cannot-start": "closed",
    "starts-failed": "failing",
    "memory-fault": "failing",
    "diagnostic-failed": "failing",
}

TOLD: frozenset[GpuNote] = frozenset({"diagnostic-passed", "diagnostic-failed", "slowed", "steady"})
"""What agents say of a GPU that goes into its history and is no fault by itself, or one besides."""

ENDED_BY_RECOVERY: tuple[UnfitReason, ...] = ("gpu-lost", "driver-mismatch", "xid")

_XID = re.compile(r"XID ([0-9]{1,4})\b")


@dataclass(frozen=True, slots=True)
class HealthSaid:
    """One health event of an agent. gpu_uuid: None is the driver, and so every GPU."""

    gpu_uuid: str | None
    kind: str
    at: datetime
    detail: str = ""


@dataclass(frozen=True, slots=True)
class GpuFault:
    """Why a GPU is unfit, in the agent's words. since: by the agent's clock; None: not told."""

    reason: UnfitReason
    detail: str
    since: datetime | None = field(default=None, compare=False)


def silent_after(poll_seconds: int) -> timedelta:
    """Return how long an agent may not be heard before its host counts as silent."""
    return max(SILENT_MIN, SILENT_POLLS * timedelta(seconds=poll_seconds))


def late_after(poll_seconds: int) -> timedelta:
    """Return after how long an agent is late: nothing follows from that yet."""
    return max(LATE_MIN, LATE_POLLS * timedelta(seconds=poll_seconds))


def standing_of(last_seen_at: datetime, *, now: datetime, poll_seconds: int) -> Standing:
    """Judge an agent by when the server last heard from it, on the server's clock.

    What the agent says of its own clock plays no part: a dead host must not look alive because
    its clock runs ahead.
    """
    silence = now - last_seen_at
    if silence > silent_after(poll_seconds):
        return "silent"
    return "late" if silence > late_after(poll_seconds) else "healthy"


def faults(gpu_uuids: Iterable[str], said: Iterable[HealthSaid]) -> dict[str, GpuFault]:
    """Return what is wrong with which GPUs after all that one run of an agent said, in its order.

    Each fault is over only when the agent says so. Of several of a GPU the last is told, and one
    for which leases end before one for which they do not.
    """
    found: dict[str, dict[UnfitReason, GpuFault]] = {uuid: {} for uuid in gpu_uuids}
    for each in said:
        touched = list(found) if each.gpu_uuid is None else [each.gpu_uuid]
        for of_gpu in (found.setdefault(uuid, {}) for uuid in touched):
            match each.kind:
                case (
                    "gpu-lost"
                    | "driver-mismatch"
                    | "card-filled"
                    | "cannot-start"
                    | "memory-fault"
                    | "diagnostic-failed" as reason
                ):
                    of_gpu[reason] = GpuFault(reason, each.detail, _since(of_gpu, reason, each))
                case "xid" if _is_fatal(each.detail):
                    of_gpu["xid"] = GpuFault("xid", each.detail, _since(of_gpu, "xid", each))
                case "diagnostic-passed":
                    of_gpu.pop("diagnostic-failed", None)
                case "memory-well":
                    of_gpu.pop("memory-fault", None)
                case "can-start":
                    of_gpu.pop("cannot-start", None)
                case "card-free":
                    of_gpu.pop("card-filled", None)
                case "recovered":
                    for over in ENDED_BY_RECOVERY:
                        of_gpu.pop(over, None)
    return {uuid: _told(of_gpu) for uuid, of_gpu in found.items() if of_gpu}


def _since(
    known: Mapping[UnfitReason, GpuFault], reason: UnfitReason, said: HealthSaid
) -> datetime | None:
    return known[reason].since if reason in known else said.at


def _told(of_gpu: Mapping[UnfitReason, GpuFault]) -> GpuFault:
    newest_first = [*of_gpu.values()][::-1]
    return next((each for each in newest_first if each.reason in ENDS_LEASES), newest_first[0])


def conditions(gpu_uuids: Iterable[str], said: Iterable[HealthSaid]) -> dict[str, GpuCondition]:
    """Return the condition of each GPU after all that was said, in the order it was said."""
    wanted = list(gpu_uuids)
    wrong = faults(wanted, said)
    return {uuid: CONDITIONS[wrong[uuid].reason] if uuid in wrong else "healthy" for uuid in wanted}


def _is_fatal(detail: str) -> bool:
    number = _XID.search(detail)
    return number is not None and int(number[1]) in FATAL_XIDS


def proof_of(reason: str, relapses: int = 0) -> timedelta:
    """Return for how long a GPU has to be without fault before it is leased again.

    Each relapse (`listings.domain.fitness`) doubles it, up to `PROOF_MAX`. A diagnostic that passed
    is a proof by itself: after the first failure nothing more is waited for.
    """
    if reason == "diagnostic-failed":
        first = FREE_AFTER if relapses else timedelta()
    elif reason == "starts-failed":
        first = TRIED_AGAIN_AFTER
    else:
        first = FREE_AFTER if reason in ("card-filled", "cannot-start") else FIT_AFTER
    return min(first * (1 << min(relapses, 16)), PROOF_MAX)


def passed(said: Iterable[HealthSaid]) -> set[str]:
    """Return the GPUs whose last diagnostic in one run of an agent passed."""
    last = {each.gpu_uuid: each.kind for each in said if each.kind in DIAGNOSTICS}
    return {uuid for uuid, kind in last.items() if uuid and kind == "diagnostic-passed"}


def notes(said: Iterable[HealthSaid]) -> dict[tuple[str, str], HealthSaid]:
    """Return what belongs into the history of each GPU: of its diagnostics and clocks, the last."""
    return {
        (each.gpu_uuid, "diagnostic" if each.kind in DIAGNOSTICS else "clocks"): each
        for each in said
        if each.gpu_uuid is not None and each.kind in TOLD
    }
