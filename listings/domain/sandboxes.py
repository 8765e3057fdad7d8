"""How far a host keeps leased work from itself and from other leases, as its agent enforces it.

`sandbox` is about the host: processes, files, network, memory. How a GPU is kept apart from other
parts of its card is an offer's `isolation`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from listings.domain.events import HostAbilitiesReported

LEVELS = ("none", "account", "process", "full", "container")
"""From the weakest to the strongest; what each holds is in config/docs/isolation.md."""
APART = "process"
"""The weakest level at which the works of two tenants can be on one host at a time."""
CONTAINER = "container"
"""The level of work that has an image: it is the image's own system that it sees."""
ABILITIES = ("files", "logs", "secrets", "podman", "access", "volumes")
"""What work may ask of a host beyond a command. Agents may know more; their words are kept."""

NETWORKS = ("open", "none")
"""What a bid may ask of where its work connects to: public addresses, or nothing at all. The agent
says it by the ability `network-open` or `network-none`; what lies between is in neither."""
IMAGES_ONLY = "images-only"
"""Said by the agent of a host that runs no work without an image."""


class AgentSays(NamedTuple):
    """What a host's agent says of itself; see `HostAbilitiesReported`."""

    sandbox: str = ""
    enforces: tuple[tuple[str, str], ...] = ()
    abilities: tuple[str, ...] = ()

    @classmethod
    def of(cls, said: HostAbilitiesReported) -> AgentSays:
        """Return what was said."""
        return cls(said.sandbox, said.enforces, said.abilities)

    @classmethod
    def so(
        cls, sandbox: str, enforces: Iterable[tuple[str, str]], abilities: Iterable[str]
    ) -> AgentSays:
        """Return it in one order, whatever the agent's was."""
        return cls(sandbox, tuple(sorted(enforces)), tuple(sorted(abilities)))

    @property
    def keeps_tenants_apart(self) -> bool:
        """Tell if different tenants may be on the host at a time.

        Where no agent said anything there is nothing to judge by: such a host is its owner's word.
        """
        return not self.sandbox or rank(self.sandbox) >= rank(APART)


NOTHING_SAID = AgentSays()


def level_on(sandbox: str, isolation: str) -> str:
    """Return the level of work on GPUs of an isolation: MPS does not go with bubblewrap."""
    by_mps = isolation == "mps" and rank(sandbox) >= rank(APART)
    return "account" if by_mps else sandbox


def connects(asked: str, abilities: Collection[str], isolation: str) -> bool:
    """Tell if work on GPUs of an isolation connects as a bid asks, by what its host's agent says.

    Work on a share by MPS has the host's own network, whatever other work there has.
    """
    return f"network-{asked}" in abilities and (asked != "none" or isolation != "mps")


def rank(level: str) -> int:
    """Return how strong a level is; one that is not said, or not known here, is weaker than all."""
    return LEVELS.index(level) if level in LEVELS else -1
