"""How far leased work is kept from the host and from other leases, as one word and fact by fact.

Each level holds all of those before it:

- `none`: work runs as the agent's own user, or all of it as one account;
- `account`: each lease has an account of its own: files, signals, memory of processes;
- `process`: bubblewrap gives it a process table, System V memory, `/tmp`, devices and a network of
  its own, so that works of two tenants can be here side by side;
- `full`: control groups bound memory and processes of all of it together, and its folder has a
  size: no lease takes what another needs;
- `container`: what work with an image has: the image's own system, read-only, and no more rights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from . import groups
from .confinement import Confinement
from .limits import Limits
from .users import WorkUsers

Level = Literal["none", "account", "process", "full", "container"]

LEVELS: tuple[Level, ...] = get_args(Level)
"""From the weakest to the strongest."""

ACCOUNT = "an account for each lease"
DISK = "a file system of its own size"
BUBBLEWRAP = "bubblewrap"
NO_WAY_OUT = "it has none"


@dataclass(frozen=True, slots=True)
class Sandbox:
    """The level of work here, and what keeps each thing from it; empty text: nothing does."""

    level: Level
    enforces: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What is there to keep work apart, as found on this host.

    own_account: each lease has one. confined: bubblewrap is there. own_network: and gives it a
    network of its own. way_out: what bounds where it may connect to. memory, processes, cpu,
    devices, disk: what bounds each for a lease as a whole, or nothing.
    """

    own_account: bool = False
    confined: bool = False
    own_network: bool = False
    way_out: str = ""
    memory: str = ""
    processes: str = ""
    cpu: str = ""
    devices: str = ""
    disk: str = ""

    def sandbox(self, *, alone: bool) -> Sandbox:
        """Return the level that this comes to. alone: no account is shared by leases."""
        level: Level = "account" if self.own_account else "none"
        if self.confined and self.own_network and alone:
            bounded = self.memory and self.processes and self.disk
            level = "full" if bounded else "process"
        account = ACCOUNT if self.own_account else ""
        view = BUBBLEWRAP if self.confined else ""
        return Sandbox(
            level,
            (
                ("files", " and ".join(filter(None, (account, view)))),
                ("signals", view or account),
                ("process list", view),
                ("shared memory", view),
                ("/tmp", view),
                ("network", BUBBLEWRAP if self.own_network else ""),
                ("way out", self.way_out),
                ("devices", " and ".join(filter(None, (view, self.devices)))),
                ("memory", self.memory),
                ("processes", self.processes or ("rlimit" if self.own_account else "")),
                ("cpu", self.cpu),
                ("disk", self.disk),
            ),
        )


def sandbox_of(
    users: WorkUsers | None, confinement: Confinement | None, limits: Limits, *, disk: bool
) -> Sandbox:
    """Return the level of processes here, by what bounds can be set. disk: each has its own.

    Memory is bounded where it is less than the host's: else one lease may take all of it.
    """
    bounds = {} if users is None else groups.kept_by(limits)
    kept = Kept(
        own_account=users is not None and users.alone,
        confined=confinement is not None,
        own_network=confinement is not None and confinement.separates,
        way_out="" if confinement is None else way_out_of(confinement),
        memory=bounds.get("memory", "") if limits.memory_bytes else "",
        processes=bounds.get("processes", ""),
        cpu=bounds.get("cpu", ""),
        devices=bounds.get("devices", ""),
        disk=DISK if disk else "",
    )
    return kept.sandbox(alone=users is None or users.alone)


def way_out_of(confinement: Confinement) -> str:
    """Return what bounds where confined work may connect to; empty: nothing does."""
    if confinement.way_out is None:
        return NO_WAY_OUT if confinement.separates else ""
    return "" if confinement.egress is None else confinement.egress.said


def short_of(asked: str, sandbox: Sandbox, *, image: bool, by_mps: bool) -> str:
    """Return why work that asks for a level may not start here; empty: it may.

    image: it runs in one. by_mps: on a share by MPS, which no confinement goes with.
    """
    level: Level = "container" if image else sandbox.level
    if by_mps and level in ("process", "full", "container"):
        level = "account"
    if not asked or (asked in LEVELS and LEVELS.index(level) >= LEVELS.index(asked)):
        return ""
    return f"this host keeps work apart at level {level} now, and the bid asks for {asked}"
