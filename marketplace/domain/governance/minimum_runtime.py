"""Who may set how long leases run undisturbed: only the platform, for a market or a class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ledger.domain.refusal import Invalid, Refusal
from marketplace.domain.facts.policy_events import GovernanceEvent, LeastRunSet
from marketplace.domain.governance.authority import Setter, need_class, need_figure, need_platform
from marketplace.domain.quotas.card_units import ANY_CLASS
from marketplace.domain.quotas.policies_in_force import Policies

LEAST_RUN_SECONDS_MAX = 86_400
LEAST_RUN_CLASSES_MAX = 100


class LeastRunMissing(Invalid):
    """Say how long leases run at least, or lift what holds for a class that you name."""


class TooManyLeastRuns(Refusal):
    """A market has least running times of their own for at most a hundred classes of GPUs."""


def set_least_run(
    policies: Policies | None, event: LeastRunSet, by: Setter
) -> Sequence[GovernanceEvent]:
    """Set how long a lease runs at least before it is interrupted for another bid.

    Raises: PolicyNotYours, GpuClassUnreadable, LeastRunMissing, FigureOutOfRange,
        TooManyLeastRuns.
    """
    need_platform(by)
    if event.gpu_class == ANY_CLASS:
        event = replace(event, gpu_class=None)
    if event.gpu_class is not None:
        need_class(event.gpu_class)
    elif event.lifted:
        raise LeastRunMissing()
    need_figure(event.seconds, LEAST_RUN_SECONDS_MAX)
    now = (policies or Policies()).least_runs
    after = now.after(event)
    if len(after.classes) > LEAST_RUN_CLASSES_MAX:
        raise TooManyLeastRuns()
    return [] if after == now else [event]
