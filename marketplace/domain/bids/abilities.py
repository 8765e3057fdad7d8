"""What a host's agent must be able to do for the work of a bid, by what the work names."""

from __future__ import annotations

from marketplace.domain.facts.values import Workload

NEEDS: tuple[tuple[str, str], ...] = (
    ("inputs", "files"),
    ("outputs", "files"),
    ("secrets", "secrets"),
    ("image", "podman"),
    ("access", "access"),
    ("volumes", "volumes"),
)
"""Which field of a workload, where it is not empty, needs which ability."""


def needs_of(workload: Workload) -> tuple[str, ...]:
    """Return the abilities that a workload needs, each once, in order of name."""
    found = {ability for name, ability in NEEDS if getattr(workload, name, None)}
    return tuple(sorted(found)) if found else ()
