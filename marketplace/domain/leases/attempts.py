"""The attempts of a lease's work, by what its hosts and the market told of it.

A lease makes one attempt, which runs on all its hosts. Work that is cut short and resumed is the
attempt of another lease, of the bid that follows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from ledger.domain.event import Event
from ledger.domain.ids import HostId
from marketplace.domain.facts.close_reasons import REASONS
from marketplace.domain.facts.events import LeaseClosed, LeaseEnding, WorkStarted, WorkStopped


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one host did of an attempt. started_at: None where its work never ran.

    exit_code: None where it was stopped, or is not known. reason: why it ended; empty before.
    commit: of its source, which it began with; left_out: what of that did not come.
    """

    number: int
    host_id: HostId
    started_at: datetime | None
    ended_at: datetime | None = None
    exit_code: int | None = None
    reason: str = ""
    commit: str = ""
    left_out: tuple[str, ...] = ()


def attempts_of(events: Iterable[Event]) -> list[Attempt]:
    """Return what each host did, in the order in which they were first heard of."""
    found: dict[HostId, Attempt] = {}
    why = ""
    for event in events:
        match event:
            case WorkStarted() if event.host_id not in found:
                found[event.host_id] = Attempt(
                    1,
                    event.host_id,
                    event.at,
                    commit=event.commit,
                    left_out=event.left_out,
                )
            case WorkStopped():
                known = found.get(event.host_id, Attempt(1, event.host_id, None))
                found[event.host_id] = replace(
                    known, ended_at=event.at, exit_code=event.exit_code, reason=event.detail
                )
            case LeaseEnding():
                why = REASONS.get(event.reason, "")
            case LeaseClosed():
                why = REASONS.get(event.reason, "")
                for host_id, each in found.items():
                    if each.ended_at is None:
                        found[host_id] = replace(each, ended_at=event.at, reason=why)
    return [
        replace(each, reason=each.reason or why) if each.ended_at is not None else each
        for each in found.values()
    ]
