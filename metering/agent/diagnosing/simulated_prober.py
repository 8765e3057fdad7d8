"""Made-up probes, for made-up cards: fine, but where a file in the state directory says otherwise.

`simulated-faults.json` names a card with a word in place of a number: `{"GPU-…": "corrupt"}`,
`"hang"` or `"launch"`.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from ..gpus.simulated import FAULTS
from .port import Verdict

SAID = {
    "corrupt": "silent corruption: 1 of 16777216 words were computed wrongly (simulated)",
    "launch": "cuLaunchKernel: CUDA_ERROR_LAUNCH_FAILED (simulated)",
}


class SimulatedProber:
    """Answers at once, or never where a card is said to hang."""

    def __init__(self, kept_in: Path | None = None) -> None:
        self._told_in = kept_in and kept_in / FAULTS
        self.said: dict[str, str] = {}
        self.begun: list[str] = []

    def begin(self, uuid: str) -> None:
        self.begun.append(uuid)

    def look(self, uuid: str) -> Verdict | None:
        said = self._said().get(uuid)
        if said == "hang":
            return None
        wrong = SAID.get(str(said))
        return Verdict(wrong is None, wrong or "computes and keeps what it should (simulated)")

    def end(self, uuid: str) -> None:
        """Nothing runs."""

    def owns(self, pid: int) -> bool:
        return False

    def _said(self) -> dict[str, object]:
        if self._told_in is not None:
            with suppress(OSError, ValueError, AttributeError):
                return {**self.said, **dict(json.loads(self._told_in.read_text()).items())}
        return {**self.said}
