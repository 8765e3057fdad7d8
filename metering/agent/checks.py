"""What `offpeak-agent doctor` finds, one thing a line."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at. fine None: could not be judged. mend: what to do when it is not fine."""

    name: str
    fine: bool | None
    found: str
    mend: str = ""

    def line(self) -> str:
        """Return the check as one line for a person."""
        mark = {True: "ok  ", False: "FAIL", None: "?   "}[self.fine]
        return f"{mark} {self.name}: {self.found}" + (f" -> {self.mend}" if self.mend else "")
