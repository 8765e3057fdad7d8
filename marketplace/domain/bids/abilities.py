"""What a host's agent must be able to do for the work of a bid, by what the work names."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from listings.domain.sandboxes import (
    CONTAINER,
    IMAGES_ONLY,
    AgentSays,
    connects,
    level_on,
    rank,
)
from marketplace.domain.facts.values import GpuRequest, Workload

Lacked = Literal["sandbox", "network", "abilities"]

NEEDS: tuple[tuple[str, str], ...] = (
    ("inputs", "files"),
    ("outputs", "files"),
    ("secrets", "secrets"),
    ("image", "podman"),
    ("access", "access"),
    ("volumes", "volumes"),
    ("fetch", "fetch"),
    ("fetch_secret", "secrets"),
)
"""Which field of a workload, where it is not empty, needs which ability."""


def needs_of(workload: Workload) -> tuple[str, ...]:
    """Return the abilities that a workload needs, each once, in order of name."""
    found = {ability for name, ability in NEEDS if getattr(workload, name, None)}
    return tuple(sorted(found)) if found else ()


def lacks(
    request: GpuRequest, workload: Workload, says: AgentSays, isolation: str
) -> Lacked | None:
    """Return what a host lacks of what a bid asks of its agent, the first; None: nothing.

    isolation: of the GPUs. One that runs images only lacks what any other work needs.
    """
    needs = needs_of(workload)
    if not keeps_apart(request, needs, says.sandbox, says.abilities, isolation):
        return "sandbox"
    if request.network is not None and not connects(request.network, says.abilities, isolation):
        return "network"
    return None if can_do(needs, says.abilities) else "abilities"


def keeps_apart(
    request: GpuRequest,
    needs: Collection[str],
    sandbox: str,
    abilities: Collection[str],
    isolation: str,
) -> bool:
    """Tell if a host keeps work apart as far as a bid asks; work in an image is in a container."""
    if request.sandbox_min is None:
        return True
    in_container = "podman" in needs and "podman" in abilities
    level = CONTAINER if in_container else level_on(sandbox, isolation)
    return rank(level) >= rank(request.sandbox_min)


def can_do(needs: Collection[str], abilities: Collection[str]) -> bool:
    """Tell if a host's agent can do what work needs."""
    if IMAGES_ONLY in abilities and "podman" not in needs:
        return False
    return not needs or set(needs) <= set(abilities)
