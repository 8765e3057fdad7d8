"""How hosts and their GPUs do, when what is withheld may come back, and what was the matter."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from ledger.access import Actor
from listings import queries as listings
from listings.queries.health import HostRow, last_failures
from listings.queries.watched import Planned, planned_of
from metering.domain.health import CONDITIONS, GpuCondition, Standing, proof_of
from metering.queries.usage import agents

KEPT_FOR = timedelta(days=400)
"""The history that is shown goes back so far, and at most a thousand spans of each host."""
_AGAIN = re.compile(r"probed again in ([0-9]{1,4}) min")


@dataclass(frozen=True, slots=True)
class GpuHealth:
    """How a GPU does. reason, detail, since: of what it is withheld for; empty: it is not.

    relapses: how often in a row it failed again soon after its return. back_after: how long it has
    to be without fault. next_look_at: when it is probed again, or tried again, where that is known.
    """

    gpu_uuid: str
    model: str
    condition: GpuCondition
    reason: str = ""
    detail: str = ""
    since: datetime | None = None
    relapses: int = 0
    back_after: timedelta = timedelta()
    next_look_at: datetime | None = None

    @property
    def back_after_seconds(self) -> int:
        """Return how long it has to be without fault, in seconds."""
        return self.back_after // timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class HostDoing:
    """How a host does. standing: None: no agent of it was ever heard."""

    row: HostRow
    standing: Standing | None
    last_seen_at: datetime | None
    gpus: tuple[GpuHealth, ...]
    maintenance: tuple[Planned, ...]

    @property
    def is_well(self) -> bool:
        """Tell if there is nothing to look after."""
        fine = all(each.condition == "healthy" for each in self.gpus)
        taking = (self.row.at_host, self.row.on_market) == ("all", "all")
        return fine and taking and self.standing in ("healthy", "late") and not self.maintenance


def doing(actor: Actor, host_id: UUID, *, now: datetime, poll_seconds: int) -> HostDoing:
    """Return how a host does that `actor` may see.

    Raises: HostUnknown.
    """
    row = listings.host(actor, host_id)
    (found,) = _doing(actor, [row], now=now, poll_seconds=poll_seconds)
    return found


def all_doing(actor: Actor, *, now: datetime, poll_seconds: int, limit: int) -> list[HostDoing]:
    """Return how the hosts do that `actor` may see, those to be looked after first."""
    rows = list(listings.hosts(actor).exclude(state="retired")[:limit])
    found = _doing(actor, rows, now=now, poll_seconds=poll_seconds)
    return sorted(found, key=lambda each: (each.is_well, each.row.title))


def _doing(
    actor: Actor, rows: list[HostRow], *, now: datetime, poll_seconds: int
) -> list[HostDoing]:
    heard = {each.host_id: each for each in agents(actor, now=now, poll_seconds=poll_seconds)}
    found = []
    for row in rows:
        agent = heard.get(row.host_id)
        planned = tuple(each for each in planned_of(row) if each.window.ends_at > now)
        found.append(
            HostDoing(
                row=row,
                standing=None if agent is None else agent.standing,
                last_seen_at=None if agent is None else agent.last_seen_at,
                gpus=_gpus(row),
                maintenance=planned,
            )
        )
    return found


def _gpus(row: HostRow) -> tuple[GpuHealth, ...]:
    models = {gpu.uuid: gpu.model for gpu in listings.gpus_of_row(row)}
    looks = _looks(row) if row.unfit else {}
    found = []
    for uuid in [*models, *(uuid for uuid in row.unfit if uuid not in models)]:
        fault = row.unfit.get(uuid)
        if fault is None:
            found.append(GpuHealth(uuid, models[uuid], "healthy"))
            continue
        reason, since = fault["reason"], datetime.fromisoformat(fault["at"])
        back_after = proof_of(reason, fault.get("relapses", 0))
        found.append(
            GpuHealth(
                gpu_uuid=uuid,
                model=models.get(uuid, ""),
                condition=CONDITIONS[reason],
                reason=reason,
                detail=fault["detail"],
                since=since,
                relapses=fault.get("relapses", 0),
                back_after=back_after,
                next_look_at=since + back_after if reason == "starts-failed" else looks.get(uuid),
            )
        )
    return tuple(found)


def _looks(row: HostRow) -> dict[str, datetime]:
    """Return when the agent probes GPUs again whose last diagnostic failed, as it said."""
    found: dict[str, datetime] = {}
    for uuid, (since, words) in last_failures(row.host_id, row.unfit).items():
        again = _AGAIN.search(words)
        if again is not None:
            found[uuid] = since + timedelta(minutes=int(again[1]))
    return found
