"""When a lease is idle, for how long, and what follows: a warning, then the end of it.

Only what was measured, and told in time, counts as quiet. What is not known, or came late after
the host or the market was away, breaks the stretch: nobody is released for a gap.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import ClassVar, Literal, assert_never
from uuid import UUID

from ledger.domain.ids import LeaseId, TenantId
from ledger.domain.refusal import Invalid
from marketplace.domain.bids.idle_time import IDLE_SECONDS_MAX, IDLE_SECONDS_MIN
from metering.domain.idle_events import (
    IdleEvent,
    IdleLeaseKept,
    IdleLeaseReleased,
    IdleRuleSet,
    IdleTerms,
    IdleWarned,
    IdleWarningLifted,
    LiftedBy,
    RuleOf,
)
from metering.domain.instants import instant_of

WARNING = timedelta(minutes=5)
"""Between the warning and the end of the lease."""
LATE_MS = 120_000
"""An interval that the market heard of so long after its end proves no quiet."""
FRESH_MS = 120_000
"""What was told last must not be older."""
JOIN_MS = 1_000
"""Intervals so far apart follow each other."""
THOUSAND = 1_000

Broken = Literal["", "use", "gap"]
"""What went before a stretch: nothing that is known, use, or a time that is not known."""


class IdleTermsOutOfRange(Invalid):
    """Idle time is 5 minutes to 12 hours, and each threshold a whole number, 0 or more.

    `busy_percent` is 100 at most.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One interval of a GPU; None: not known. The last three are of all the work on its host."""

    start_ms: int
    end_ms: int
    received_ms: int
    busy_ms: int | None
    cpu_ms: int | None
    disk_bytes: int | None
    network_bytes: int | None

    @property
    def length_ms(self) -> int:
        """Return how long it is."""
        return self.end_ms - self.start_ms

    def is_late(self) -> bool:
        """Tell if the market heard of it too late to act on it."""
        return self.received_ms - self.end_ms > LATE_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """How busy a lease was in its newest intervals: the busiest GPU and host. None: not known."""

    busy_percent: int | None = None
    cpu_millicores: int | None = None
    disk_bytes: int | None = None
    network_bytes: int | None = None

    def quiet(self, terms: IdleTerms) -> bool | None:
        """Tell if all of them are below their thresholds; None: one is not known."""
        pairs = (
            (self.busy_percent, terms.busy_percent),
            (self.cpu_millicores, terms.cpu_millicores),
            (self.disk_bytes, terms.disk_bytes),
            (self.network_bytes, terms.network_bytes),
        )
        known = [(value, most) for value, most in pairs if value is not None]
        if any(value >= most for value, most in known):
            return False
        return True if len(known) == len(pairs) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quiet:
    """Since when all of a lease has been quiet, up to when that is known; None: it is not.

    before: what broke it off before that.
    """

    since_ms: int | None
    through_ms: int
    before: Broken
    figures: Figures

    def length_ms(self) -> int:
        """Return for how long it has been quiet."""
        return 0 if self.since_ms is None else max(0, self.through_ms - self.since_ms)


def figures_of(each: Measured) -> Figures:
    """Return an interval as rates, rounded up: just below a threshold is not below it."""
    return Figures(
        busy_percent=_rate(each.busy_ms, 100, each.length_ms),
        cpu_millicores=_rate(each.cpu_ms, THOUSAND, each.length_ms),
        disk_bytes=_rate(each.disk_bytes, THOUSAND, each.length_ms),
        network_bytes=_rate(each.network_bytes, THOUSAND, each.length_ms),
    )


def quiet_of(
    newest_first: Iterable[Iterable[Measured]], terms: IdleTerms, *, now_ms: int, not_before_ms: int
) -> Quiet:
    """Return since when all GPUs of a lease have been quiet.

    newest_first: the intervals of each of its GPUs; read as far back as the stretch goes.
    not_before_ms: nothing before counts: when the work began, or its consumer kept it last.
    """
    parts = [
        _quiet_of_one(each, terms, now_ms=now_ms, not_before_ms=not_before_ms)
        for each in newest_first
    ]
    if not parts:
        return Quiet(since_ms=None, through_ms=now_ms, before="gap", figures=Figures())
    figures = Figures(
        busy_percent=_most(each.figures.busy_percent for each in parts),
        cpu_millicores=_most(each.figures.cpu_millicores for each in parts),
        disk_bytes=_most(each.figures.disk_bytes for each in parts),
        network_bytes=_most(each.figures.network_bytes for each in parts),
    )
    through_ms = min(each.through_ms for each in parts)
    broken = [each for each in parts if each.since_ms is None]
    if broken:
        used = any(each.before == "use" for each in broken)
        before: Broken = "use" if used else "gap"
        return Quiet(since_ms=None, through_ms=through_ms, before=before, figures=figures)
    latest = max(parts, key=lambda each: each.since_ms or 0)
    return replace(latest, through_ms=through_ms, figures=figures)


def _quiet_of_one(
    newest_first: Iterable[Measured], terms: IdleTerms, *, now_ms: int, not_before_ms: int
) -> Quiet:
    since_ms: int | None = None
    through_ms, figures, before = now_ms, Figures(), "gap"
    for each in newest_first:
        said = figures_of(each)
        if since_ms is None:
            through_ms, figures = each.end_ms, said
            if now_ms - each.end_ms > FRESH_MS:
                break
        elif since_ms - each.end_ms > JOIN_MS:
            before = "gap"
            break
        if each.end_ms <= not_before_ms:
            before = ""
            break
        quiet = said.quiet(terms)
        if quiet is not True or each.is_late():
            before = "use" if quiet is False and not each.is_late() else "gap"
            break
        since_ms = max(each.start_ms, not_before_ms)
        before = ""
    return Quiet(
        since_ms=since_ms,
        through_ms=through_ms,
        before=before,  # type: ignore[arg-type]  # one of three
        figures=figures,
    )


def _rate(amount: int | None, scale: int, length_ms: int) -> int | None:
    return None if amount is None else -(-amount * scale // max(1, length_ms))


def _most(values: Iterable[int | None]) -> int | None:
    found = list(values)
    known = [each for each in found if each is not None]
    return max(known) if len(known) == len(found) and known else None


@dataclass(frozen=True, slots=True)
class IdleRule:
    """What is agreed for a bid's or a tenant's leases."""

    STREAM: ClassVar[str] = "idle-rule"

    set: IdleRuleSet

    @classmethod
    def evolve(cls, state: IdleRule | None, event: IdleRuleSet, /) -> IdleRule:
        """Return the rule after `event`."""
        return cls(event)


def set_rule(
    now_set: IdleRule | None,
    *,
    rule_id: UUID,
    of: RuleOf,
    tenant_id: TenantId,
    terms: IdleTerms | None,
    now: datetime,
) -> list[IdleRuleSet]:
    """Decide on a rule; terms None: none any more. The same again changes nothing.

    A bid may have been placed with a rule, which its stream does not know: so what is said first
    of a bid is always noted.

    Raises: IdleTermsOutOfRange.
    """
    if terms is not None:
        levels = (terms.cpu_millicores, terms.disk_bytes, terms.network_bytes)
        fine = IDLE_SECONDS_MIN <= terms.after_seconds <= IDLE_SECONDS_MAX
        if not fine or not 0 <= terms.busy_percent <= 100 or min(levels) < 0:
            raise IdleTermsOutOfRange()
    known = None if now_set is None else now_set.set.terms
    if known == terms and (now_set is not None or of == "tenant"):
        return []
    return [IdleRuleSet(rule_id=rule_id, of=of, tenant_id=tenant_id, terms=terms, at=now)]


def strictest(rules: Collection[IdleTerms | None]) -> IdleTerms | None:
    """Return which of several rules holds for a lease: that with the shortest time."""
    known = [each for each in rules if each is not None]
    return min(known, key=lambda each: each.after_seconds) if known else None


@dataclass(frozen=True, slots=True)
class IdleWatch:
    """What was told of one lease's idleness. warned: the warning that holds."""

    STREAM: ClassVar[str] = "idle"

    warned: IdleWarned | None = None
    kept_at: datetime | None = None
    released: IdleLeaseReleased | None = None

    @classmethod
    def evolve(cls, state: IdleWatch | None, event: IdleEvent, /) -> IdleWatch:
        """Return the watch after `event`."""
        watch = state or cls()
        match event:
            case IdleWarned():
                return replace(watch, warned=event)
            case IdleWarningLifted():
                return replace(watch, warned=None)
            case IdleLeaseKept():
                return replace(watch, warned=None, kept_at=event.at)
            case IdleLeaseReleased():
                return replace(watch, released=event)
            case _:
                assert_never(event)

    def keep(self, *, lease_id: LeaseId, tenant_id: TenantId, now: datetime) -> list[IdleEvent]:
        """Count anew from now on, as its consumer asks."""
        if self.released is not None:
            return []
        return [IdleLeaseKept(lease_id=lease_id, tenant_id=tenant_id, at=now)]

    def look(
        self,
        quiet: Quiet,
        terms: IdleTerms | None,
        *,
        lease_id: LeaseId,
        tenant_id: TenantId,
        now: datetime,
    ) -> list[IdleEvent]:
        """Decide what follows from how quiet a lease is; `IdleLeaseReleased` ends it."""
        if self.released is not None:
            return []
        if self.warned is not None:
            lifted = self._lifted(quiet, terms)
            if lifted is not None:
                return [IdleWarningLifted(lease_id=lease_id, by=lifted, at=now)]
            if now < self.warned.release_at:
                return []
            return [IdleLeaseReleased(lease_id=lease_id, since=self.warned.since, at=now)]
        if terms is None or quiet.since_ms is None:
            return []
        if quiet.length_ms() < terms.after_seconds * THOUSAND:
            return []
        return [
            IdleWarned(
                lease_id=lease_id,
                tenant_id=tenant_id,
                terms=terms,
                since=instant_of(quiet.since_ms),
                release_at=now + WARNING,
                at=now,
            )
        ]

    def _lifted(self, quiet: Quiet, terms: IdleTerms | None) -> LiftedBy | None:
        assert self.warned is not None
        if terms is None or terms.after_seconds > self.warned.terms.after_seconds:
            return "rule"
        if quiet.since_ms is None or instant_of(quiet.since_ms) > self.warned.since:
            return "use" if quiet.before == "use" else "gap"
        return None
