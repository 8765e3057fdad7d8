"""What work may ask of this host beyond a command: the words that the agent registers with.

Each word stands here with what tells whether this agent, as it is installed and set up, can do it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from . import sealing
from .runtimes.port import Runtime
from .runtimes.sources import Fetching

ABLE: dict[str, Callable[[Runtime], bool]] = {
    "fetch": lambda runtime: isinstance(runtime, Fetching) and runtime.fetches,
    "files": lambda runtime: runtime.has_folders,
    "hand": lambda _: True,
    "logs": lambda _: True,
    "podman": lambda runtime: runtime.runs_images,
    "secrets": lambda runtime: runtime.hands_secrets and sealing.is_possible(),
    "volumes": lambda runtime: runtime.has_folders,
    "network-none": lambda runtime: runtime.reaches == "none",
    "network-allow-list": lambda runtime: runtime.reaches == "allow-list",
    "network-open": lambda runtime: runtime.reaches == "open",
    "images-only": lambda runtime: runtime.images_only,
}
"""By word: `files`, `volumes`, `logs`, `secrets`, `podman`, `access`; `fetch`: the source of work;
`hand`: it knows the owner's switch."""


def abilities_of(runtime: Runtime, more: Collection[str] = ()) -> tuple[str, ...]:
    """Return what this agent can do, in order of name; more: by how it was started."""
    return tuple(sorted({*more, *(word for word, able in ABLE.items() if able(runtime))}))
