"""What the owner of a host lets consumers reach of their work, and what this host can do of it."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from .line import Line

if TYPE_CHECKING:
    from ..agent import Agent

Access = Literal["off", "ports", "shell"]
ACCESS: tuple[Access, ...] = ("off", "ports", "shell")
ABILITY = "access"
"""How the agent says, when it registers, that leases here can be reached."""

log = logging.getLogger(__name__)


class AccessImpossible(ValueError):
    """This host cannot do what its owner allows; the text says what is missing."""


def access_of(wish: str | None, *, alone: bool) -> Access:
    """Return what can be reached on this host; wish: None: as much as it can do.

    alone: each lease's work has an account of its own, or user ids as in a container.
    Raises: AccessImpossible, for a wish that cannot be had.
    """
    if wish == "off":
        return "off"
    missing = [name for name in ("websockets", "asyncssh") if not importlib.util.find_spec(name)]
    wanted: Access = "ports" if wish == "ports" else "shell"
    if wanted == "ports" and missing == ["asyncssh"]:
        missing = []
    why = ""
    if missing:
        why = f"{' and '.join(missing)} not installed: pip install 'offpeak-agent[access]'"
    elif not alone:
        why = (
            "each lease needs an account of its own: run the agent as root with --work-users, or"
            " with --runtimes podman"
        )
    if not why:
        return wanted
    if wish is not None:
        raise AccessImpossible(f"--access {wish}: {why}")
    return "off"


@contextmanager
def tunnel_to(line: Line, access: Access, agent: Agent, *, secret: Path) -> Iterator[None]:
    """Keep the tunnel of this host open meanwhile, if its owner allows one."""
    if access == "off":
        yield
        return
    # Imported here: a host whose owner allows nothing needs none of it.
    from .tunnel import Tunnel

    tunnel = Tunnel(line, access, enter=agent.inside, count_in=agent.count_in, secret=secret)
    tunnel.start()
    try:
        yield
    finally:
        tunnel.stop()
