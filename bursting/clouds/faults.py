"""A script of what shall go wrong at a cloud: for the fake one, and for servers that stand in."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from bursting.clouds.port import Interruption
from bursting.domain.capacity import CloudOffer

Verb = Literal["offers", "launch", "find", "describe", "terminate", "interruptions"]
When = Literal["before", "after"]
"""Whether the request fails before it took effect, or took effect and lost its answer."""


@dataclass(slots=True)
class Birth:
    """How many more looks pass before an instance is seen, runs, and (once ended) is gone."""

    invisible_polls: int
    pending_polls: int
    terminating_polls: int


@dataclass(slots=True)
class Faults:
    """What a cloud does badly. All figures may be changed between two calls.

    A poll is one `find` or `describe`; `invisible_polls`, `pending_polls` and
    `terminating_polls` are given to each instance as it is launched.
    """

    invisible_polls: int = 0
    pending_polls: int = 0
    terminating_polls: int = 0
    room: dict[str, int] = field(default_factory=dict)
    """How many more instances each zone has; a zone that is not named has no limit."""
    quota: int | None = None
    """How many instances may be alive at once; None: no limit."""
    instead: deque[CloudOffer] = field(default_factory=deque)
    """What the next launches hand out instead of what they ask for."""
    notices: list[Interruption] = field(default_factory=list)
    calls: Counter[Verb] = field(default_factory=Counter)
    """How often each verb reached the cloud."""
    _failures: dict[Verb, deque[When]] = field(default_factory=dict)
    _births: dict[str, Birth] = field(default_factory=dict)

    def fail(self, verb: Verb, *, times: int = 1, when: When = "before") -> None:
        """Let the next `times` calls of `verb` end in CloudUnavailable, its outcome unknown."""
        self._failures.setdefault(verb, deque()).extend([when] * times)

    def interrupt(self, instance_id: str, *, at: datetime, reason: str) -> None:
        """Give notice that the cloud takes an instance back at `at`."""
        self.notices.append(Interruption(instance_id=instance_id, at=at, reason=reason))

    def called(self, verb: Verb) -> When | None:
        """Count a call and return how it shall fail, None for not at all."""
        self.calls[verb] += 1
        waiting = self._failures.get(verb)
        return waiting.popleft() if waiting else None

    def take_room(self, zone: str) -> bool:
        """Take one instance out of the zone's room; False where there is none left."""
        left = self.room.get(zone)
        if left == 0:
            return False
        if left is not None:
            self.room[zone] = left - 1
        return True

    def hand_out(self, asked: CloudOffer) -> CloudOffer:
        """Return what a launch hands out: what was asked for, unless the script says otherwise."""
        return self.instead.popleft() if self.instead else asked

    def born(self, instance_id: str) -> None:
        """Note a new instance, with the delays of the present script."""
        self._births[instance_id] = Birth(
            self.invisible_polls, self.pending_polls, self.terminating_polls
        )

    def poll(self, ended: set[str]) -> None:
        """Let one look pass: those not yet seen come nearer, those `ended` go on ending."""
        for instance_id, birth in self._births.items():
            if birth.invisible_polls:
                birth.invisible_polls -= 1
            elif instance_id in ended:
                birth.terminating_polls = max(0, birth.terminating_polls - 1)
            elif birth.pending_polls:
                birth.pending_polls -= 1

    def is_invisible(self, instance_id: str) -> bool:
        """Test if the cloud does not show this instance yet."""
        birth = self._births.get(instance_id)
        return birth is not None and birth.invisible_polls > 0

    def is_pending(self, instance_id: str) -> bool:
        """Test if this instance is still on its way up."""
        birth = self._births.get(instance_id)
        return birth is not None and birth.pending_polls > 0

    def is_lingering(self, instance_id: str) -> bool:
        """Test if this instance, once ended, still shows as ending."""
        birth = self._births.get(instance_id)
        return birth is not None and birth.terminating_polls > 0
