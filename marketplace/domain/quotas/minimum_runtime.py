"""How long leases run at least before another bid interrupts them: in a market, and by class.

A class of GPUs may have a figure of its own, which comes before the market's. It holds for all that
is cut from its cards; what names the part comes before what names the card, and the narrower class
before the wider. A lease of GPUs of several classes runs as long as the longest of them says.

A lease's models are read from the name that its grant gives them together: so they are known also
once its offers are gone. Where that name is cut off, the longest figure of all counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache

from listings.domain.divisions import MODEL_CHARS_MAX
from listings.domain.gpus import is_of, model_of, names_part
from marketplace.domain.facts.policy_events import LeastRunSet

LEAST_RUN_SECONDS = 30 * 60
"""Where no policy says another."""
FIRM_SECONDS = 60 * 60
"""So much of work that may be paused is done first, where no policy says another."""

_BETWEEN_MODELS = re.compile(r"\+(?![a-z])")
"""Not what a profile ends in: `1g.10gb+me`."""


@dataclass(frozen=True, slots=True)
class LeastRuns:
    """The policy of one market. seconds: of all classes that have none of their own."""

    seconds: int = LEAST_RUN_SECONDS
    classes: tuple[tuple[str, int], ...] = ()
    """By class, in order."""
    firm_seconds: int = FIRM_SECONDS
    """How much of work that may be paused is done first: not of a lease, but of all of it."""

    def after(self, event: LeastRunSet) -> LeastRuns:
        if event.firm:
            return replace(self, firm_seconds=event.seconds)
        if event.gpu_class is None:
            return replace(self, seconds=event.seconds)
        name = model_of(event.gpu_class)
        classes = {of: seconds for of, seconds in self.classes if of != name}
        if not event.lifted:
            classes[name] = event.seconds
        return replace(self, classes=tuple(sorted(classes.items())))

    def of(self, gpu_model: str) -> int:
        """Return how long a lease runs at least, in seconds. gpu_model: as its grant names it."""
        return _of(self, gpu_model) if self.classes else self.seconds

    @property
    def longest(self) -> int:
        return max(self.seconds, *(seconds for _, seconds in self.classes), 0)


NONE_SET = LeastRuns()
"""Of a market where no policy says anything."""


@lru_cache(maxsize=4_096)
def _of(runs: LeastRuns, gpu_model: str) -> int:
    if len(gpu_model) >= MODEL_CHARS_MAX:
        return runs.longest
    return max(_of_model(runs, model) for model in _BETWEEN_MODELS.split(gpu_model))


def _of_model(runs: LeastRuns, model: str) -> int:
    found = [
        (names_part(gpu_class), len(gpu_class), seconds)
        for gpu_class, seconds in runs.classes
        if is_of(gpu_class, model)
    ]
    return max(found)[2] if found else runs.seconds
